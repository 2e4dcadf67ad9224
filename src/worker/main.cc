// gpulayer-worker: offers this machine to a server until it is told to stop. People type
// `gpulayer up` or `gpulayer join`, which start it.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/account_limits.h"
#include "base/daemon.h"
#include "base/fault_point.h"
#include "base/fs.h"
#include "base/heap.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/own_file.h"
#include "base/text.h"
#include "wire/version.h"
#include "worker/config.h"
#include "worker/exec/memory_cgroup.h"
#include "worker/probe/probe.h"
#include "worker/session/grpc_log.h"
#include "worker/worker.h"

namespace gpulayer {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr char kHelp[] =
    R"(gpulayer-worker: offers this machine to a server. `gpulayer up` and `gpulayer join` start it.

Usage: gpulayer-worker --server ADDRESS [options]
  --server ADDRESS         unix:/path/of/server.sock or host:port
  --data-dir D             where D/worker and D/log are kept (default: $GPULAYER_DATA_DIR, as root
                           /var/lib/gpulayer, else $XDG_STATE_HOME/gpulayer)
  --ca FILE                the server's CA certificate (host:port)
  --credential-file FILE   this machine's credential (host:port)
  --name NAME              default: the host's name
  --slots N                default: the CPUs found
  --memory SIZE            default: the memory found, as 24GiB
  --zone Z, --region R     where it stands
  --label K=V              may be repeated
  --foreground             log to standard error instead of D/log/worker.log
  --started-under FD       a descriptor of `gpulayer up`, closed once the directory is locked
  --print-resources        print what this machine would offer as JSON and leave
  --version, --help
D/worker.toml may hold [worker] (name slots zone region cache_size), [labels] and [env]; options win.

Example: gpulayer-worker --server unix:/var/lib/gpulayer/server.sock --slots 4 --foreground
)";

struct Flags {
  std::string server;
  std::string data_dir;
  std::string ca_file;
  std::string credential_file;
  std::string started_under;
  std::optional<std::string> name;
  std::optional<std::string> zone;
  std::optional<std::string> region;
  std::optional<std::int32_t> slots;
  std::optional<std::int64_t> memory;
  std::map<std::string, std::string> labels;
  bool foreground = false;
  bool version = false;
  bool help = false;
  bool print_resources = false;
};

Result<std::int32_t> ParseSlots(const std::string& text) {
  char* end = nullptr;
  const long n = strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || n < 0 || n > std::numeric_limits<std::int32_t>::max()) {
    return InvalidArgument("--slots " + Printable(text) + ": not a number of 0 or more");
  }
  return static_cast<std::int32_t>(n);
}

Status TakeValue(Flags& flags, const std::string& flag, const std::string& value) {
  if (flag == "--server") {
    flags.server = value;
  } else if (flag == "--data-dir") {
    flags.data_dir = value;
  } else if (flag == "--ca") {
    flags.ca_file = value;
  } else if (flag == "--credential-file") {
    flags.credential_file = value;
  } else if (flag == "--started-under") {
    flags.started_under = value;
  } else if (flag == "--name") {
    flags.name = value;
  } else if (flag == "--zone") {
    flags.zone = value;
  } else if (flag == "--region") {
    flags.region = value;
  } else if (flag == "--slots") {
    GPULAYER_ASSIGN_OR_RETURN(flags.slots, ParseSlots(value));
  } else if (flag == "--memory") {
    GPULAYER_ASSIGN_OR_RETURN(flags.memory, ParseSize(value));
  } else if (flag == "--label") {
    const std::size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) {
      return InvalidArgument("--label " + Printable(value) + ": it must be K=V");
    }
    flags.labels[value.substr(0, equals)] = value.substr(equals + 1);
  } else {
    return InvalidArgument("unknown option " + Printable(flag) + ". See gpulayer-worker --help");
  }
  return OkStatus();
}

Result<Flags> ParseFlags(const std::vector<std::string>& args) {
  Flags flags;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--foreground") {
      flags.foreground = true;
    } else if (arg == "--version") {
      flags.version = true;
    } else if (arg == "--help" || arg == "-h") {
      flags.help = true;
    } else if (arg == "--print-resources") {
      flags.print_resources = true;
    } else if (const std::size_t equals = arg.find('='); equals != std::string::npos) {
      GPULAYER_RETURN_IF_ERROR(TakeValue(flags, arg.substr(0, equals), arg.substr(equals + 1)));
    } else if (i + 1 < args.size()) {
      GPULAYER_RETURN_IF_ERROR(TakeValue(flags, arg, args[++i]));
    } else {
      return InvalidArgument("option " + Printable(arg) +
                             ": it needs a value, or is not known. See "
                             "gpulayer-worker --help");
    }
  }
  return flags;
}

Result<WorkerOptions> Options(const Flags& flags, const std::string& data_dir) {
  worker::WorkerFile file;
  const std::string path = JoinPath(data_dir, "worker.toml");
  if (PathExists(path)) {
    GPULAYER_ASSIGN_OR_RETURN(file, worker::ReadWorkerFile(path));
  }
  WorkerOptions options;
  options.server = flags.server;
  options.on_locked = [fd = flags.started_under] { LeaveStarter(fd); };
  options.data_dir = JoinPath(data_dir, "worker");
  options.name = flags.name.value_or(file.name.value_or(""));
  options.zone = flags.zone.value_or(file.zone.value_or(""));
  options.region = flags.region.value_or(file.region.value_or(""));
  options.slots = flags.slots ? flags.slots : file.slots;
  options.memory_bytes = flags.memory;
  options.cache_bytes = file.cache_bytes;
  options.labels = file.labels;
  for (const auto& [key, value] : flags.labels) options.labels[key] = value;
  options.env = file.env;
  if (!flags.ca_file.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(options.ca_pem, ReadFile(flags.ca_file, kOwnFileLimit));
  }
  if (!flags.credential_file.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(const std::string text,
                              ReadFile(flags.credential_file, kOwnFileLimit));
    options.credential = TrimmedEnd(text);
  }
  return options;
}

int PrintResources(const WorkerOptions& options) {
  CpuProbe probe({options.slots, options.memory_bytes, ""});
  const Result<Resources> found = probe.Detect();
  if (!found.ok()) {
    std::cerr << "gpulayer-worker: " << found.status().message() << "\n";
    return kFailed;
  }
  nlohmann::json devices = nlohmann::json::array();
  for (const Device& device : found->devices) {
    devices.push_back({{"id", device.id},
                       {"kind", std::string(ToString(device.kind))},
                       {"model", device.model},
                       {"memory_bytes", device.memory_bytes}});
  }
  const nlohmann::json out = {{"name", options.name},
                              {"zone", options.zone},
                              {"region", options.region},
                              {"labels", options.labels},
                              {"slots", found->slots},
                              {"memory_bytes", found->memory_bytes},
                              {"no_memory_limit", WhyNoMemoryLimit(FindCgroupPlace())},
                              {"devices", std::move(devices)}};
  std::cout << out.dump(2) << "\n";
  return 0;
}

// That the server will not have this worker, once it has said so.
class Refusal {
 public:
  struct Said {
    Status why;
    Worker::StopMode mode = Worker::StopMode::kKeepJobs;
  };
  void Set(const Status& why, Worker::StopMode mode) {
    MutexLock lock(mutex_);
    said_ = Said{why, mode};
  }
  std::optional<Said> get() {
    MutexLock lock(mutex_);
    return said_;
  }

 private:
  Mutex mutex_;
  std::optional<Said> said_ GPULAYER_GUARDED_BY(mutex_);
};

int Serve(WorkerOptions options) {
  // Before any thread: all of them inherit the mask, so that only sigwait() below gets these.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file too large is an error of write()

  Refusal refusal;
  options.on_refused = [&refusal](const Status& why, Worker::StopMode mode) {
    refusal.Set(why, mode);
    kill(getpid(), SIGTERM);
  };
  const std::string server = options.server;
  Result<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
  if (!worker.ok()) {
    LogError(worker.status().message());
    std::cerr << "gpulayer-worker: " << worker.status().message() << "\n";
    return kFailed;
  }
  LogInfo("worker " + (*worker)->id().value() + " for server " + server + ", version " +
          wire::kProgramVersion);
  int signal = 0;
  do {
    if (sigwait(&signals, &signal) != 0) signal = SIGTERM;
  } while (signal == SIGHUP);
  if (const std::optional<Refusal::Said> refused = refusal.get()) {
    std::cerr << "gpulayer-worker: " << refused->why.message() << "\n";
    const bool end_jobs = refused->mode == Worker::StopMode::kEndJobs;
    LogInfo(end_jobs ? "stopping: running jobs are ended, the server starts them elsewhere"
                     : "stopping: running jobs go on until a worker is let in");
    (*worker)->Stop(refused->mode);
    return kFailed;
  }
  LogInfo("stopping: running jobs are ended and go back to the server");
  (*worker)->Stop();
  LogInfo("stopped");
  return 0;
}

int Main(const std::vector<std::string>& args) {
  SayWhatEndsUs("gpulayer-worker");
  KeepFreedBuffers();
  ArmFaultPointsFromEnvironment();
  RaiseFileLimit();
  LeaveNoCore();
  const Result<Flags> flags = ParseFlags(args);
  if (!flags.ok()) {
    std::cerr << "gpulayer-worker: " << flags.status().message() << "\n";
    return kUsage;
  }
  if (flags->help) {
    std::cout << kHelp;
    return 0;
  }
  if (flags->version) {
    std::cout << "gpulayer-worker " << wire::kProgramVersion << "\n";
    return 0;
  }
  if (flags->server.empty() && !flags->print_resources) {
    std::cerr << "gpulayer-worker: no server: give --server. See gpulayer-worker --help\n";
    return kUsage;
  }
  const auto fail = [](const Status& status) {
    std::cerr << "gpulayer-worker: " << status.message() << "\n";
    return kFailed;
  };
  const Result<std::string> data_dir = DataDir(flags->data_dir);
  if (!data_dir.ok()) return fail(data_dir.status());
  if (const Status closed = CloseToWriters(*data_dir).Prefixed("data directory"); !closed.ok()) {
    return fail(closed);
  }
  Result<WorkerOptions> options = Options(*flags, *data_dir);
  if (!options.ok()) return fail(options.status());
  if (flags->print_resources) return PrintResources(*options);

  if (const Status enough = CheckAccountLimits(kDaemonAddressBytes, kDaemonFiles); !enough.ok()) {
    return fail(enough);
  }
  std::string log_file;
  if (!flags->foreground) {
    const std::string log_dir = JoinPath(*data_dir, "log");
    if (const Status made = MakePrivateDir(log_dir); !made.ok()) return fail(made);
    log_file = JoinPath(log_dir, "worker.log");
  }
  if (const Status opened = OpenLog("gpulayer-worker", log_file, LogLevel::kInfo); !opened.ok()) {
    return fail(opened);
  }
  worker::LogGrpcLines();
  return Serve(*std::move(options));
}

}  // namespace
}  // namespace gpulayer

int main(int argc, char** argv) {
  return gpulayer::Main(std::vector<std::string>(argv + 1, argv + argc));
}
