#include "client/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/text.h"

extern char** environ;

namespace gpulayer::client {
namespace {

struct Actions {
  Actions() { ::posix_spawn_file_actions_init(&value); }
  ~Actions() { ::posix_spawn_file_actions_destroy(&value); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
  posix_spawn_file_actions_t value;
};
struct Attributes {
  Attributes() { ::posix_spawnattr_init(&value); }
  ~Attributes() { ::posix_spawnattr_destroy(&value); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  posix_spawnattr_t value;
};

struct Stat {
  char state = 0;
  std::string started;
};

// Fields 3 and 22 of /proc/PID/stat. The name before them may hold anything, `)` and spaces too.
bool ReadStat(pid_t pid, Stat* out) {
  const Result<std::string> text = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  if (!text.ok()) return false;
  const std::size_t end = text->rfind(')');
  if (end == std::string::npos || end + 2 >= text->size()) return false;
  const std::vector<std::string> fields = Split(text->substr(end + 2), ' ');
  if (fields.size() < 20 || fields[0].empty()) return false;
  out->state = fields[0][0];
  out->started = fields[19];
  return true;
}

}  // namespace

Result<pid_t> Spawn(const SpawnOptions& options) {
  Actions actions;
  Attributes attributes;
  const auto open = [&](int fd, const char* path, int flags) {
    ::posix_spawn_file_actions_addopen(&actions.value, fd, path, flags, 0600);
  };
  if (options.stdin_fd >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions.value, options.stdin_fd, STDIN_FILENO);
  } else {
    open(STDIN_FILENO, "/dev/null", O_RDONLY);
  }
  const std::string log = options.log_file.empty() ? "/dev/null" : options.log_file;
  for (const auto& [own, given] :
       {std::pair(STDOUT_FILENO, options.stdout_fd), std::pair(STDERR_FILENO, options.stderr_fd)}) {
    if (given >= 0) {
      ::posix_spawn_file_actions_adddup2(&actions.value, given, own);
    } else {
      open(own, log.c_str(), O_WRONLY | O_CREAT | O_APPEND);
    }
  }
  if (options.keep_fd >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions.value, options.keep_fd, kKeptFd);
  }
  ::posix_spawn_file_actions_addclosefrom_np(&actions.value,
                                             options.keep_fd >= 0 ? kKeptFd + 1 : kKeptFd);
  if (!options.directory.empty()) {
    ::posix_spawn_file_actions_addchdir_np(&actions.value, options.directory.c_str());
  }
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes.value, &none);
  ::posix_spawnattr_setsigdefault(&attributes.value, &all);
  int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (options.new_session) flags |= POSIX_SPAWN_SETSID;
  ::posix_spawnattr_setflags(&attributes.value, static_cast<short>(flags));

  std::vector<char*> argv;
  for (const std::string& arg : options.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (char** e = environ; *e != nullptr; ++e) {
    // The second keeps a terminal clean, and would keep things out of a log.
    if (std::strncmp(*e, "GPULAYER_TOKEN=", 15) == 0) continue;
    if (std::strcmp(*e, "GRPC_VERBOSITY=NONE") != 0) env.push_back(*e);
  }
  env.push_back(nullptr);

  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, argv[0], &actions.value, &attributes.value, argv.data(), env.data());
  if (error != 0) return ErrnoStatus("start " + options.argv[0], error);
  return pid;
}

Result<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus("make a pipe", errno);
  Pipe out;
  out.read_end = UniqueFd(fds[0]);
  out.write_end = UniqueFd(fds[1]);
  return out;
}

ProcessId Identify(pid_t pid) {
  Stat stat;
  return {pid, ReadStat(pid, &stat) ? stat.started : ""};
}

bool IsAlive(const ProcessId& process) {
  Stat stat;
  if (process.pid <= 0 || !ReadStat(process.pid, &stat)) return false;
  if (stat.state == 'Z' || stat.state == 'X') return false;
  return process.started.empty() || stat.started == process.started;
}

}  // namespace gpulayer::client
