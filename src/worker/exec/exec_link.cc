#include "worker/exec/exec_link.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "base/daemon.h"

namespace gpulayer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

int MillisUntil(steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

// The data directory's path may be longer than a socket address takes, so it is reached through a
// descriptor of its folder.
Result<UniqueFd> ConnectSocket(const std::string& data_dir) {
  const std::string folder = JoinPath(data_dir, exec_wire::kExecFolder);
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd dir, OpenFile(folder, O_PATH | O_DIRECTORY));
  const std::string path =
      "/proc/self/fd/" + std::to_string(dir.get()) + "/" + exec_wire::kSocketName;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus("connect to gpulayer-exec", errno);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Unavailable("connect to gpulayer-exec in " + folder + ": " + std::strerror(errno));
  }
  return fd;
}

struct SpawnActions {
  SpawnActions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

// The exit code of the process that was started, which ends as soon as its child listens.
Result<int> AwaitExit(pid_t pid, steady_clock::time_point deadline) {
  for (;;) {
    int status = 0;
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (done < 0 && errno != EINTR) return ErrnoStatus("wait for gpulayer-exec", errno);
    if (steady_clock::now() >= deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return Unavailable("start gpulayer-exec: not ready in time");
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace

Result<UniqueFd> ConnectExec(const std::string& data_dir, Duration patience, std::string* knows) {
  const auto deadline = steady_clock::now() + patience;
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, ConnectSocket(data_dir));
  exec_wire::Message hello;
  hello.type = exec_wire::Type::kHello;
  hello.value = exec_wire::kVersion;
  const std::string packet = exec_wire::Pack(hello);
  if (send(fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) {
    return Unavailable(std::string("greet gpulayer-exec: ") + std::strerror(errno));
  }
  pollfd wait = {fd.get(), POLLIN, 0};
  while (poll(&wait, 1, MillisUntil(deadline)) < 0 && errno == EINTR) {
  }
  std::string answer(exec_wire::kMaxPacket, '\0');
  const ssize_t n = recv(fd.get(), answer.data(), answer.size(), 0);
  if (n < 0 && errno == EAGAIN) return Unavailable("greet gpulayer-exec: no answer in time");
  exec_wire::Message m;
  if (n <= 0 || !exec_wire::Unpack({answer.data(), static_cast<std::size_t>(n)}, m)) {
    return Unavailable("greet gpulayer-exec: it closed the connection");
  }
  if (m.type != exec_wire::Type::kWelcome) {
    return FailedPrecondition(
        "greet gpulayer-exec: it speaks another version of the protocol. Let its jobs end and stop "
        "it, or use the version that started it.");
  }
  if (knows != nullptr) *knows = std::move(m.payload);
  return fd;
}

Status SpawnExec(const std::string& program, const std::string& data_dir, const UniqueFd& life,
                 Duration patience) {
  const std::string folder = JoinPath(data_dir, exec_wire::kExecFolder);
  GPULAYER_RETURN_IF_ERROR(MakeDirs(folder));
  const std::string log = JoinPath(folder, exec_wire::kDaemonLogName);
  SpawnActions actions;
  if (life.valid()) {
    posix_spawn_file_actions_adddup2(&actions.files, life.get(), 0);
  } else {
    posix_spawn_file_actions_addopen(&actions.files, 0, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_addopen(&actions.files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions.files, 1, 2);
  // A session of its own: Ctrl-C and hang-ups of the worker's terminal are none of its business.
  posix_spawnattr_setflags(&actions.attributes, POSIX_SPAWN_SETSID);

  std::vector<std::string> args = {program, "--data-dir", data_dir, "--files",
                                   std::to_string(StartedFileLimit())};
  if (life.valid()) args.emplace_back("--die-with-stdin");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  // No environment: nothing of it is meant for it or for the jobs, which bring their own.
  char* envp[] = {nullptr};
  pid_t pid = 0;
  const auto deadline = steady_clock::now() + patience;
  const int error =
      posix_spawn(&pid, program.c_str(), &actions.files, &actions.attributes, argv.data(), envp);
  if (error != 0) return Unavailable("start " + program + ": " + std::strerror(error));
  GPULAYER_ASSIGN_OR_RETURN(const int code, AwaitExit(pid, deadline));
  if (code == exec_wire::kExitReady) return OkStatus();
  if (code == exec_wire::kExitAlreadyRunning) {
    return AlreadyExists("start gpulayer-exec: one runs in " + data_dir + " already");
  }
  return Unavailable("start " + program + ": it ended with code " + std::to_string(code) +
                     ". See " + log + ".");
}

Result<std::string> ExecBesideUs() {
  std::string path(PATH_MAX, '\0');
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  if (n <= 0) return ErrnoStatus("find gpulayer-exec", errno);
  path.resize(static_cast<std::size_t>(n));
  return JoinPath(DirName(path), "gpulayer-exec");
}

}  // namespace gpulayer
