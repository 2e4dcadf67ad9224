#include "support/cluster.h"

#include <csignal>
#include <optional>
#include <utility>

#include "base/fs.h"
#include "server/server.h"
#include "support/eventually.h"
#include "support/process.h"
#include "worker/worker.h"

namespace gpulayer::testing {
namespace {

class InProcessCluster final : public Cluster {
 public:
  ~InProcessCluster() override {
    workers_.clear();
    server_.reset();
  }

  Status StartServer() {
    ServerOptions options;
    options.data_dir = data_dir_;
    options.listen = "127.0.0.1:0";
    GPULAYER_ASSIGN_OR_RETURN(server_, Server::Start(std::move(options)));
    return OkStatus();
  }

  Status AddWorker(const ClusterWorker& worker) override {
    workers_[worker.name].spec = worker;
    return RestartWorker(worker.name);
  }

  Status KillWorker(const std::string& name) override {
    workers_[name].worker->Stop(Worker::StopMode::kKeepJobs);
    workers_[name].worker.reset();
    return OkStatus();
  }

  Status RestartWorker(const std::string& name) override {
    Entry& entry = workers_[name];
    entry.worker.reset();
    WorkerOptions options;
    options.server = "unix:" + server_->socket_path();
    options.data_dir = JoinPath(data_dir_, "w-" + name);
    options.name = name;
    options.slots = entry.spec.slots;
    options.zone = entry.spec.zone;
    options.labels = entry.spec.labels;
    options.exec_program = GPULAYER_BIN_DIR "/gpulayer-exec";
    GPULAYER_ASSIGN_OR_RETURN(entry.worker, Worker::Start(std::move(options)));
    return WaitForWorker(name, api::WorkerState::kOnline);
  }

  Status RestartServer() override {
    server_->Stop();
    server_.reset();
    return StartServer();
  }

 private:
  struct Entry {
    ClusterWorker spec;
    std::unique_ptr<Worker> worker;
  };
  std::unique_ptr<Server> server_;
  std::map<std::string, Entry> workers_;
};

class RealCluster final : public Cluster {
 public:
  ~RealCluster() override {
    for (auto& [name, entry] : workers_) {  // SIGTERM: ends its jobs and gpulayer-exec too
      if (!entry.process) continue;
      entry.process->Signal(SIGCONT);
      entry.process->Signal(SIGTERM);
      entry.process->Wait();
    }
    if (server_) {
      server_->Signal(SIGTERM);
      server_->Wait();
    }
  }

  Status StartServer() {
    GPULAYER_RETURN_IF_ERROR(MakeDirs(data_dir_));
    server_.reset();
    GPULAYER_ASSIGN_OR_RETURN(
        server_, Process::Start({.argv = {GPULAYER_BIN_DIR "/gpulayer-server", "--data-dir",
                                          data_dir_, "--listen", "127.0.0.1:0", "--foreground"},
                                 .stderr_file = dir_ / "server.err"}));
    std::string last;
    if (Eventually(
            [&] {
              Result<Client> client = Connect();
              if (client.ok()) return true;
              last = client.status().ToString();
              return !server_->running();
            },
            std::chrono::seconds(30)) &&
        server_->running()) {
      return OkStatus();
    }
    return Unavailable("the server did not answer: " + last + "; " +
                       ReadFile(dir_ / "server.err").value_or(""));
  }

  Status AddWorker(const ClusterWorker& worker) override {
    workers_[worker.name].spec = worker;
    return RestartWorker(worker.name);
  }

  Status KillWorker(const std::string& name) override {
    workers_[name].process->Kill();
    workers_[name].process.reset();
    return OkStatus();
  }

  Status RestartWorker(const std::string& name) override {
    Entry& entry = workers_[name];
    entry.process.reset();
    Process::Options options;
    options.argv = {GPULAYER_BIN_DIR "/gpulayer-worker",
                    "--server",
                    "unix:" + JoinPath(data_dir_, "server.sock"),
                    "--data-dir",
                    JoinPath(data_dir_, "w-" + name),
                    "--name",
                    name,
                    "--slots",
                    std::to_string(entry.spec.slots),
                    "--foreground"};
    if (!entry.spec.zone.empty()) {
      options.argv.insert(options.argv.end(), {"--zone", entry.spec.zone});
    }
    for (const auto& [key, value] : entry.spec.labels) {
      options.argv.insert(options.argv.end(), {"--label", key + "=" + value});
    }
    options.stderr_file = dir_ / ("worker-" + name + ".err");
    GPULAYER_ASSIGN_OR_RETURN(entry.process, Process::Start(options));
    const Status online = WaitForWorker(name, api::WorkerState::kOnline);
    if (online.ok()) return online;
    return online.Prefixed(ReadFile(options.stderr_file).value_or(""));
  }

  Status RestartServer() override {
    server_->Kill();
    return StartServer();
  }

 private:
  struct Entry {
    ClusterWorker spec;
    std::optional<Process> process;
  };
  std::optional<Process> server_;
  std::map<std::string, Entry> workers_;
};

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::Start(Kind kind) {
  if (kind == Kind::kInProcess) {
    auto cluster = std::make_unique<InProcessCluster>();
    GPULAYER_RETURN_IF_ERROR(cluster->StartServer());
    return std::unique_ptr<Cluster>(std::move(cluster));
  }
  auto cluster = std::make_unique<RealCluster>();
  GPULAYER_RETURN_IF_ERROR(cluster->StartServer());
  return std::unique_ptr<Cluster>(std::move(cluster));
}

Result<Client> Cluster::Connect() const {
  ClientOptions options;
  options.data_dir = data_dir_;
  options.config_dir = dir_ / "config";  // no login there, so the server of data_dir is meant
  return Client::Connect(options);
}

Status Cluster::WaitForWorker(const std::string& name, api::WorkerState state) const {
  GPULAYER_ASSIGN_OR_RETURN(Client client, Connect());
  const bool found = Eventually(
      [&] {
        const Result<std::vector<WorkerInfo>> workers = client.Workers();
        if (!workers.ok()) return false;
        for (const WorkerInfo& worker : *workers) {
          if (worker.name == name && worker.state == state) return true;
        }
        return false;
      },
      std::chrono::seconds(30));
  return found ? OkStatus()
               : DeadlineExceeded("worker " + name + " did not become " + ToString(state));
}

}  // namespace gpulayer::testing
