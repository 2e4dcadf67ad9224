// gpulayer-exec: parent of all jobs of one worker. Started by the worker, not by people.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "worker/exec/protocol.h"
#include "worker/exec/supervisor.h"

namespace {

using gpulayer::Supervisor;
using gpulayer::SupervisorFds;
namespace wire = gpulayer::exec_wire;

int Fail(const char* what) {
  std::fprintf(stderr, "gpulayer-exec: %s: %s\n", what, std::strerror(errno));
  return wire::kExitFailed;
}

// A known state, whatever we were started with: no descriptor but 0 to 2, default signals, all
// blocked. Monitors and programs inherit from here.
void ResetProcess() {
  syscall(SYS_close_range, 3U, ~0U, 0U);
  // By system call, for the C library keeps its two (32 and 33) from us and they may be inherited
  // as ignored. A zeroed action is SIG_DFL; those that cannot be set are at it.
  const char action[64] = {};
  for (int s = 1; s < NSIG; ++s) syscall(SYS_rt_sigaction, s, action, nullptr, (NSIG - 1) / 8);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  umask(077);
}

// Monitors hold their attempts' secrets. As LeaveNoCore() of base/daemon.h.
void LimitCore() {
  rlimit limit{};
  if (getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = 0;
  setrlimit(RLIMIT_CORE, &limit);
}

// The worker may have raised it for itself.
void LimitFiles(unsigned long long soft) {
  rlimit limit{};
  if (soft == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || soft > limit.rlim_max) return;
  limit.rlim_cur = soft;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Relative to the data directory, which keeps the path under the 107 bytes that a socket may have.
int Listen() {
  const std::string path = std::string(wire::kExecFolder) + "/" + wire::kSocketName;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlink(path.c_str());  // of a dead one: we hold the lock
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, 16) != 0) {
    return -1;
  }
  return fd;
}

bool MakeFolder(const char* path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }

int Run(const char* data_dir, bool die_with_stdin) {
  ResetProcess();
  LimitCore();
  if (chdir(data_dir) != 0) return Fail(data_dir);
  if (!MakeFolder("exec") || !MakeFolder(wire::kExecFolder)) return Fail("make folder exec/v1");
  const std::string lock_path = std::string(wire::kExecFolder) + "/" + wire::kLockName;
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return Fail("open lock");
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? wire::kExitAlreadyRunning : Fail("lock");
  }
  SupervisorFds fds;
  if (die_with_stdin) {
    fds.life = fcntl(0, F_DUPFD_CLOEXEC, 3);
    if (fds.life < 0) return Fail("standard input");
  }
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, 0) < 0) return Fail("open /dev/null");
  if (null > 2) close(null);
  fds.listener = Listen();
  if (fds.listener < 0) return Fail("listen");

  // Whoever started us waits for the first process only: now it can connect. The lock and the
  // socket are the second one's.
  const pid_t pid = fork();
  if (pid < 0) return Fail("fork");
  if (pid > 0) _exit(wire::kExitReady);
  return Supervisor(fds).Run();
}

}  // namespace

int main(int argc, char** argv) {
  const char* data_dir = nullptr;
  bool die_with_stdin = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--data-dir") == 0 && i + 1 < argc) {
      data_dir = argv[++i];
    } else if (std::strcmp(argv[i], "--files") == 0 && i + 1 < argc) {
      LimitFiles(std::strtoull(argv[++i], nullptr, 10));
    } else if (std::strcmp(argv[i], "--die-with-stdin") == 0) {
      die_with_stdin = true;
    } else {
      data_dir = nullptr;
      break;
    }
  }
  if (data_dir == nullptr) {
    std::fprintf(stderr,
                 "usage: gpulayer-exec --data-dir DIR [--files N] [--die-with-stdin]\n"
                 "The keeper of a worker's jobs; gpulayer-worker starts it.\n");
    return wire::kExitUsage;
  }
  return Run(data_dir, die_with_stdin);
}
