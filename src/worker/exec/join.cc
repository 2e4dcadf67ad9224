#include "worker/exec/join.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>
#include <vector>

#include "worker/exec/attempt_format.h"
#include "worker/exec/join_socket.h"
#include "worker/exec/launch.h"
#include "worker/exec/process_tree.h"
#include "worker/exec/protocol.h"
#include "worker/exec/spec_input.h"

namespace gpulayer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// For the worker, which listens before it asks, to say what to run.
constexpr int kOrderPatienceMs = 5000;
constexpr auto kHangUpGrace = std::chrono::seconds(2);
// As the monitor's.
constexpr milliseconds kFirstKillPause{1};
constexpr milliseconds kLastKillPause{200};
constexpr auto kUnreachablePatience = std::chrono::seconds(2);

class Keeper {
 public:
  explicit Keeper(const JoinPlan& plan) : plan_(plan) {}
  [[noreturn]] void Run();

 private:
  JoinOrder TakeOrder();
  void Start(const JoinOrder& order);
  void Reap();
  void HangUp();
  void KillTree();
  int Timeout() const;
  void Report(const JoinReport& report);
  [[noreturn]] void Fail(StartStep step, int error, int exit_code = 0);

  const JoinPlan& plan_;
  int socket_ = -1;
  int signal_fd_ = -1;
  int fds_[3] = {-1, -1, -1};
  pid_t command_ = -1;
  steady_clock::time_point kill_at_ = steady_clock::time_point::max();  // next pass of SIGKILL
  milliseconds kill_pause_ = kFirstKillPause;
  steady_clock::time_point helpless_since_ = steady_clock::time_point::max();
};

// It is there or it is not: a worker that does not read must not hold anything up here.
void Keeper::Report(const JoinReport& report) {
  const std::string bytes = EncodeJoinReport(report);
  (void)send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Keeper::Fail(StartStep step, int error, int exit_code) {
  JoinReport report;
  report.kind = JoinReport::Kind::kNotStarted;
  report.failed_step = step;
  report.error = error;
  if (exit_code != 0) report.exit_code = exit_code;
  Report(report);
  _exit(0);
}

JoinOrder Keeper::TakeOrder() {
  pollfd wait = {socket_, POLLIN, 0};
  std::string buffer(kMaxJoinOrderBytes, '\0');
  if (!IsOwnPeer(socket_) || poll(&wait, 1, kOrderPatienceMs) <= 0) _exit(1);
  const ssize_t n = exec_wire::ReceiveWith(socket_, buffer.data(), buffer.size(), fds_);
  if (n <= 0 || std::find(std::begin(fds_), std::end(fds_), -1) != std::end(fds_)) _exit(1);
  Result<JoinOrder> order = DecodeJoinOrder({buffer.data(), static_cast<std::size_t>(n)});
  if (!order.ok()) _exit(1);
  return *std::move(order);
}

void Keeper::Start(const JoinOrder& order) {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  signal_fd_ = signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signal_fd_ < 0) Fail(StartStep::kSpawn, errno);
  AttemptSpec spec;
  if (const int error = ReadSpecAt(plan_.dir_fd, spec); error != 0) Fail(StartStep::kSpec, error);
  if (const int error = AddSecrets(plan_.secrets_fd, spec); error != 0) {
    Fail(StartStep::kSpawn, error);
  }
  spec.argv = order.argv;
  if (order.terminal && !order.term.empty()) SetVariable(spec, "TERM=" + order.term);
  const int cgroup = plan_.cgroup != nullptr ? plan_.cgroup->Open() : -1;
  const LaunchResult launched =
      Launch(spec, {fds_[0], fds_[1], fds_[2], cgroup, order.terminal}, plan_.oom_score_adj);
  WipeEnvironment(spec);
  // With them the command's end is the end of its output.
  for (const int fd : fds_) close(fd);
  if (cgroup >= 0) close(cgroup);
  if (launched.pid < 0) Fail(launched.failed_step, launched.error, launched.exit_code);
  command_ = launched.pid;
  Report({});
}

// SIGCONT lets a stopped process hear it.
void Keeper::HangUp() {
  close(socket_);
  socket_ = -1;
  const std::vector<pid_t> tree = DescendantsOf(getpid());
  for (const int signal : {SIGHUP, SIGCONT}) {
    for (const pid_t pid : tree) kill(pid, signal);
  }
  kill_at_ = std::min<steady_clock::time_point>(kill_at_, steady_clock::now() + kHangUpGrace);
}

// Leaves when nothing is left: orphans come to us, so without children there are none.
void Keeper::Reap() {
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == ECHILD) _exit(0);
    if (pid <= 0) return;
    if (pid != command_) continue;
    command_ = -1;
    JoinReport report;
    report.kind = JoinReport::Kind::kEnded;
    if (WIFSIGNALED(status)) {
      report.signal = WTERMSIG(status);
    } else {
      report.exit_code = WEXITSTATUS(status);
    }
    if (socket_ >= 0) Report(report);
    kill_at_ = steady_clock::now();
  }
}

void Keeper::KillTree() {
  const auto now = steady_clock::now();
  bool killed_any = false;
  bool refused = false;
  for (const pid_t pid : DescendantsOf(getpid())) {
    ProcessInfo info;
    if (!ReadProcessInfo(pid, info) || info.zombie) continue;
    const bool killed = kill(pid, SIGKILL) == 0;
    killed_any = killed_any || killed;
    refused = refused || (!killed && errno == EPERM);
  }
  if (!refused || killed_any) {
    helpless_since_ = steady_clock::time_point::max();
  } else if (helpless_since_ == steady_clock::time_point::max()) {
    helpless_since_ = now;
  } else if (now - helpless_since_ > kUnreachablePatience) {
    _exit(0);  // other users' processes: the monitor counts them
  }
  kill_at_ = now + kill_pause_;
  kill_pause_ = std::min(kill_pause_ * 2, kLastKillPause);
}

int Keeper::Timeout() const {
  if (kill_at_ == steady_clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(kill_at_ - steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 10'000));
}

void Keeper::Run() {
  socket_ = ConnectJoin(plan_.dir_fd, plan_.number);
  if (socket_ < 0) _exit(1);
  Start(TakeOrder());
  for (;;) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {socket_, POLLIN, 0}};
    poll(fds, 2, Timeout());
    signalfd_siginfo info;
    while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    }
    Reap();
    // The worker says nothing more, so this is its end.
    if (fds[1].revents != 0) HangUp();
    if (steady_clock::now() >= kill_at_) KillTree();
  }
}

}  // namespace

void RunJoin(const JoinPlan& plan) {
  constexpr int kDirFd = 3;
  constexpr int kSecretsFd = 4;
  if (!BecomeSubreaper() || !TieToParent(plan.monitor, SIGKILL)) _exit(1);
  JoinPlan mine = plan;
  // First out of the way of the two places, then into their own.
  const int dir = fcntl(plan.dir_fd, F_DUPFD_CLOEXEC, 64);
  const int secrets = plan.secrets_fd < 0 ? -1 : fcntl(plan.secrets_fd, F_DUPFD_CLOEXEC, 64);
  if (dir < 0 || dup3(dir, kDirFd, O_CLOEXEC) < 0) _exit(1);
  mine.dir_fd = kDirFd;
  close(kSecretsFd);
  if (secrets >= 0 && dup3(secrets, kSecretsFd, O_CLOEXEC) < 0) _exit(1);
  mine.secrets_fd = secrets >= 0 ? kSecretsFd : -1;
  syscall(SYS_close_range, 5U, ~0U, 0U);
  NameProcess("gpulayer-join");
  Keeper(mine).Run();
}

}  // namespace gpulayer
