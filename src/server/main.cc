// gpulayer-server: started by `gpulayer up`, by a service unit, or with --ephemeral by `gpulayer
// run`.

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/account_limits.h"
#include "base/daemon.h"
#include "base/fault_point.h"
#include "base/fs.h"
#include "base/heap.h"
#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "server/server.h"
#include "wire/version.h"
#include "worker/session/grpc_log.h"
#include "worker/worker.h"

namespace gpulayer {
namespace {

constexpr char kUsage[] =
    "Usage: gpulayer-server [--data-dir D] [--listen HOST:PORT] [--foreground]\n"
    "       gpulayer-server --ephemeral\n"
    "\n"
    "The server of one data directory. People start it with `gpulayer up`.\n"
    "  --data-dir D        default: GPULAYER_DATA_DIR; as root /var/lib/gpulayer, else\n"
    "                      $XDG_STATE_HOME/gpulayer\n"
    "  --listen HOST:PORT  TLS listener for other machines, like 0.0.0.0:7461; without it only\n"
    "                      D/server.sock\n"
    "  --foreground        log to standard error instead of D/log/server.log\n"
    "  --started-under FD  a descriptor of `gpulayer up`, closed once the directory is locked\n"
    "  --ephemeral         private server and worker in a folder of its own; prints one line of\n"
    "                      JSON with its socket when ready; ends when standard input does\n"
    "  --version\n";

constexpr std::chrono::seconds kWorkerPatience{10};  // usually a few milliseconds

struct Flags {
  std::string data_dir;
  std::string listen;
  std::string started_under;
  bool foreground = false;
  bool ephemeral = false;
  bool version = false;
  bool help = false;
};

Result<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    std::optional<std::string_view> value;
    if (const std::size_t equals = arg.find('='); equals != std::string_view::npos) {
      value = arg.substr(equals + 1);
      arg = arg.substr(0, equals);
    }
    const auto text = [&](std::string& out) -> Status {
      if (!value && i + 1 < argc) value = argv[++i];
      if (!value || value->empty())
        return InvalidArgument(std::string(arg) + ": a value is needed");
      out = *value;
      return OkStatus();
    };
    const auto set = [&](bool& out) -> Status {
      if (value) return InvalidArgument(std::string(arg) + ": takes no value");
      out = true;
      return OkStatus();
    };
    Status parsed;
    if (arg == "--data-dir") {
      parsed = text(flags.data_dir);
    } else if (arg == "--listen") {
      parsed = text(flags.listen);
    } else if (arg == "--started-under") {
      parsed = text(flags.started_under);
    } else if (arg == "--foreground") {
      parsed = set(flags.foreground);
    } else if (arg == "--ephemeral") {
      parsed = set(flags.ephemeral);
    } else if (arg == "--version") {
      parsed = set(flags.version);
    } else if (arg == "--help") {
      parsed = set(flags.help);
    } else {
      parsed = InvalidArgument(std::string(arg) + ": not an option. See --help.");
    }
    if (!parsed.ok()) return parsed;
  }
  if (flags.ephemeral && (!flags.data_dir.empty() || !flags.listen.empty())) {
    return InvalidArgument("--ephemeral: goes with neither --data-dir nor --listen");
  }
  return flags;
}

int Fail(const Status& status) {
  std::fprintf(stderr, "gpulayer-server: %s\n", status.message().c_str());
  return 1;
}

// SIGTERM and SIGINT as something to wait for. REQUIRES: called before any thread is started.
Result<UniqueFd> StopSignals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file too large is an error of write()
  signal(SIGHUP, SIG_IGN);   // the terminal that started it may close
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  UniqueFd fd(signalfd(-1, &stop, SFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("signalfd", errno);
  return fd;
}

// Until a stop signal, or, if `client` is a descriptor, its end.
void WaitForStop(const UniqueFd& signals, int client) {
  pollfd fds[2] = {{signals.get(), POLLIN, 0}, {client, POLLIN, 0}};
  for (;;) {
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) {
      char ignored[256];
      const Result<std::size_t> n = ReadSome(client, ignored, sizeof ignored);
      if (!n.ok() || *n == 0) return;
    }
  }
}

int Serve(const Flags& flags, const UniqueFd& signals) {
  ServerOptions options;
  const Result<std::string> dir = DataDir(flags.data_dir);
  if (!dir.ok()) return Fail(dir.status());
  options.data_dir = *dir;
  options.listen = flags.listen;
  options.on_locked = [fd = flags.started_under] { LeaveStarter(fd); };
  std::string log_file;
  if (!flags.foreground) {
    const std::string log_dir = JoinPath(options.data_dir, "log");
    Status made = CloseToWriters(options.data_dir);
    if (made.ok()) made = MakePrivateDir(log_dir);
    if (!made.ok()) {
      return Fail(
          {made.code(), "data directory: " + made.message() +
                            ". Choose another with --data-dir, or let this account write there."});
    }
    log_file = JoinPath(log_dir, "server.log");
  }
  if (const Status opened = OpenLog("server", log_file, LogLevel::kInfo); !opened.ok())
    return Fail(opened);
  worker::LogGrpcLines();
  Result<std::unique_ptr<Server>> server = Server::Start(std::move(options));
  if (!server.ok()) {
    LogError("start: " + server.status().ToString());
    return Fail(server.status());
  }
  WaitForStop(signals, -1);
  LogInfo("stopping");
  (*server)->Stop();
  LogInfo("stopped");
  return 0;
}

// Or a submit would find no worker, or one that is not known yet.
Status WaitUntilConnected(const Worker& worker) {
  const auto deadline = std::chrono::steady_clock::now() + kWorkerPatience;
  while (!worker.connected()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return DeadlineExceeded("the private worker did not reach its server in time. Try again.");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return OkStatus();
}

// Server and worker for one client, until its end of standard input is closed. The worker ends
// first: its jobs go.
Status RunEphemeral(const std::string& dir, const UniqueFd& signals) {
  ServerOptions options;
  options.data_dir = dir;
  options.durable = false;
  GPULAYER_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                            Server::Start(std::move(options)));
  WorkerOptions worker_options;
  worker_options.server = "unix:" + server->socket_path();
  worker_options.data_dir = JoinPath(dir, "worker");
  worker_options.ephemeral = true;
  // Beside the folder that goes with us.
  worker_options.kept_dir = JoinPath(DirName(dir), "gpulayer-kept-" + std::to_string(geteuid()));
  GPULAYER_ASSIGN_OR_RETURN(const std::unique_ptr<Worker> worker,
                            Worker::Start(std::move(worker_options)));
  GPULAYER_RETURN_IF_ERROR(WaitUntilConnected(*worker));
  const nlohmann::json ready = {
      {"socket", server->socket_path()}, {"pid", getpid()}, {"data_dir", dir}};
  const std::string line =
      ready.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  GPULAYER_RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, line));
  WaitForStop(signals, STDIN_FILENO);
  worker->Stop();
  server->Stop();
  return OkStatus();
}

// Whoever runs a job here has set TMPDIR, if anything, and no data directory.
Result<std::string> MakeEphemeralDir() {
  const std::string given = TempRoot();
  constexpr char kAdvice[] = ". Set TMPDIR to a folder that is there and may be written in.";
  const std::string what = "TMPDIR " + Printable(given) + ": ";
  if (Printable(given) != given) {
    return InvalidArgument(what + "its name is not printable UTF-8" + kAdvice);
  }
  const Result<std::string> root = Absolute(given);
  if (!root.ok()) return Status(root.status().code(), what + root.status().message() + kAdvice);
  // By our number: whoever started us finds it if we end before we have said its name.
  const Result<std::string> dir =
      MakeTempDir(*root, "gpulayer-local-" + std::to_string(getpid()) + "-");
  if (!dir.ok()) return Status(dir.status().code(), what + dir.status().message() + kAdvice);
  return dir;
}

int ServeEphemeral(const UniqueFd& signals) {
  if (const Status opened = OpenLog("server", "", LogLevel::kWarning); !opened.ok()) {
    return Fail(opened);
  }
  worker::LogGrpcLines();
  const Result<std::string> dir = MakeEphemeralDir();
  if (!dir.ok()) return Fail(dir.status());
  const Status ran = RunEphemeral(*dir, signals);
  const Status removed = RemoveTree(*dir);
  if (!ran.ok()) return Fail(ran);
  return removed.ok() ? 0 : Fail(removed);
}

int Main(int argc, char** argv) {
  SayWhatEndsUs("gpulayer-server");
  KeepFreedBuffers();
  ArmFaultPointsFromEnvironment();
  RaiseFileLimit();
  LeaveNoCore();
  Result<Flags> flags = ParseFlags(argc, argv);
  if (!flags.ok()) {
    std::fprintf(stderr, "gpulayer-server: %s\n", flags.status().message().c_str());
    return 2;
  }
  if (flags->help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (flags->version) {
    std::printf("gpulayer-server %s (protocol %u.%u)\n", wire::kProgramVersion,
                wire::kProtocolMajor, wire::kProtocolMinor);
    return 0;
  }
  if (const Status enough = CheckAccountLimits(kDaemonAddressBytes, kDaemonFiles); !enough.ok()) {
    return Fail(enough);
  }
  Result<UniqueFd> signals = StopSignals();
  if (!signals.ok()) return Fail(signals.status());
  return flags->ephemeral ? ServeEphemeral(*signals) : Serve(*flags, *signals);
}

}  // namespace
}  // namespace gpulayer

int main(int argc, char** argv) { return gpulayer::Main(argc, argv); }
