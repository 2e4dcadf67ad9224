#include "worker/exec/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "worker/exec/join_socket.h"
#include "worker/exec/log_sink.h"
#include "worker/exec/monitor.h"
#include "worker/exec/process_tree.h"

namespace gpulayer {
namespace {

using exec_wire::Message;
using exec_wire::Type;

constexpr std::size_t kMaxConnections = 16;
// A worker that does not read for so long is cut off; it asks again when it is back, so nothing is
// lost. 65,536 ends of attempts are about 20 MB.
constexpr std::size_t kMaxUnsent = 65'536;
constexpr int kOomScoreStep = 500;
constexpr int kMaxOomScore = 1000;
constexpr int kSweepPauseMs = 10;
constexpr int kForeignPauseMs = 50;

std::string FolderOf(const std::string& id) { return std::string(kAttemptsFolder) + "/" + id; }
std::string FileOf(const std::string& id, const char* name) { return FolderOf(id) + "/" + name; }

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Empty if there is none or it is too long to be one.
std::string ReadSmallFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char buffer[kMaxStatusBytes + 1];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  close(fd);
  if (n <= 0 || static_cast<std::size_t>(n) > kMaxStatusBytes) return {};
  return {buffer, static_cast<std::size_t>(n)};
}

// Whether a monitor still keeps this attempt: it holds a lock on the log as long as it lives.
bool IsKept(const std::string& id) {
  const int fd = open(FileOf(id, kLogFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool kept = flock(fd, LOCK_EX | LOCK_NB) != 0;
  close(fd);
  return kept;
}

// What is alive of attempts whose monitors are dead and which are not our descendants. A process
// killed here cannot fork any more, so this ends when a pass finds none.
void KillMarked(const std::vector<std::string>& ids) {
  if (ids.empty()) return;
  std::vector<std::string> markers;
  for (const std::string& id : ids) markers.push_back(std::string(kAttemptIdVariable) + "=" + id);
  for (int pass = 0; pass < 500; ++pass) {
    const std::vector<pid_t> left = ProcessesWithEnvironment(markers);
    if (left.empty()) return;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    poll(nullptr, 0, 1);
  }
}

// What a dead monitor left. It may be elsewhere than ours are now: another session started it.
void RemoveCgroupOf(const std::string& id, const std::string& prefix) {
  const std::string path = ReadSmallFile(FileOf(id, kCgroupFile));
  const std::string name = "/" + prefix + id;
  const bool ours =
      path.size() > name.size() && path.compare(path.size() - name.size(), name.size(), name) == 0;
  if (ours) rmdir(path.c_str());
}

std::string OomScore() {
  const std::string own = ReadSmallFile("/proc/self/oom_score_adj");
  const long score = std::strtol(own.c_str(), nullptr, 10) + kOomScoreStep;
  return std::to_string(std::min<long>(score, kMaxOomScore));
}

Message Event(Type type, const std::string& id, std::string payload) {
  Message m;
  m.type = type;
  m.id = id;
  m.payload = std::move(payload);
  return m;
}

Message Refusal(const std::string& id, int error) {
  Message m;
  m.type = Type::kRefused;
  m.id = id;
  m.value = error;
  return m;
}

std::string FailedStatus(const std::string& id, StartStep step, int error) {
  AttemptStatus status;
  status.attempt = id;
  status.failed_step = step;
  status.error = error;
  status.ended = ReadClocks();
  return EncodeStatus(status);
}

}  // namespace

bool Supervisor::Prepare() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int s : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&watched, s);
  signal_fd_ = signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
  int reports[2];
  if (signal_fd_ < 0 || pipe2(reports, O_CLOEXEC) != 0 || !BecomeSubreaper()) {
    std::perror("gpulayer-exec: start");
    return false;
  }
  report_in_ = reports[0];
  report_out_ = reports[1];
  fcntl(report_in_, F_SETFL, O_NONBLOCK);
  oom_score_adj_ = OomScore();
  cgroup_prefix_ = CgroupPrefix();
  cgroups_ = FindCgroupPlace();
  MoveAside(cgroups_);
  return true;
}

int Supervisor::Run() {
  if (!Prepare()) return exec_wire::kExitFailed;
  RecoverAttempts();
  while (!shutting_down_ || !attempts_.empty() || sweeping_) PollOnce();
  // The last events are in the sockets' buffers or in `unsent`; a worker that does not read them
  // now reads the files.
  for (int i = 0; i < 100; ++i) {
    bool unsent = false;
    for (Connection& c : connections_) {
      Flush(c);
      unsent = unsent || (!c.broken && !c.unsent.empty());
    }
    if (!unsent) break;
    poll(nullptr, 0, 10);
  }
  return 0;
}

// What a dead gpulayer-exec left: monitors that are still ending their attempts (they were told by
// the kernel) are waited for; where the monitor was killed too, its processes are found by their
// environment.
void Supervisor::RecoverAttempts() {
  std::vector<std::string> lost;
  DIR* dir = opendir(kAttemptsFolder);
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    const std::string id = entry->d_name;
    if (!IsValidAttemptId(id) || !Exists(FileOf(id, kLogFile)) || Exists(FileOf(id, kStatusFile))) {
      continue;
    }
    attempts_[id].started = ReadSmallFile(FileOf(id, kStartedFile));
    if (IsKept(id)) {
      foreign_ = true;
    } else {
      lost.push_back(id);
    }
  }
  closedir(dir);
  KillMarked(lost);
  for (const std::string& id : lost) FinishLost(id);
  SweepCgroups(cgroups_, cgroup_prefix_);
}

int Supervisor::Timeout() const {
  if (sweeping_) return kSweepPauseMs;
  if (foreign_) return kForeignPauseMs;
  return -1;
}

void Supervisor::PollOnce() {
  std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0},
                             {report_in_, POLLIN, 0},
                             {fds_.listener, POLLIN, 0},
                             {shutting_down_ ? -1 : fds_.life, POLLIN, 0}};
  const std::size_t fixed = fds.size();
  for (const Connection& c : connections_) {
    const short wanted = c.unsent.empty() ? POLLIN : POLLIN | POLLOUT;
    fds.push_back({c.fd, wanted, 0});
  }
  poll(fds.data(), fds.size(), Timeout());

  // Reports before deaths: a monitor reports before it leaves.
  ReadReports();
  if (fds[0].revents != 0) TakeSignals();
  for (std::size_t i = fixed; i < fds.size(); ++i) {
    Connection& c = connections_[i - fixed];
    if (fds[i].revents & POLLOUT) Flush(c);
    if (fds[i].revents & ~POLLOUT) Read(c);
  }
  if (fds[3].revents != 0) {
    char byte = 0;
    if (read(fds_.life, &byte, 1) <= 0) Shutdown(0);
  }
  if (fds[2].revents != 0) Accept();
  if (sweeping_) SweepOrphans();
  if (foreign_) CheckForeign();
  std::erase_if(connections_, [](const Connection& c) {
    if (c.broken) close(c.fd);
    return c.broken;
  });
}

void Supervisor::Accept() {
  const int fd = accept4(fds_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (connections_.size() >= kMaxConnections) {
    close(fd);
    return;
  }
  connections_.push_back({fd, false, false, {}});
}

void Supervisor::Read(Connection& c) {
  char buffer[exec_wire::kMaxPacket + 1];
  for (int i = 0; i < 64 && !c.broken; ++i) {  // the others get their turn
    int fd = -1;
    const ssize_t n = exec_wire::Receive(c.fd, buffer, sizeof(buffer), fd);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    Message m;
    if (n <= 0 || !exec_wire::Unpack({buffer, static_cast<std::size_t>(n)}, m)) {
      c.broken = true;
    } else {
      Handle(c, m, fd);
    }
    if (fd >= 0) close(fd);  // the monitor has its own
  }
}

void Supervisor::Handle(Connection& c, const Message& m, int secrets_fd) {
  if (m.type == Type::kHello) {
    if (m.value != exec_wire::kVersion) {
      Send(c, Refusal("", EPROTONOSUPPORT));
      return;
    }
    c.welcome = true;
    Message welcome;
    welcome.type = Type::kWelcome;
    welcome.value = exec_wire::kVersion;
    welcome.payload = exec_wire::kKnowsJoin;
    Send(c, welcome);
    return;
  }
  if (!c.welcome) {
    c.broken = true;
    return;
  }
  switch (m.type) {
    case Type::kStart: Start(c, m.id, secrets_fd); return;
    case Type::kAdopt: Adopt(c, m.id); return;
    case Type::kStop: {
      const auto it = attempts_.find(m.id);
      if (it == attempts_.end() || it->second.monitor == 0) return;
      sigval value{};
      value.sival_int = static_cast<int>(std::clamp<std::int64_t>(m.value, 0, INT_MAX));
      // A full signal queue: the plain signal is never refused and stops it with its own grace.
      if (sigqueue(it->second.monitor, StopSignal(), value) != 0) kill(it->second.monitor, SIGTERM);
      return;
    }
    case Type::kList: {
      Message item;
      item.type = Type::kListItem;
      item.seq = m.seq;
      for (const auto& [id, attempt] : attempts_) {
        item.id = id;
        Send(c, item);
      }
      item.type = Type::kListEnd;
      item.id.clear();
      Send(c, item);
      return;
    }
    case Type::kShutdown: Shutdown(m.value); return;
    case Type::kJoin: Join(m.id, m.value); return;
    default: c.broken = true;
  }
}

void Supervisor::Send(Connection& c, const Message& m) {
  if (c.broken) return;
  c.unsent.push_back(exec_wire::Pack(m));
  if (c.unsent.size() == 1) Flush(c);
  if (c.unsent.size() > kMaxUnsent) c.broken = true;
}

void Supervisor::Flush(Connection& c) {
  while (!c.unsent.empty() && !c.broken) {
    const std::string& packet = c.unsent.front();
    if (send(c.fd, packet.data(), packet.size(), MSG_NOSIGNAL) >= 0) {
      c.unsent.pop_front();
    } else if (errno == EAGAIN || errno == ENOBUFS) {
      return;
    } else if (errno != EINTR) {
      c.broken = true;
    }
  }
}

void Supervisor::Broadcast(const Message& m) {
  for (Connection& c : connections_) {
    if (c.welcome) Send(c, m);
  }
}

void Supervisor::Start(Connection& c, const std::string& id, int secrets_fd) {
  if (id.empty()) return;
  if (attempts_.count(id) != 0 || Exists(FileOf(id, kLogFile))) {
    Adopt(c, id);
    return;
  }
  if (shutting_down_) {
    Send(c, Refusal(id, ESHUTDOWN));
    return;
  }
  MonitorPlan plan;
  plan.attempt_dir = FolderOf(id);
  plan.exec_pid = getpid();
  plan.report_fd = report_out_;
  plan.oom_score_adj = oom_score_adj_;
  plan.secrets_fd = secrets_fd;
  if (!cgroups_.dir.empty()) {
    plan.cgroup = cgroups_.dir + "/" + cgroup_prefix_ + id;
    plan.cgroup_unified = cgroups_.unified;
  }
  const pid_t pid = fork();
  if (pid == 0) RunMonitor(plan);
  if (pid < 0) {
    Send(c, Refusal(id, errno));
    return;
  }
  attempts_[id].monitor = pid;
  monitors_[pid] = id;
}

void Supervisor::Adopt(Connection& c, const std::string& id) {
  if (id.empty()) return;
  const auto it = attempts_.find(id);
  if (it == attempts_.end()) {
    std::string status = ReadSmallFile(FileOf(id, kStatusFile));
    if (!status.empty()) {
      Send(c, Event(Type::kEnded, id, std::move(status)));
    } else if (Exists(FileOf(id, kLogFile))) {
      // Begun, not over, and none of ours: see RecoverAttempts. CheckForeign ends it.
      attempts_[id].started = ReadSmallFile(FileOf(id, kStartedFile));
      foreign_ = true;
    } else {
      Send(c, Event(Type::kEnded, id, FailedStatus(id, StartStep::kNever, 0)));
    }
    return;
  }
  if (!it->second.started.empty()) Send(c, Event(Type::kStarted, id, it->second.started));
}

void Supervisor::Join(const std::string& id, std::int64_t number) {
  const auto it = attempts_.find(id);
  sigval value{};
  value.sival_int = static_cast<int>(number);
  const bool runs = it != attempts_.end() && it->second.monitor != 0 && !it->second.started.empty();
  if (runs && sigqueue(it->second.monitor, JoinSignal(), value) == 0) return;
  const int dir = open(FolderOf(id).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return;
  RefuseJoin(dir, value.sival_int);
  close(dir);
}

void Supervisor::Shutdown(std::int64_t grace_ms) {
  shutting_down_ = true;
  sigval value{};
  value.sival_int =
      grace_ms < 0 ? kOwnGrace : static_cast<int>(std::min<std::int64_t>(grace_ms, INT_MAX));
  for (const auto& [pid, id] : monitors_) {
    if (sigqueue(pid, ShutdownSignal(), value) != 0) kill(pid, SIGTERM);
  }
}

void Supervisor::TakeSignals() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) Shutdown(kOwnGrace);
  }
  // Whoever is dead by now has reported by now.
  ReapChildren();
}

void Supervisor::ReadReports() {
  char buffer[PIPE_BUF];
  for (;;) {
    ReportHeader header;
    const ssize_t n = read(report_in_, &header, sizeof(header));
    if (n != sizeof(header)) return;
    if (header.payload_size > sizeof(buffer)) std::abort();  // only we write here
    const ssize_t m = read(report_in_, buffer, header.payload_size);
    if (m != static_cast<ssize_t>(header.payload_size)) std::abort();
    const auto it = monitors_.find(header.monitor);
    if (it == monitors_.end()) continue;
    const std::string id = it->second;
    std::string payload(buffer, header.payload_size);
    if (header.kind == ReportHeader::Kind::kStarted) {
      attempts_[id].started = payload;
      Broadcast(Event(Type::kStarted, id, std::move(payload)));
    } else {
      attempts_.erase(id);
      Broadcast(Event(Type::kEnded, id, std::move(payload)));
    }
  }
}

void Supervisor::ReapChildren() {
  std::vector<pid_t> dead;
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    if (WIFSTOPPED(status)) {
      // A job may stop its monitor, with whom its time limit and its cancel would stand still.
      if (monitors_.count(pid) != 0) kill(pid, SIGCONT);
      continue;
    }
    dead.push_back(pid);
  }
  if (dead.empty()) return;
  ReadReports();  // of those that died since the last look
  for (const pid_t pid : dead) MonitorGone(pid);
}

void Supervisor::MonitorGone(pid_t pid) {
  const auto it = monitors_.find(pid);
  if (it == monitors_.end()) return;  // an orphan of a dead monitor
  const std::string id = it->second;
  monitors_.erase(it);
  const auto attempt = attempts_.find(id);
  if (attempt == attempts_.end()) return;  // the usual end
  // Killed, or it found another's log. Its program dies by the parent-death signal, what that left
  // behind comes to us.
  attempt->second.monitor = 0;
  attempt->second.lost = true;
  sweeping_ = true;
}

void Supervisor::SweepOrphans() {
  bool left = false;
  for (const pid_t child : ChildrenOf(getpid())) {
    if (monitors_.count(child) != 0) continue;
    for (const pid_t pid : DescendantsOf(child)) kill(pid, SIGKILL);
    kill(child, SIGKILL);
    left = true;
  }
  if (left) return;  // SIGCHLD, or the next pass
  sweeping_ = false;
  std::vector<std::string> lost;
  for (auto& [id, attempt] : attempts_) {
    if (attempt.lost) lost.push_back(id);
    attempt.lost = false;
  }
  for (const std::string& id : lost) {
    if (IsKept(id)) {
      foreign_ = true;
    } else {
      FinishLost(id);
    }
  }
}

void Supervisor::CheckForeign() {
  foreign_ = false;
  std::vector<std::string> over;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.monitor != 0 || attempt.lost) continue;
    if (IsKept(id)) {
      foreign_ = true;
    } else {
      over.push_back(id);
    }
  }
  std::vector<std::string> unfinished;
  for (const std::string& id : over) {
    if (!Exists(FileOf(id, kStatusFile))) unfinished.push_back(id);
  }
  KillMarked(unfinished);
  for (const std::string& id : over) FinishLost(id);
}

// Nothing of it is alive and nobody will write its status any more, unless it is there already.
void Supervisor::FinishLost(const std::string& id) {
  std::string bytes = ReadSmallFile(FileOf(id, kStatusFile));
  if (bytes.empty()) {
    AttemptStatus status;
    status.attempt = id;
    status.failed_step = StartStep::kMonitor;
    status.order = shutting_down_ ? StopOrder::kShutdown : StopOrder::kNone;
    status.ended = ReadClocks();
    const Result<AttemptStarted> started = DecodeStarted(ReadSmallFile(FileOf(id, kStartedFile)));
    if (started.ok()) status.started = *started;
    struct stat st{};
    if (stat(FileOf(id, kLogFile).c_str(), &st) == 0) status.log_bytes = st.st_size;
    for (const char* tail : kTailFiles) {
      if (stat(FileOf(id, tail).c_str(), &st) == 0) status.log_bytes += st.st_size + kNoteRoom;
    }
    bytes = EncodeStatus(status);
    const int dir = open(FolderOf(id).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
      // Not stored: the event says it, and the next gpulayer-exec comes to the same end.
      (void)WriteAttemptFile(dir, kStatusFile, bytes);
      close(dir);
    }
  }
  RemoveCgroupOf(id, cgroup_prefix_);
  attempts_.erase(id);
  Broadcast(Event(Type::kEnded, id, std::move(bytes)));
}

}  // namespace gpulayer
