#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <string_view>
#include <vector>

#include "worker/exec/launch.h"

namespace gpulayer {
namespace {

constexpr char kShell[] = "/bin/sh";
constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";
constexpr int kBusyTries = 20;
constexpr timespec kBusyPause = {0, 10'000'000};

// What the child needs, made before vfork(): after it nothing may be allocated, since parent and
// child share their memory. The child leaves its failure here for the same reason.
struct ChildPlan {
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  char** shell_argv = nullptr;  // {"/bin/sh", <file>, argv[1], ...}; [1] is filled in by the child
  const char* cwd = nullptr;
  const char* search_path = nullptr;
  LaunchFds fds;
  const char* oom_score_adj = nullptr;
  std::size_t oom_score_adj_size = 0;
  pid_t parent = 0;
  volatile StartStep failed_step = StartStep::kNone;
  volatile int error = 0;
  volatile bool found = false;
};

// A file that the kernel does not know is a shell script only if it looks like text.
bool LooksLikeText(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char head[128];
  const ssize_t n = read(fd, head, sizeof(head));
  close(fd);
  if (n < 0) return false;
  for (ssize_t i = 0; i < n && head[i] != '\n'; ++i) {
    if (head[i] == '\0') return false;
  }
  return n < 4 || std::memcmp(head,
                              "\x7f"
                              "ELF",
                              4) != 0;
}

// Returns only if it failed, with errno.
int ExecFile(ChildPlan& plan, const char* path) {
  for (int tries = 0;; ++tries) {
    execve(path, plan.argv, plan.envp);
    if (errno != ETXTBSY || tries == kBusyTries) break;
    nanosleep(&kBusyPause, nullptr);
  }
  if (errno != ENOEXEC || !LooksLikeText(path)) return errno;
  plan.shell_argv[1] = const_cast<char*>(path);
  execve(kShell, plan.shell_argv, plan.envp);
  return errno;
}

bool IsThere(const char* path, bool any_type) {
  struct stat st{};
  return stat(path, &st) == 0 && (any_type || S_ISREG(st.st_mode));
}

void ExecProgram(ChildPlan& plan) {
  const char* name = plan.argv[0];
  if (std::strchr(name, '/') != nullptr || *name == '\0') {
    plan.error = ExecFile(plan, name);
    plan.found = IsThere(name, true);
    return;
  }
  plan.error = ENOENT;
  char file[PATH_MAX];
  const std::size_t name_size = std::strlen(name);
  for (const char* at = plan.search_path;;) {
    const char* end = std::strchr(at, ':');
    const std::size_t size = end != nullptr ? static_cast<std::size_t>(end - at) : std::strlen(at);
    if (size + name_size + 2 <= sizeof(file)) {
      std::memcpy(file, at, size);
      std::size_t length = size;
      if (length > 0) file[length++] = '/';  // an empty element is the working directory
      std::memcpy(file + length, name, name_size + 1);
      const int error = ExecFile(plan, file);
      // A folder, or a file in a folder that may not be searched, is passed over like a missing
      // one.
      if (IsThere(file, false)) {
        plan.error = error;
        plan.found = true;
        if (error != EACCES) return;
      }
    }
    if (end == nullptr) return;
    at = end + 1;
  }
}

void WriteOomScore(const ChildPlan& plan) {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  // Where it is refused the program is merely no likelier victim than others.
  [[maybe_unused]] const ssize_t n = write(fd, plan.oom_score_adj, plan.oom_score_adj_size);
  close(fd);
}

// Runs between vfork() and execve(): system calls and the memory of `plan` only.
[[noreturn]] void RunChild(ChildPlan& plan) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != plan.parent) _exit(127);
  setsid();
  if (dup2(plan.fds.in, 0) < 0 || dup2(plan.fds.out, 1) < 0 || dup2(plan.fds.err, 2) < 0 ||
      (plan.fds.terminal && ioctl(0, TIOCSCTTY, 0) != 0)) {
    plan.failed_step = StartStep::kSpawn;
    plan.error = errno;
    _exit(127);
  }
  if (plan.fds.cgroup >= 0) {
    // Where it is refused its memory has no limit, as on most machines.
    [[maybe_unused]] const ssize_t n = write(plan.fds.cgroup, "0", 1);
  }
  // Everything of ours is close-on-exec; this is for what the kernel or a sanitizer has open.
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  umask(022);
  rlimit core{};
  if (getrlimit(RLIMIT_CORE, &core) == 0) {
    core.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &core);
  }
  WriteOomScore(plan);
  if (chdir(plan.cwd) != 0) {
    plan.failed_step = StartStep::kCwd;
    plan.error = errno;
    _exit(127);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ExecProgram(plan);
  plan.failed_step = StartStep::kExec;
  _exit(127);
}

// A function of its own: nothing of its frame is used after the child has run in it.
[[gnu::noinline]] pid_t ForkChild(ChildPlan& plan) {
  const pid_t pid = vfork();
  if (pid == 0) RunChild(plan);
  return pid;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

const char* SearchPath(const AttemptSpec& spec) {
  for (const std::string& entry : spec.env) {
    if (entry.compare(0, 5, "PATH=") == 0) return entry.c_str() + 5;
  }
  return kDefaultPath;
}

int ExitCodeOf(int error, bool found) {
  switch (error) {
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case EIO: return 0;
    case ENOENT:
    case ENOTDIR: return found ? 126 : 127;
    default: return 126;
  }
}

}  // namespace

LaunchResult Launch(const AttemptSpec& spec, const LaunchFds& fds,
                    const std::string& oom_score_adj) {
  const std::vector<char*> argv = Pointers(spec.argv);
  const std::vector<char*> envp = Pointers(spec.env);
  std::vector<char*> shell_argv = {const_cast<char*>(kShell), nullptr};
  shell_argv.insert(shell_argv.end(), argv.begin() + 1, argv.end());

  ChildPlan plan;
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.shell_argv = shell_argv.data();
  plan.cwd = spec.cwd.c_str();
  plan.search_path = SearchPath(spec);
  plan.fds = fds;
  plan.oom_score_adj = oom_score_adj.data();
  plan.oom_score_adj_size = oom_score_adj.size();
  plan.parent = getpid();

  LaunchResult result;
  const pid_t pid = ForkChild(plan);
  if (pid < 0) {
    result.failed_step = StartStep::kSpawn;
    result.error = errno;
    return result;
  }
  if (plan.failed_step == StartStep::kNone) {
    result.pid = pid;
    return result;
  }
  result.failed_step = plan.failed_step;
  result.error = plan.error;
  if (result.failed_step == StartStep::kExec) {
    result.exit_code = ExitCodeOf(plan.error, plan.found);
  }
  // It is about to end, and as long as it has not its cgroup cannot be removed.
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return result;
}

}  // namespace gpulayer
