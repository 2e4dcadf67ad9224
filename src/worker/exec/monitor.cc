#include "worker/exec/monitor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <set>

#include "worker/exec/join.h"
#include "worker/exec/join_socket.h"
#include "worker/exec/launch.h"
#include "worker/exec/log_sink.h"
#include "worker/exec/memory_cgroup.h"
#include "worker/exec/process_tree.h"
#include "worker/exec/spec_input.h"

namespace gpulayer {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kNamedSwept = 16;

// Between two passes of SIGKILL over what is left. The first ones follow quickly, because a pass
// that met a process in the middle of a fork leaves its child for the next one.
constexpr milliseconds kFirstKillPause{1};
constexpr milliseconds kLastKillPause{200};
// After this long with only other users' processes left there is nothing more that we can do.
constexpr auto kUnreachablePatience = std::chrono::seconds(2);
// For the keepers of commands that joined, once these are killed.
constexpr auto kKeeperPatience = std::chrono::seconds(1);
// For the end of output once the tree is gone: somebody outside the tree may hold our pipe.
constexpr auto kDrainPatience = std::chrono::seconds(1);

// CLOCK_MONOTONIC: stands still while the machine sleeps, as the program does.
Duration Monotonic() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

void WriteReport(int fd, ReportHeader::Kind kind, const std::string& payload) {
  ReportHeader header;
  header.kind = kind;
  header.payload_size = static_cast<std::uint32_t>(payload.size());
  header.monitor = getpid();
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += payload;
  // Fails only when gpulayer-exec is gone; the next one reads the files.
  while (write(fd, bytes.data(), bytes.size()) < 0 && errno == EINTR) {
  }
}

// What an earlier attempt left behind the new bytes of a file that serves again.
bool CutTo(int fd, off_t size) {
  struct stat st{};
  return fstat(fd, &st) == 0 && (st.st_size <= size || ftruncate(fd, size) == 0);
}

class Monitor {
 public:
  explicit Monitor(const MonitorPlan& plan) : plan_(plan) {
    status_.attempt = plan.attempt_dir.substr(plan.attempt_dir.rfind('/') + 1);
  }
  [[noreturn]] void Run();

 private:
  // What it does with its program.
  enum class Phase {
    kRunning,   // nothing
    kStopping,  // told to end; waits for the whole tree until the grace is over
    kKilling,   // SIGKILL for all that is left, until nothing is
  };

  void Begin();  // returns once the program runs
  bool MayBegin() const;
  int BeginLog();
  int MakeLog();
  int MakeCgroup();
  [[noreturn]] void Fail(StartStep step, int error, int exit_code = 0);
  void Loop();
  void TakeSignals();
  void TakeOrder(StopOrder order, Duration grace);
  void Reap();
  void StopTree();
  void KillTree();
  void TakeJoin(std::int32_t number);
  bool OnlyJoinsAreLeft() const;
  void CheckClock();
  int Timeout() const;  // for poll()
  void CopyOutput(const pollfd& out, const pollfd& err);
  void Drain();
  [[noreturn]] void Finish();

  const MonitorPlan& plan_;
  int dir_fd_ = -1;
  bool begun_ = false;  // the log is ours, and with it every other name in the folder
  int status_fd_ = -1;
  int signal_fd_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  LogSink* log_ = nullptr;
  std::optional<MemoryCgroup> cgroup_;
  AttemptSpec spec_;
  AttemptStatus status_;

  pid_t main_ = -1;
  bool main_over_ = false;
  bool tree_empty_ = false;
  Phase phase_ = Phase::kRunning;
  Duration limit_at_ = Duration::max();  // time limit
  Duration grace_at_ = Duration::max();  // end of the grace
  Duration kill_at_ = Duration::max();   // next pass of SIGKILL
  Duration kill_pause_ = kFirstKillPause;
  Duration helpless_since_ = Duration::max();
  Duration keepers_until_ = Duration::max();
  std::set<pid_t> swept_;
  std::set<pid_t> joins_;  // keepers of commands that joined (join.h), not reaped yet
};

void Monitor::Fail(StartStep step, int error, int exit_code) {
  status_.failed_step = step;
  status_.error = error;
  if (exit_code != 0) status_.exit_code = exit_code;
  Finish();
}

// Whether the attempt is still this one's to begin. Where it was not for a while, gpulayer-exec may
// be dead, the next one may have said that nothing will run, and the folder may serve another
// attempt by now. REQUIRES: a lock is held on the file that is about to become the log: who takes
// the folder for another attempt looks for that (AttemptStore::Create).
bool Monitor::MayBegin() const {
  struct stat mine{};
  struct stat there{};
  return getppid() == plan_.exec_pid && fstat(dir_fd_, &mine) == 0 &&
         stat(plan_.attempt_dir.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

int Monitor::MakeLog() {
  const std::string temporary = std::string(kLogFile) + "." + std::to_string(getpid());
  const int fd = openat(dir_fd_, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) Fail(StartStep::kSpawn, errno);
  if (!MayBegin()) {
    unlinkat(dir_fd_, temporary.c_str(), 0);
    Fail(StartStep::kSpawn, ESRCH);
  }
  if (renameat2(dir_fd_, temporary.c_str(), dir_fd_, kLogFile, RENAME_NOREPLACE) != 0) {
    int error = errno;
    // Some file systems of the network lack that call and have this one.
    if (error == EINVAL && linkat(dir_fd_, temporary.c_str(), dir_fd_, kLogFile, 0) == 0) error = 0;
    if (error == EINVAL) error = errno;
    unlinkat(dir_fd_, temporary.c_str(), 0);
    if (error == EEXIST) _exit(1);  // never twice; gpulayer-exec looks who has it
    if (error != 0) Fail(StartStep::kSpawn, error);
  }
  return fd;
}

// The log file says that this attempt is begun, and a lock on it that its keeper lives: how another
// gpulayer-exec sees that it is not over. Both must appear at once, so it gets its name last.
int Monitor::BeginLog() {
  // The folder may hold a free file for it. Where that is still locked, the keeper of an earlier
  // attempt has reported and is about to leave.
  const std::string spare = std::string(kLogFile) + kFreeSuffix;
  int fd = openat(dir_fd_, spare.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  const bool ours = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && MayBegin() && CutTo(fd, 0) &&
                    renameat2(dir_fd_, spare.c_str(), dir_fd_, kLogFile, RENAME_NOREPLACE) == 0;
  if (!ours) {
    if (fd >= 0) close(fd);
    fd = MakeLog();
  }
  begun_ = true;
  // Only now: a successor of gpulayer-exec that saw no log has said that nothing will run.
  if (getppid() != plan_.exec_pid) Fail(StartStep::kSpawn, ESRCH);
  return fd;
}

// -1: there is no limit.
int Monitor::MakeCgroup() {
  if (spec_.memory_limit <= 0 || plan_.cgroup.empty()) return -1;
  // Whoever ends this attempt in our place is to find it.
  if (!WriteAttemptFile(dir_fd_, kCgroupFile, plan_.cgroup)) return -1;
  MemoryCgroup cgroup(plan_.cgroup, plan_.cgroup_unified);
  const int fd = cgroup.Make(spec_.memory_limit);
  if (fd >= 0) {
    cgroup_ = cgroup;
    status_.memory_limit = spec_.memory_limit;
  }
  return fd;
}

void Monitor::Begin() {
  // If gpulayer-exec dies so do its jobs: nobody would be there to stop them.
  if (!BecomeSubreaper() || !TieToParent(plan_.exec_pid, SIGTERM)) Fail(StartStep::kSpawn, ESRCH);
  dir_fd_ = open(plan_.attempt_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd_ < 0) Fail(StartStep::kSpec, errno);
  const int log_fd = BeginLog();
  log_ = new LogSink(log_fd, dir_fd_);
  // The room for the outcome is taken now: it must be stored even if the disk fills up.
  const std::string temporary = std::string(kStatusFile) + kFreeSuffix;
  status_fd_ =
      openat(dir_fd_, temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (status_fd_ < 0) Fail(StartStep::kSpawn, errno);
  if (fallocate(status_fd_, FALLOC_FL_KEEP_SIZE, 0, kMaxStatusBytes) != 0 && errno == ENOSPC) {
    Fail(StartStep::kSpawn, errno);
  }

  if (const int error = ReadSpecAt(dir_fd_, spec_); error != 0) Fail(StartStep::kSpec, error);
  log_->Limit(spec_.log_limit);
  // A program that asks for secrets is never started without them.
  if (const int error = AddSecrets(plan_.secrets_fd, spec_); error != 0) {
    Fail(StartStep::kSpawn, error);
  }

  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) Fail(StartStep::kSpawn, errno);
  out_fd_ = out[0];
  err_fd_ = err[0];
  fcntl(out_fd_, F_SETFL, O_NONBLOCK);
  fcntl(err_fd_, F_SETFL, O_NONBLOCK);
  const char* input = spec_.stdin_path.empty() ? "/dev/null" : spec_.stdin_path.c_str();
  const int in = open(input, O_RDONLY | O_CLOEXEC);
  if (in < 0) Fail(StartStep::kStdin, errno);
  sigset_t watched;
  sigemptyset(&watched);
  for (const int s : {SIGCHLD, SIGTERM, StopSignal(), ShutdownSignal(), JoinSignal()}) {
    sigaddset(&watched, s);
  }
  signal_fd_ = signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signal_fd_ < 0) Fail(StartStep::kSpawn, errno);

  const int cgroup = MakeCgroup();
  const LaunchResult launched = Launch(spec_, {in, out[1], err[1], cgroup}, plan_.oom_score_adj);
  const Duration now = Monotonic();
  WipeEnvironment(spec_);  // for as long as the program runs
  for (const int fd : {in, out[1], err[1]}) close(fd);
  if (cgroup >= 0) close(cgroup);
  if (launched.pid < 0) Fail(launched.failed_step, launched.error, launched.exit_code);
  main_ = launched.pid;
  status_.started = AttemptStarted{launched.pid, ReadClocks()};
  if (spec_.time_limit) limit_at_ = now + *spec_.time_limit;
  const std::string started = EncodeStarted(*status_.started);
  // Not essential: gpulayer-exec hears of it below, and the status repeats it.
  (void)WriteAttemptFile(dir_fd_, kStartedFile, started);
  WriteReport(plan_.report_fd, ReportHeader::Kind::kStarted, started);
}

// A program that was over before an order keeps its own outcome, so the dead are counted first.
void Monitor::TakeOrder(StopOrder order, Duration grace) {
  Reap();
  if (tree_empty_ || (main_over_ && phase_ == Phase::kRunning)) return;
  const Duration until = Monotonic() + grace;
  if (phase_ == Phase::kRunning) {
    status_.order = order;
    phase_ = Phase::kStopping;
    grace_at_ = until;
    if (grace > Duration::zero()) StopTree();
  } else {
    grace_at_ = std::min(grace_at_, until);
  }
}

// SIGTERM first to the group, in one go, then to each process that left it: those may have
// something to save as well. What is forked meanwhile has until the end of the grace. SIGCONT lets
// a stopped program hear it.
void Monitor::StopTree() {
  const std::vector<pid_t> tree = DescendantsOf(getpid());
  for (const int signal : {SIGTERM, SIGCONT}) {
    kill(-main_, signal);
    for (const pid_t pid : tree) {
      if (getpgid(pid) != main_) kill(pid, signal);
    }
  }
}

// A command that joined is none of the program's: it is not counted, and what becomes of it says
// nothing of the program. Its keeper goes last, so that nothing that it keeps comes to us and seems
// to be the program's; it leaves by itself when nothing is left to keep.
void Monitor::KillTree() {
  const Duration now = Monotonic();
  if (keepers_until_ == Duration::max()) keepers_until_ = now + kKeeperPatience;
  std::vector<pid_t> ours;
  std::vector<pid_t> theirs;
  if (joins_.empty()) {
    ours = DescendantsOf(getpid());
  } else {
    for (const pid_t child : ChildrenOf(getpid())) {
      const bool keeper = joins_.count(child) != 0;
      std::vector<pid_t>& tree = keeper ? theirs : ours;
      if (!keeper || now >= keepers_until_) {
        tree.push_back(child);
      } else {
        kill(child, SIGCONT);
      }
      for (const pid_t pid : DescendantsOf(child)) tree.push_back(pid);
    }
  }
  bool killed_any = false;
  std::int64_t refused = 0;
  ProcessInfo info;
  const auto killed = [&](pid_t pid) {
    if (!ReadProcessInfo(pid, info) || info.zombie) return false;
    if (kill(pid, SIGKILL) != 0) {
      if (errno == EPERM) ++refused;
      return false;
    }
    return killed_any = true;
  };
  for (const pid_t pid : ours) {
    if (!killed(pid)) continue;
    if (status_.order != StopOrder::kNone) status_.killed = true;
    if (pid == main_ || !swept_.insert(pid).second) continue;
    ++status_.swept;
    if (status_.swept_names.size() < kNamedSwept) {
      status_.swept_names.push_back(std::to_string(pid) + " " + info.name);
    }
  }
  for (const pid_t pid : theirs) killed(pid);
  if (refused == 0 || killed_any) {
    helpless_since_ = Duration::max();
  } else if (helpless_since_ == Duration::max()) {
    helpless_since_ = now;
  } else if (now - helpless_since_ > kUnreachablePatience && main_over_) {
    status_.unreachable = refused;
    tree_empty_ = true;
  }
  kill_at_ = now + kill_pause_;
  kill_pause_ = std::min<Duration>(kill_pause_ * 2, kLastKillPause);
}

void Monitor::TakeJoin(std::int32_t number) {
  Reap();
  pid_t pid = -1;
  if (!main_over_ && phase_ == Phase::kRunning) {
    JoinPlan plan;
    plan.dir_fd = dir_fd_;
    plan.secrets_fd = plan_.secrets_fd;
    plan.number = number;
    plan.monitor = getpid();
    plan.oom_score_adj = plan_.oom_score_adj;
    if (cgroup_) plan.cgroup = &*cgroup_;
    pid = fork();
    if (pid == 0) RunJoin(plan);
  }
  if (pid > 0) {
    joins_.insert(pid);
  } else {
    RefuseJoin(dir_fd_, number);
  }
}

// A shell that joined and does not care about SIGTERM must not take the rest of the grace.
bool Monitor::OnlyJoinsAreLeft() const {
  if (joins_.empty() || !main_over_) return false;
  const std::vector<pid_t> children = ChildrenOf(getpid());
  return std::all_of(children.begin(), children.end(),
                     [this](pid_t pid) { return joins_.count(pid) != 0; });
}

void Monitor::Reap() {
  for (;;) {
    int wait_status = 0;
    const pid_t pid = waitpid(-1, &wait_status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) return;
    if (pid < 0) {
      tree_empty_ = true;  // ECHILD: orphans come to us, so without children there are none
      return;
    }
    if (pid != main_) {
      joins_.erase(pid);
      continue;
    }
    main_over_ = true;
    status_.main_ended = ReadClocks();
    if (WIFSIGNALED(wait_status)) {
      status_.signal = WTERMSIG(wait_status);
    } else {
      status_.exit_code = WEXITSTATUS(wait_status);
    }
  }
}

void Monitor::TakeSignals() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;  // reaped below, and before each order
    if (signal == SIGTERM) {
      // From the kernel when gpulayer-exec is gone, else from somebody who shuts the machine down.
      const bool orphaned = getppid() != plan_.exec_pid;
      TakeOrder(StopOrder::kShutdown, orphaned ? Duration::zero() : spec_.grace);
    } else if (signal == JoinSignal()) {
      TakeJoin(info.ssi_int);
    } else {
      const StopOrder order = signal == StopSignal() ? StopOrder::kStop : StopOrder::kShutdown;
      TakeOrder(order, info.ssi_int == kOwnGrace ? spec_.grace : milliseconds(info.ssi_int));
    }
  }
  Reap();
  if (phase_ == Phase::kStopping && OnlyJoinsAreLeft()) grace_at_ = Duration::zero();
}

void Monitor::CheckClock() {
  if (tree_empty_) return;
  // What a program that ended by itself leaves behind gets no grace: it had its chance to wait.
  if (main_over_ && phase_ == Phase::kRunning) {
    phase_ = Phase::kKilling;
    kill_at_ = Duration::zero();
  }
  const Duration now = Monotonic();
  if (phase_ == Phase::kRunning && now >= limit_at_) {
    TakeOrder(StopOrder::kTimeLimit, spec_.grace);
  }
  if (phase_ == Phase::kStopping && now >= grace_at_) {
    phase_ = Phase::kKilling;
    kill_at_ = Duration::zero();
  }
  if (phase_ == Phase::kKilling && now >= kill_at_) KillTree();
}

int Monitor::Timeout() const {
  Duration next = Duration::max();
  if (phase_ == Phase::kRunning) next = limit_at_;
  if (phase_ == Phase::kStopping) next = grace_at_;
  if (phase_ == Phase::kKilling) next = kill_at_;
  if (next == Duration::max()) return -1;
  const Duration left = next - Monotonic();
  if (left <= Duration::zero()) return 0;
  // Rounded up, or the last millisecond would be spun through; at most a day, poll() takes an int.
  const auto ms = std::chrono::ceil<milliseconds>(left);
  return static_cast<int>(std::min<std::int64_t>(ms.count(), 86'400'000));
}

void Monitor::CopyOutput(const pollfd& out, const pollfd& err) {
  if (out.revents != 0 && log_->Copy(out_fd_, LogStream::kOut) == LogSink::Progress::kEnd) {
    close(out_fd_);
    out_fd_ = -1;
  }
  if (err.revents != 0 && log_->Copy(err_fd_, LogStream::kErr) == LogSink::Progress::kEnd) {
    close(err_fd_);
    err_fd_ = -1;
  }
}

void Monitor::Loop() {
  while (!tree_empty_) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
    poll(fds, 3, Timeout());  // a negative descriptor is passed over
    if (fds[0].revents != 0) TakeSignals();
    CopyOutput(fds[1], fds[2]);
    CheckClock();
  }
}

void Monitor::Drain() {
  // What stands in the pipes is taken, though a busy machine may have given us no turn for so long.
  constexpr int kLateTurns = 1024;
  int late_turns = 0;
  const Duration until = Monotonic() + kDrainPatience;
  while (out_fd_ >= 0 || err_fd_ >= 0) {
    const auto left = std::chrono::ceil<milliseconds>(until - Monotonic());
    const bool late = left <= milliseconds::zero();
    if (late && ++late_turns > kLateTurns) return;
    pollfd fds[] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
    if (poll(fds, 2, late ? 0 : static_cast<int>(left.count())) == 0 && late) return;
    CopyOutput(fds[0], fds[1]);
  }
}

void Monitor::Finish() {
  if (log_ != nullptr) {
    log_->Finish();
    status_.log_bytes = log_->size();
    status_.log_dropped_bytes = log_->dropped();
  }
  if (cgroup_) {
    status_.oom_kills = cgroup_->OomKills();
    cgroup_->Remove();
  }
  status_.ended = ReadClocks();
  const std::string bytes = EncodeStatus(status_);
  if (status_fd_ >= 0) {
    const std::string temporary = std::string(kStatusFile) + kFreeSuffix;
    const auto size = static_cast<ssize_t>(bytes.size());
    if (pwrite(status_fd_, bytes.data(), bytes.size(), 0) == size && CutTo(status_fd_, size)) {
      renameat(dir_fd_, temporary.c_str(), dir_fd_, kStatusFile);
    }
  } else if (begun_) {
    (void)WriteAttemptFile(dir_fd_, kStatusFile, bytes);
  }
  WriteReport(plan_.report_fd, ReportHeader::Kind::kEnded, bytes);
  _exit(0);
}

void Monitor::Run() {
  Begin();
  Loop();
  Drain();
  Finish();
}

}  // namespace

Instant ReadClocks() {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  const auto wall = std::chrono::system_clock::now();
  return {TimePoint(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec)),
          std::chrono::time_point_cast<std::chrono::microseconds>(wall)};
}

bool WriteAttemptFile(int dir_fd, const char* name, const std::string& bytes) {
  const std::string temporary = std::string(name) + kFreeSuffix;
  const int fd =
      openat(dir_fd, temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  const auto size = static_cast<ssize_t>(bytes.size());
  const ssize_t n = write(fd, bytes.data(), bytes.size());
  const bool good =
      n == size && CutTo(fd, size) && renameat(dir_fd, temporary.c_str(), dir_fd, name) == 0;
  const int error = n >= 0 && errno == 0 ? ENOSPC : errno;
  close(fd);
  errno = error;
  return good;
}

void RunMonitor(const MonitorPlan& plan) {
  // gpulayer-exec's own descriptors, other than its standard ones, are none of ours: a second
  // holder would keep its socket alive after its death.
  constexpr int kReportFd = 3;
  constexpr int kSecretsFd = 4;
  MonitorPlan mine = plan;
  if (plan.secrets_fd >= 0) {
    // First out of the way of the two places, then into its own.
    const int held = fcntl(plan.secrets_fd, F_DUPFD_CLOEXEC, 64);
    const int report = fcntl(plan.report_fd, F_DUPFD_CLOEXEC, 64);
    if (held < 0 || report < 0 || dup3(held, kSecretsFd, O_CLOEXEC) < 0) _exit(1);
    mine.secrets_fd = kSecretsFd;
    mine.report_fd = report;
  }
  if (mine.report_fd != kReportFd) {
    if (dup3(mine.report_fd, kReportFd, O_CLOEXEC) < 0) _exit(1);
    mine.report_fd = kReportFd;
  }
  syscall(SYS_close_range, mine.secrets_fd == kSecretsFd ? 5U : 4U, ~0U, 0U);
  NameProcess("gpulayer-mon");
  Monitor(mine).Run();
}

}  // namespace gpulayer
