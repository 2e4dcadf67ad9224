#include "client/local_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/account_limits.h"
#include "base/text.h"
#include "client/daemons.h"
#include "client/paths.h"
#include "client/spawn.h"

namespace gpulayer::client {
namespace {

constexpr auto kStartPatience = std::chrono::seconds(10);
constexpr auto kStopPatience = std::chrono::seconds(8);
// A connection breaks a moment before its server can be seen to have ended.
constexpr auto kEndPatience = std::chrono::seconds(1);
constexpr auto kKeeperPatience = std::chrono::seconds(3);

// One line of what a descriptor gives; empty: it ended, or nothing came in time.
Result<std::string> ReadLine(int fd, const InterruptPtr& interrupt) {
  const auto end = std::chrono::steady_clock::now() + kStartPatience;
  std::string line;
  while (std::chrono::steady_clock::now() < end) {
    if (Thrown(interrupt)) return Cancelled("local server: interrupted");
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, 50) <= 0) continue;
    char c = 0;
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, ReadSome(fd, &c, 1));
    if (n == 0) break;
    if (c == '\n') return line;
    line += c;
  }
  return std::string();
}

std::string LastLine(int fd) {
  char buffer[4096];
  const ssize_t n = ::pread(fd, buffer, sizeof buffer, 0);
  if (n <= 0) {
    return std::string("it does not answer. It may lack memory or threads: ") + kRaiseLimits;
  }
  std::vector<std::string> lines =
      Split(std::string_view(buffer, static_cast<std::size_t>(n)), '\n');
  while (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  const std::string line = Printable(lines.back());
  const std::string own = "gpulayer-server: ";
  return line.rfind(own, 0) == 0 ? line.substr(own.size()) : line;
}

std::string HowItEnded(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return "exit code " + std::to_string(info.si_status);
  return "signal " + std::to_string(info.si_status);
}

// Of a server that was killed. A container that shares this folder of folders may have a process of
// the same number: where that serves, it holds the lock.
void RemoveUnlessServed(const std::string& dir) {
  const std::string path = JoinPath(dir, "server/lock");
  if (!PathExists(path)) {
    ::rmdir(dir.c_str());  // it got no further; one that is about to makes it anew
    return;
  }
  const Result<FileLock> lock = FileLock::Acquire(path);
  if (lock.ok()) IgnoreError(RemoveTree(dir), "nobody waits for it");
}

template <typename T>
class LocalRead : public ReadStream<T> {
 public:
  LocalRead(std::unique_ptr<ReadStream<T>> inner, const LocalServer& server)
      : inner_(std::move(inner)), server_(server) {}
  Result<std::optional<T>> Read() override {
    Result<std::optional<T>> read = inner_->Read();
    if (read.status().code() != StatusCode::kUnavailable) return read;
    GPULAYER_RETURN_IF_ERROR(server_.EndedWithin(kEndPatience));
    return read;
  }
  void Break() override { inner_->Break(); }

 private:
  const std::unique_ptr<ReadStream<T>> inner_;
  const LocalServer& server_;
};

class LocalUpload : public UploadStream {
 public:
  LocalUpload(std::unique_ptr<UploadStream> inner, const LocalServer& server)
      : inner_(std::move(inner)), server_(server) {}
  bool Write(const v1::UploadChunk& chunk) override { return inner_->Write(chunk); }
  Result<v1::UploadReply> Finish() override {
    Result<v1::UploadReply> reply = inner_->Finish();
    if (reply.status().code() != StatusCode::kUnavailable) return reply;
    GPULAYER_RETURN_IF_ERROR(server_.EndedWithin(kEndPatience));
    return reply;
  }

 private:
  const std::unique_ptr<UploadStream> inner_;
  const LocalServer& server_;
};

class LocalTransport : public Transport {
 public:
  LocalTransport(std::unique_ptr<Transport> inner, const LocalServer& server)
      : inner_(std::move(inner)), server_(server) {}
  Status Call(Method method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite* reply, const CallOptions& options) override {
    const Status status = inner_->Call(method, request, reply, options);
    if (status.code() != StatusCode::kUnavailable) return status;
    GPULAYER_RETURN_IF_ERROR(server_.EndedWithin(kEndPatience));
    return status;
  }
  std::unique_ptr<ReadStream<v1::LogChunk>> ReadLogs(const v1::ReadLogsRequest& request,
                                                     InterruptPtr interrupt) override {
    return Wrap(inner_->ReadLogs(request, std::move(interrupt)));
  }
  std::unique_ptr<ReadStream<v1::GetJobReply>> Watch(const v1::WatchRequest& request,
                                                     InterruptPtr interrupt) override {
    return Wrap(inner_->Watch(request, std::move(interrupt)));
  }
  std::unique_ptr<ReadStream<v1::DownloadChunk>> Download(const v1::DownloadRequest& request,
                                                          InterruptPtr interrupt) override {
    return Wrap(inner_->Download(request, std::move(interrupt)));
  }
  std::unique_ptr<UploadStream> Upload(InterruptPtr interrupt) override {
    return std::make_unique<LocalUpload>(inner_->Upload(std::move(interrupt)), server_);
  }
  std::unique_ptr<ExecStream> Exec(InterruptPtr interrupt) override {
    return inner_->Exec(std::move(interrupt));
  }

 private:
  template <typename T>
  std::unique_ptr<ReadStream<T>> Wrap(std::unique_ptr<ReadStream<T>> stream) {
    return std::make_unique<LocalRead<T>>(std::move(stream), server_);
  }

  const std::unique_ptr<Transport> inner_;
  const LocalServer& server_;
};

}  // namespace

Result<std::unique_ptr<LocalServer>> LocalServer::Start(const InterruptPtr& interrupt) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string program, FindProgram("gpulayer-server"));
  std::unique_ptr<LocalServer> server(new LocalServer());
  GPULAYER_ASSIGN_OR_RETURN(Pipe to, MakePipe());
  GPULAYER_ASSIGN_OR_RETURN(Pipe from, MakePipe());
  // What it says of a failed start; later lines are few and nobody's.
  const UniqueFd words(::memfd_create("gpulayer-local", MFD_CLOEXEC));
  if (!words.valid()) return ErrnoStatus("local server", errno);
  SpawnOptions spawn;
  spawn.argv = {program, "--ephemeral"};
  spawn.stdin_fd = to.read_end.get();
  spawn.stdout_fd = from.write_end.get();
  spawn.stderr_fd = words.get();
  GPULAYER_ASSIGN_OR_RETURN(server->pid_, Spawn(spawn));
  server->stdin_ = std::move(to.write_end);
  from.write_end.Reset();
  GPULAYER_ASSIGN_OR_RETURN(const std::string line, ReadLine(from.read_end.get(), interrupt));
  const nlohmann::json ready = nlohmann::json::parse(line, nullptr, false);
  if (!ready.is_object() || !ready.contains("socket") || !ready["socket"].is_string()) {
    return Unavailable("local server: " + LastLine(words.get()));
  }
  server->socket_ = ready["socket"].get<std::string>();
  if (ready.contains("data_dir") && ready["data_dir"].is_string()) {
    server->data_dir_ = ready["data_dir"].get<std::string>();
  }
  return server;
}

LocalServer::~LocalServer() {
  if (::getpid() != owner_) return;
  stdin_.Reset();  // tells it to end
  const auto end = std::chrono::steady_clock::now() + kStopPatience;
  bool killed = false;
  while (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (!killed && std::chrono::steady_clock::now() >= end) {
      ::kill(pid_, SIGKILL);
      killed = true;
    }
    ::usleep(5000);
  }
  RemoveLeftovers();
}

Status LocalServer::EndedWithin(Duration patience) const {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    siginfo_t info{};
    // Left to be reaped by the destructor. ECHILD: the host program has reaped it.
    const int rc = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (rc != 0 && errno == EINTR) continue;
    if (rc != 0 || info.si_pid == pid_) {
      const std::string how = rc != 0 ? "" : " (" + HowItEnded(info) + ")";
      return FailedPrecondition("the private server of this run was ended" + how +
                                ": the job ended with it");
    }
    if (std::chrono::steady_clock::now() >= end) return OkStatus();
    ::usleep(5000);
  }
}

// gpulayer-exec ends its jobs when the server is gone, and writes there until it has.
void LocalServer::RemoveLeftovers() const {
  if (data_dir_.empty()) {  // it ended before it could say which
    const std::string prefix = "gpulayer-local-" + std::to_string(pid_) + "-";
    const Result<std::vector<std::string>> names = ListDir(TempRoot());
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      if (name.rfind(prefix, 0) == 0) RemoveUnlessServed(JoinPath(TempRoot(), name));
    }
    return;
  }
  if (!PathExists(data_dir_)) return;
  const auto end = std::chrono::steady_clock::now() + kKeeperPatience;
  const std::string worker_dir = JoinPath(data_dir_, "worker");
  while (!FindKeepers(worker_dir).empty() && std::chrono::steady_clock::now() < end) {
    ::usleep(20'000);
  }
  while (!RemoveTree(data_dir_).ok() && std::chrono::steady_clock::now() < end) ::usleep(20'000);
}

std::unique_ptr<Transport> MakeLocalTransport(std::unique_ptr<Transport> inner,
                                              const LocalServer& server) {
  return std::make_unique<LocalTransport>(std::move(inner), server);
}

}  // namespace gpulayer::client
