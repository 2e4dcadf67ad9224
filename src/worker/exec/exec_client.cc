#include "worker/exec/exec_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "worker/exec/exec_link.h"
#include "worker/exec/join_socket.h"

namespace gpulayer {
namespace {

using exec_wire::Message;
using exec_wire::Type;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kFirstRetry = milliseconds(50);
constexpr auto kLastRetry = std::chrono::seconds(5);
// A live gpulayer-exec reads its socket at once; a stopped one must not hold up the caller for
// ever.
constexpr auto kSendPatience = std::chrono::seconds(2);
// So long a start waits for gpulayer-exec to be there again, in which time the next one is up.
constexpr auto kStartPatience = std::chrono::seconds(30);
constexpr auto kJoinPatience = std::chrono::seconds(5);

std::int64_t Millis(Duration d) {
  return std::chrono::ceil<milliseconds>(std::max(d, Duration::zero())).count();
}

AttemptStatus NotStarted(StartStep step, int error) {
  AttemptStatus status;
  status.failed_step = step;
  status.error = error;
  status.ended = Clock::System().Now();
  return status;
}

// Null: none.
using SecretsFd = std::shared_ptr<const UniqueFd>;

// A file that is on no disk, and that nobody changes any more.
Result<SecretsFd> InMemory(const std::vector<std::string>& secrets) {
  if (secrets.empty()) return SecretsFd();
  UniqueFd fd(memfd_create("gpulayer-secrets", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus("hand over secrets", errno);
  std::string bytes = EncodeSecrets(secrets);
  const Status written = WriteAll(fd.get(), bytes);
  explicit_bzero(bytes.data(), bytes.size());
  GPULAYER_RETURN_IF_ERROR(written.Prefixed("hand over secrets"));
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return std::make_shared<const UniqueFd>(std::move(fd));
}

Status CheckJoin(const JoinOrder& order, std::string_view bytes) {
  const auto has_nul = [](const std::string& s) { return s.find('\0') != std::string::npos; };
  if (order.argv.empty()) return InvalidArgument("no command");
  if (std::any_of(order.argv.begin(), order.argv.end(), has_nul) || has_nul(order.term)) {
    return InvalidArgument("a NUL byte in the command");
  }
  if (bytes.size() > kMaxJoinOrderBytes) {
    return InvalidArgument("the command is longer than 128 KiB");
  }
  return OkStatus();
}

Status NotRunning() { return FailedPrecondition("the task is not running any more"); }

// Where the command's keeper finds us, for as long as this lives.
class JoinListener {
 public:
  static Result<std::unique_ptr<JoinListener>> Open(const std::string& folder) {
    std::int32_t number = 0;
    const std::string random = RandomBytes(sizeof(number));
    std::memcpy(&number, random.data(), sizeof(number));
    Result<UniqueFd> dir = OpenFile(folder, O_PATH | O_DIRECTORY);
    if (dir.status().code() == StatusCode::kNotFound) return NotRunning();
    if (!dir.ok()) return dir.status();
    std::unique_ptr<JoinListener> listener(new JoinListener(*std::move(dir), number & 0x7fffffff));
    GPULAYER_RETURN_IF_ERROR(listener->Listen());
    return listener;
  }
  ~JoinListener() { unlinkat(dir_.get(), JoinSocketName(number_).c_str(), 0); }
  JoinListener(const JoinListener&) = delete;
  JoinListener& operator=(const JoinListener&) = delete;

  std::int32_t number() const { return number_; }

  Result<UniqueFd> Accept(int give_up) {
    const auto deadline = steady_clock::now() + kJoinPatience;
    for (;;) {
      pollfd fds[] = {{socket_.get(), POLLIN, 0}, {give_up, POLLIN, 0}};
      poll(fds, 2, static_cast<int>(Millis(deadline - steady_clock::now())));
      if (fds[1].revents != 0) return Cancelled("broken off");
      UniqueFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.valid() && IsOwnPeer(fd.get())) return fd;
      if (steady_clock::now() >= deadline) {
        return DeadlineExceeded("gpulayer-exec did not answer in time");
      }
    }
  }

 private:
  JoinListener(UniqueFd dir, std::int32_t number) : dir_(std::move(dir)), number_(number) {}

  Status Listen() {
    socket_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_un address = JoinSocketAddress(dir_.get(), number_);
    // The mode before the name: nobody else sees it open.
    if (!socket_.valid() || fchmod(socket_.get(), 0600) != 0 ||
        bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(socket_.get(), 4) != 0) {
      return ErrnoStatus("listen in the attempt's folder", errno);
    }
    return OkStatus();
  }

  UniqueFd dir_;
  UniqueFd socket_;
  const std::int32_t number_;
};

}  // namespace

class ExecClient::Impl {
 public:
  Impl(ExecClientOptions options, Sink sink)
      : options_(std::move(options)), sink_(std::move(sink)) {}
  ~Impl();

  Status Open();
  Status Track(const AttemptId& id, Type how, SecretsFd secrets);
  Status Stop(const AttemptId& id, Duration grace);
  Result<UniqueFd> Join(const AttemptId& id, const JoinOrder& order, const JoinFds& fds,
                        int give_up);
  Result<std::vector<AttemptId>> List(Duration patience);
  Status Shutdown(Duration grace, Duration patience);

 private:
  struct Tracked {
    Type how = Type::kStart;  // what to say after a reconnect; kAdopt once its start is certain
    bool started_told = false;
    std::optional<steady_clock::time_point> unsent_since;  // no gpulayer-exec has heard of it
    std::optional<steady_clock::time_point> stop_by;       // repeated after a reconnect
    SecretsFd secrets;                                     // until its start is certain
  };
  struct Listing {
    std::vector<AttemptId> ids;
    bool done = false;
    bool failed = false;
  };

  void Run();
  void ReadUntilBroken();
  void Take(Message m);
  void TakeEnd(const AttemptId& id, AttemptStatus status);
  Result<UniqueFd> Reach();
  void Reconnected();
  void FailUnsentStarts(steady_clock::time_point before);
  Status Send(const Message& m, const SecretsFd& secrets = nullptr);
  std::shared_ptr<UniqueFd> Socket() GPULAYER_EXCLUDES(mutex_);
  bool Closing() GPULAYER_EXCLUDES(mutex_);
  void Pause(Duration d);

  const ExecClientOptions options_;
  const Sink sink_;
  std::string program_;
  UniqueFd life_read_;   // given to each gpulayer-exec that we start
  UniqueFd life_write_;  // held: its end is the end of gpulayer-exec
  UniqueFd wake_;        // ends the waits of the thread
  std::thread thread_;
  std::atomic<bool> knows_join_{false};  // the gpulayer-exec that was reached last

  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<UniqueFd> socket_ GPULAYER_GUARDED_BY(mutex_);  // null: not connected
  std::unordered_map<AttemptId, Tracked> tracked_ GPULAYER_GUARDED_BY(mutex_);
  std::unordered_map<std::uint32_t, Listing> listings_ GPULAYER_GUARDED_BY(mutex_);
  std::uint32_t next_seq_ GPULAYER_GUARDED_BY(mutex_) = 1;
  bool closing_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool shutdown_ GPULAYER_GUARDED_BY(mutex_) = false;  // do not start it again
};

ExecClient::Impl::~Impl() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  const std::uint64_t one = 1;
  if (wake_.valid()) [[maybe_unused]]
    const ssize_t n = write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

Status ExecClient::Impl::Open() {
  program_ = options_.program;
  if (program_.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(program_, ExecBesideUs());
  }
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return ErrnoStatus("open gpulayer-exec", errno);
  if (options_.life == ExecClientOptions::Life::kDiesWithWorker) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("open gpulayer-exec", errno);
    life_read_ = UniqueFd(ends[0]);
    life_write_ = UniqueFd(ends[1]);
    // One that is there already would not end with us.
    if (ConnectExec(options_.data_dir, options_.patience).ok()) {
      return FailedPrecondition("open gpulayer-exec: another one uses " + options_.data_dir);
    }
  }
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, Reach());
  {
    MutexLock lock(mutex_);
    socket_ = std::make_shared<UniqueFd>(std::move(fd));
  }
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
}

// Connects; starts gpulayer-exec where none answers.
Result<UniqueFd> ExecClient::Impl::Reach() {
  const auto deadline = steady_clock::now() + options_.patience;
  for (;;) {
    const Duration left = std::max<Duration>(deadline - steady_clock::now(), milliseconds(1));
    std::string knows;
    Result<UniqueFd> fd = ConnectExec(options_.data_dir, left, &knows);
    knows_join_.store(knows == exec_wire::kKnowsJoin);
    if (fd.ok() || fd.status().code() == StatusCode::kFailedPrecondition) return fd;
    const Status spawned = SpawnExec(program_, options_.data_dir, life_read_, left);
    // ALREADY_EXISTS: one that is just beginning or just ending; it is a matter of a moment.
    if (!spawned.ok() && spawned.code() != StatusCode::kAlreadyExists) return spawned;
    if (steady_clock::now() >= deadline || Closing()) return fd.status();
    if (!spawned.ok()) Pause(milliseconds(5));
  }
}

bool ExecClient::Impl::Closing() {
  MutexLock lock(mutex_);
  return closing_;
}

void ExecClient::Impl::Pause(Duration d) {
  pollfd wait = {wake_.get(), POLLIN, 0};
  poll(&wait, 1, static_cast<int>(Millis(d)));
}

std::shared_ptr<UniqueFd> ExecClient::Impl::Socket() {
  MutexLock lock(mutex_);
  return socket_;
}

// Packets are atomic, so threads may send at once and no lock is held. UNAVAILABLE: not sent.
Status ExecClient::Impl::Send(const Message& m, const SecretsFd& secrets) {
  const std::shared_ptr<UniqueFd> socket = Socket();
  if (!socket) return Unavailable("gpulayer-exec: not connected. Try again in a moment.");
  const std::string packet = exec_wire::Pack(m);
  const auto deadline = steady_clock::now() + kSendPatience;
  const int fd = secrets ? secrets->get() : -1;
  while (exec_wire::Send(socket->get(), packet, fd) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != ENOBUFS) {
      return Unavailable(std::string("gpulayer-exec: ") + std::strerror(errno));
    }
    if (steady_clock::now() >= deadline) return Unavailable("gpulayer-exec: it does not read");
    pollfd wait = {socket->get(), POLLOUT, 0};
    poll(&wait, 1, 100);
  }
  return OkStatus();
}

Status ExecClient::Impl::Track(const AttemptId& id, Type how, SecretsFd secrets) {
  if (!IsValidAttemptId(id.value())) return InvalidArgument("attempt: bad id");
  {
    MutexLock lock(mutex_);
    if (shutdown_) return Unavailable("gpulayer-exec: it was told to end");
    Tracked& tracked = tracked_[id] = Tracked{how, false, std::nullopt, std::nullopt, secrets};
    if (!socket_) {
      tracked.unsent_since = steady_clock::now();
      return OkStatus();  // Reconnected() says it
    }
  }
  Message m;
  m.type = how;
  m.id = id.value();
  // Not sent: the connection has just broken, and Reconnected() says it again.
  IgnoreError(Send(m, secrets), "repeated after the reconnect");
  return OkStatus();
}

Status ExecClient::Impl::Stop(const AttemptId& id, Duration grace) {
  if (!IsValidAttemptId(id.value())) return InvalidArgument("attempt: bad id");
  bool known = false;
  {
    MutexLock lock(mutex_);
    if (const auto it = tracked_.find(id); it != tracked_.end()) {
      const auto by = steady_clock::now() + std::max(grace, Duration::zero());
      it->second.stop_by = std::min(by, it->second.stop_by.value_or(by));
      known = true;
    }
  }
  Message m;
  m.type = Type::kStop;
  m.id = id.value();
  m.value = Millis(grace);
  const Status sent = Send(m);
  return known ? OkStatus() : sent;
}

Result<UniqueFd> ExecClient::Impl::Join(const AttemptId& id, const JoinOrder& order,
                                        const JoinFds& fds, int give_up) {
  const std::string packet = EncodeJoinOrder(order);
  GPULAYER_RETURN_IF_ERROR(CheckJoin(order, packet));
  if (!IsValidAttemptId(id.value())) return InvalidArgument("attempt: bad id");
  if (!knows_join_.load()) {
    return FailedPrecondition(
        "the gpulayer-exec of this worker is of an older version, which cannot do that; it is "
        "replaced when the worker is stopped and started again");
  }
  const std::string folder = JoinPath(JoinPath(options_.data_dir, kAttemptsFolder), id.value());
  GPULAYER_ASSIGN_OR_RETURN(const std::unique_ptr<JoinListener> listener,
                            JoinListener::Open(folder));
  Message m;
  m.type = Type::kJoin;
  m.id = id.value();
  m.value = listener->number();
  GPULAYER_RETURN_IF_ERROR(Send(m));
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd keeper, listener->Accept(give_up));
  // Whoever refuses has hung up.
  if (exec_wire::SendWith(keeper.get(), packet, {fds.in, fds.out, fds.err}) < 0) {
    return errno == EPIPE || errno == ECONNRESET ? NotRunning()
                                                 : ErrnoStatus("hand over a command", errno);
  }
  return keeper;
}

Result<JoinReport> ReadJoinReport(const UniqueFd& socket) {
  char buffer[kMaxStatusBytes];
  const ssize_t n = recv(socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n <= 0) return Unavailable("the process that kept the command is gone");
  return DecodeJoinReport({buffer, static_cast<std::size_t>(n)});
}

Result<std::vector<AttemptId>> ExecClient::Impl::List(Duration patience) {
  Message m;
  m.type = Type::kList;
  {
    MutexLock lock(mutex_);
    m.seq = next_seq_++;
    listings_[m.seq] = {};
  }
  const Status sent = Send(m);
  const auto deadline = steady_clock::now() + patience;
  MutexLock lock(mutex_);
  Listing& listing = listings_[m.seq];
  while (sent.ok() && !listing.done && !listing.failed) {
    const auto left = deadline - steady_clock::now();
    if (left <= Duration::zero()) break;
    changed_.WaitFor(mutex_, left);
  }
  const Listing taken = std::move(listing);
  listings_.erase(m.seq);
  if (!sent.ok()) return sent;
  if (taken.failed) return Unavailable("list attempts: the connection to gpulayer-exec broke");
  if (!taken.done) return DeadlineExceeded("list attempts: gpulayer-exec did not answer in time");
  return taken.ids;
}

Status ExecClient::Impl::Shutdown(Duration grace, Duration patience) {
  {
    MutexLock lock(mutex_);
    shutdown_ = true;
  }
  Message m;
  m.type = Type::kShutdown;
  m.value = Millis(grace);
  IgnoreError(Send(m), "not connected: the wait below is over at once, or it does not read");
  const auto deadline = steady_clock::now() + patience;
  MutexLock lock(mutex_);
  while (socket_) {
    const auto left = deadline - steady_clock::now();
    if (left <= Duration::zero()) {
      return DeadlineExceeded("stop gpulayer-exec: its attempts did not end in time");
    }
    changed_.WaitFor(mutex_, left);
  }
  return OkStatus();
}

void ExecClient::Impl::Run() {
  for (;;) {
    ReadUntilBroken();
    {
      MutexLock lock(mutex_);
      socket_.reset();
      for (auto& [seq, listing] : listings_) listing.failed = true;
      changed_.NotifyAll();
      if (closing_ || shutdown_) return;
    }
    LogWarning("gpulayer-exec: the connection broke; reaching it again");
    Duration pause = kFirstRetry;
    for (;;) {
      Result<UniqueFd> fd = Reach();
      if (fd.ok()) {
        MutexLock lock(mutex_);
        socket_ = std::make_shared<UniqueFd>(std::move(*fd));
        break;
      }
      LogError("gpulayer-exec: " + fd.status().ToString());
      Pause(pause);
      pause = std::min<Duration>(pause * 2, kLastRetry);
      if (Closing()) return;
      FailUnsentStarts(steady_clock::now() - kStartPatience);
    }
    Reconnected();
  }
}

// Asks again for what had not ended. A start that the old connection may have lost is given again:
// gpulayer-exec runs no attempt twice.
void ExecClient::Impl::Reconnected() {
  std::vector<std::pair<Message, SecretsFd>> again;
  {
    MutexLock lock(mutex_);
    for (auto& [id, tracked] : tracked_) {
      tracked.unsent_since.reset();
      Message m;
      m.type = tracked.how;
      m.id = id.value();
      again.emplace_back(m, tracked.secrets);
      if (!tracked.stop_by) continue;
      m.type = Type::kStop;
      m.value = Millis(*tracked.stop_by - steady_clock::now());
      again.emplace_back(m, nullptr);
    }
  }
  for (const auto& [m, secrets] : again) {
    if (!Send(m, secrets).ok()) return;  // broken again: the loop comes back here
  }
}

// This machine cannot run them, another one may. Only of those that no gpulayer-exec was told of is
// it certain that they do not run.
void ExecClient::Impl::FailUnsentStarts(steady_clock::time_point before) {
  std::vector<AttemptId> failed;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, tracked] : tracked_) {
      const bool start = tracked.how == Type::kStart;
      if (start && tracked.unsent_since && *tracked.unsent_since <= before) failed.push_back(id);
    }
  }
  for (const AttemptId& id : failed) TakeEnd(id, NotStarted(StartStep::kSpawn, ECONNREFUSED));
}

void ExecClient::Impl::ReadUntilBroken() {
  const std::shared_ptr<UniqueFd> socket = Socket();
  std::string buffer(exec_wire::kMaxPacket, '\0');
  for (;;) {
    pollfd fds[] = {{socket->get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    poll(fds, 2, -1);
    if (fds[1].revents != 0) return;
    if (fds[0].revents == 0) continue;
    const ssize_t n = recv(socket->get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    Message m;
    if (n <= 0) return;
    if (!exec_wire::Unpack({buffer.data(), static_cast<std::size_t>(n)}, m)) {
      LogError("gpulayer-exec: it sent what is no message");
      return;
    }
    Take(std::move(m));
  }
}

void ExecClient::Impl::Take(Message m) {
  const AttemptId id(m.id);
  switch (m.type) {
    case Type::kStarted: {
      Result<AttemptStarted> started = DecodeStarted(m.payload);
      if (!started.ok()) return;
      {
        MutexLock lock(mutex_);
        const auto it = tracked_.find(id);
        if (it == tracked_.end() || it->second.started_told) return;
        it->second.started_told = true;
        it->second.how = Type::kAdopt;
        it->second.secrets.reset();
      }
      ExecEvent event;
      event.kind = ExecEvent::Kind::kStarted;
      event.id = id;
      event.started = *started;
      sink_(std::move(event));
      return;
    }
    case Type::kEnded: {
      Result<AttemptStatus> status = DecodeStatus(m.payload, m.id);
      TakeEnd(id, status.ok() ? *std::move(status) : NotStarted(StartStep::kMonitor, EBADMSG));
      return;
    }
    case Type::kRefused:
      TakeEnd(id, NotStarted(StartStep::kSpawn, static_cast<int>(m.value)));
      return;
    case Type::kListItem:
    case Type::kListEnd: {
      MutexLock lock(mutex_);
      const auto it = listings_.find(m.seq);
      if (it == listings_.end()) return;
      if (m.type == Type::kListItem) {
        it->second.ids.push_back(id);
      } else {
        it->second.done = true;
        changed_.NotifyAll();
      }
      return;
    }
    default: return;  // of a newer version, and not essential
  }
}

void ExecClient::Impl::TakeEnd(const AttemptId& id, AttemptStatus status) {
  {
    MutexLock lock(mutex_);
    if (tracked_.erase(id) == 0) return;  // another client's, or told already
  }
  ExecEvent event;
  event.kind = ExecEvent::Kind::kEnded;
  event.id = id;
  event.status = std::move(status);
  sink_(std::move(event));
}

ExecClient::ExecClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExecClient::~ExecClient() = default;

Result<std::unique_ptr<ExecClient>> ExecClient::Open(ExecClientOptions options, Sink sink) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(sink));
  GPULAYER_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<ExecClient>(new ExecClient(std::move(impl)));
}

Status ExecClient::Start(const AttemptId& id, const std::vector<std::string>& secrets) {
  GPULAYER_ASSIGN_OR_RETURN(SecretsFd in_memory, InMemory(secrets));
  return impl_->Track(id, Type::kStart, std::move(in_memory));
}
Status ExecClient::Adopt(const AttemptId& id) { return impl_->Track(id, Type::kAdopt, nullptr); }
Status ExecClient::Stop(const AttemptId& id, Duration grace) { return impl_->Stop(id, grace); }
Result<UniqueFd> ExecClient::Join(const AttemptId& id, const JoinOrder& order, const JoinFds& fds,
                                  int give_up) {
  return impl_->Join(id, order, fds, give_up);
}
Result<std::vector<AttemptId>> ExecClient::List(Duration patience) { return impl_->List(patience); }
Status ExecClient::Shutdown(Duration grace, Duration patience) {
  return impl_->Shutdown(grace, patience);
}

}  // namespace gpulayer
