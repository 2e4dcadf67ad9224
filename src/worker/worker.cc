#include "worker/worker.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/fs.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mutex.h"
#include "model/names.h"
#include "wire/version.h"
#include "worker/agent/agent.h"
#include "worker/attempt_files.h"
#include "worker/exec/exec_client.h"
#include "worker/identity.h"
#include "worker/log_reader.h"
#include "worker/pool.h"
#include "worker/session/exec_calls.h"
#include "worker/session/session.h"

namespace gpulayer {
namespace {

using namespace worker;  // NOLINT: the whole file puts that room together
using std::chrono::steady_clock;

// Preparing and collecting have threads of their own: a long upload must not hold up the next
// start.
constexpr int kPrepareThreads = 2;
constexpr int kCollectThreads = 2;
constexpr auto kProbeEvery = std::chrono::seconds(20);
constexpr std::int64_t kCacheBytes = std::int64_t{20} << 30;
// A planned stop: the jobs' grace, and then the reports' time. Together below
// limits::kShutdownGrace and what `down` allows.
constexpr auto kStopGrace = std::chrono::seconds(4);
constexpr auto kStopPatience = std::chrono::seconds(6);
constexpr auto kReportPatience = std::chrono::milliseconds(1500);

std::string FirstLabel(const std::string& host) { return host.substr(0, host.find('.')); }

struct Quit {};
using Message = std::variant<SessionEvent, Event, ExecEvent, Resources, Quit>;

}  // namespace

class Worker::Impl {
 public:
  explicit Impl(WorkerOptions options) : options_(std::move(options)) {}
  ~Impl() { Stop(StopMode::kEndJobs); }

  Status Start();
  void Stop(StopMode mode);
  bool connected() {
    std::shared_ptr<Session> session;
    {
      MutexLock lock(mutex_);
      session = session_;
    }
    return session != nullptr && session->connected();
  }
  WorkerId id() const { return profile_.id; }

 private:
  struct Running {
    Assignment assignment;
    std::shared_ptr<Cancel> preparing;
    std::shared_ptr<Cancel> collecting;
  };

  void Post(Message message) {
    {
      MutexLock lock(mutex_);
      mailbox_.push_back(std::move(message));
    }
    changed_.NotifyAll();
  }

  Status Adopt();
  void PostEnd(const AttemptId& id, const AttemptStatus& status);

  // On the loop thread.
  void Loop();
  void Take(Message message);
  void Do(Event event);
  void Carry(Action action);
  void On(SessionEvent event);
  void On(const ExecWanted& wanted);
  void On(ExecEvent event);
  void On(Resources resources);
  void On(Prepare action);
  void On(const AbandonPrepare& action);
  void On(const worker::Start& action);
  void On(const StopProgram& action);
  void On(const CollectOutputs& action);
  void On(const AbandonCollect& action);
  void On(const ReadLog& action);
  void On(const SendProgress& action) { session_->Send(action); }
  void On(SendLog action) { session_->Send(std::move(action)); }
  void On(SendEnded action);
  void On(const Forget& action);
  void ProbeIfDue(TimePoint now);

  WorkerOptions options_;
  std::string boot_id_;
  std::optional<FileLock> lock_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Message> mailbox_ GPULAYER_GUARDED_BY(mutex_);
  bool settled_ GPULAYER_GUARDED_BY(mutex_) = false;  // nothing is left to report

  // Of the loop thread once it runs.
  WorkerProfile profile_;  // its id never changes
  Agent agent_;
  std::map<AttemptId, Running> running_;
  std::optional<TimePoint> next_probe_;
  bool probing_ = false;

  std::unique_ptr<AttemptFiles> files_;
  std::unique_ptr<Pool> prepare_pool_;
  std::unique_ptr<Pool> collect_pool_;
  std::unique_ptr<LogReader> logs_;
  std::unique_ptr<ExecClient> exec_;
  std::unique_ptr<ExecCalls> exec_calls_;
  std::shared_ptr<Session> session_;  // changed under mutex_, before and after the loop alone
  std::thread loop_;
};

Status Worker::Impl::Start() {
  if (options_.data_dir.empty() || options_.data_dir.front() != '/') {
    return InvalidArgument("start worker: the data directory must be an absolute path");
  }
  GPULAYER_RETURN_IF_ERROR(MakePrivateDir(options_.data_dir).Prefixed("start worker"));
  GPULAYER_ASSIGN_OR_RETURN(FileLock held, LockDataDir(options_.data_dir));
  lock_ = std::move(held);
  if (options_.on_locked) options_.on_locked();
  GPULAYER_ASSIGN_OR_RETURN(profile_.id, LoadIdentity(options_.data_dir));
  boot_id_ = BootId();

  if (!options_.probe) {
    CpuProbeOptions probe;
    probe.slots = options_.slots;
    probe.memory_bytes = options_.memory_bytes;
    options_.probe = std::make_shared<CpuProbe>(probe);
  }
  GPULAYER_ASSIGN_OR_RETURN(profile_.resources, options_.probe->Detect());
  profile_.name = options_.name.empty() ? FirstLabel(HostName()) : options_.name;
  profile_.zone = options_.zone;
  profile_.region = options_.region;
  profile_.labels = options_.labels;
  profile_.version = wire::kProgramVersion;
  GPULAYER_RETURN_IF_ERROR(CheckNames(profile_).Prefixed("start worker"));

  GPULAYER_ASSIGN_OR_RETURN(const ServerLink link,
                            OpenLink({options_.server, options_.ca_pem, options_.credential}));
  GPULAYER_ASSIGN_OR_RETURN(
      files_, AttemptFiles::Open({options_.data_dir, options_.cache_bytes.value_or(kCacheBytes),
                                  profile_.name, options_.env, options_.kept_dir},
                                 link));
  ExecClientOptions exec;
  exec.data_dir = options_.data_dir;
  exec.program = options_.exec_program;
  exec.life = options_.ephemeral ? ExecClientOptions::Life::kDiesWithWorker
                                 : ExecClientOptions::Life::kOutlivesWorker;
  GPULAYER_ASSIGN_OR_RETURN(
      exec_, ExecClient::Open(std::move(exec), [this](ExecEvent e) { Post(std::move(e)); }));
  GPULAYER_RETURN_IF_ERROR(Adopt());

  prepare_pool_ = std::make_unique<Pool>(kPrepareThreads);
  collect_pool_ = std::make_unique<Pool>(kCollectThreads);
  logs_ = std::make_unique<LogReader>([this](Event e) { Post(std::move(e)); });
  exec_calls_ = std::make_unique<ExecCalls>(link, *exec_);
  next_probe_ = Clock::System().Now().mono + kProbeEvery;
  // Before the loop: it speaks to the session. What the session says waits in the mailbox.
  auto session = std::make_shared<Session>(link, SessionOptions(),
                                           [this](SessionEvent e) { Post(std::move(e)); });
  {
    MutexLock lock(mutex_);
    session_ = std::move(session);
  }
  loop_ = std::thread([this] { Loop(); });
  return OkStatus();
}

// The attempts of an earlier life of this daemon, in the mailbox before anything else.
Status Worker::Impl::Adopt() {
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<AttemptId> running, exec_->List());
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<AttemptFiles::Found> found,
                            files_->FindAttempts(running));
  std::map<AttemptId, bool> known;
  for (const AttemptFiles::Found& f : found) {
    const AttemptId& id = f.assignment.key.id;
    known[id] = true;
    running_[id].assignment = f.assignment;
    Post(Event(Adopted{f.assignment, f.begun}));
    if (!f.begun) continue;
    // Read here as well, so that Hello says how far it is.
    if (const Result<AttemptStatus> status = files_->store().ReadStatus(id); status.ok()) {
      PostEnd(id, *status);
      continue;
    }
    if (const Result<AttemptStarted> s = files_->store().ReadStarted(id); s.ok()) {
      Post(Event(ProgramStarted{id, s->at.mono}));
    }
    GPULAYER_RETURN_IF_ERROR(exec_->Adopt(id).Prefixed("adopt attempt " + id.value()));
  }
  for (const AttemptId& id : running) {
    if (known[id]) continue;
    GPULAYER_RETURN_IF_ERROR(
        exec_->Stop(id, Duration::zero()).Prefixed("end attempt " + id.value()));
  }
  if (!found.empty()) LogInfo("found " + std::to_string(found.size()) + " attempts of before");
  return OkStatus();
}

void Worker::Impl::PostEnd(const AttemptId& id, const AttemptStatus& status) {
  if (status.swept > 0) {
    std::string names;
    for (const std::string& name : status.swept_names) names += (names.empty() ? "" : ", ") + name;
    LogInfo("attempt " + id.value() + ": ended " + std::to_string(status.swept) +
            " processes that it left over: " + names);
  }
  ProgramEnded ended{id, status.started.has_value(), OutcomeOf(status), status.log_bytes, {}, {}};
  if (status.started) ended.started_at = status.started->at.mono;
  // Of one whose keeper died nobody knows when.
  if (status.failed_step != StartStep::kMonitor) ended.ended_at = status.ended.mono;
  Post(Event(std::move(ended)));
}

void Worker::Impl::Stop(StopMode mode) {
  if (loop_.joinable()) {
    if (mode == StopMode::kEndJobs) {
      Post(Event(Leaving{}));
      const Status ended = exec_->Shutdown(kStopGrace, kStopPatience);
      if (!ended.ok()) LogWarning("stop: " + ended.message());
      // What the server does not hear now it hears from the next worker on this directory.
      const auto deadline = steady_clock::now() + kReportPatience;
      for (;;) {
        const bool linked = connected();
        MutexLock lock(mutex_);
        const auto left = deadline - steady_clock::now();
        if ((settled_ && mailbox_.empty()) || !linked || left <= Duration::zero()) break;
        changed_.WaitFor(mutex_, std::min<Duration>(left, std::chrono::milliseconds(100)));
      }
    }
    Post(Quit{});
    loop_.join();
  }
  for (auto& [id, running] : running_) {
    if (running.preparing) running.preparing->Request();
    if (running.collecting) running.collecting->Request();
  }
  std::shared_ptr<Session> session;
  {
    MutexLock lock(mutex_);
    session.swap(session_);
  }
  session.reset();
  exec_calls_.reset();
  prepare_pool_.reset();
  collect_pool_.reset();
  logs_.reset();
  exec_.reset();
  files_.reset();
  lock_.reset();
}

void Worker::Impl::Loop() {
  for (;;) {
    std::deque<Message> batch;
    const TimePoint now = Clock::System().Now().mono;
    ProbeIfDue(now);
    const std::optional<TimePoint> tick = agent_.NextTick();
    {
      MutexLock lock(mutex_);
      settled_ = agent_.idle();
      if (mailbox_.empty()) {
        changed_.NotifyAll();  // Stop() may wait for `settled_`
        Duration wait = kProbeEvery;
        if (next_probe_) wait = std::min(wait, *next_probe_ - now);
        if (tick) wait = std::min(wait, *tick - now);
        if (wait > Duration::zero()) changed_.WaitFor(mutex_, wait);
      }
      batch.swap(mailbox_);
    }
    if (tick && Clock::System().Now().mono >= *tick) Do(Tick{});
    for (Message& message : batch) {
      if (std::holds_alternative<Quit>(message)) return;
      Take(std::move(message));
    }
  }
}

void Worker::Impl::Take(Message message) {
  if (auto* e = std::get_if<SessionEvent>(&message)) return On(std::move(*e));
  if (auto* e = std::get_if<Event>(&message)) return Do(std::move(*e));
  if (auto* e = std::get_if<ExecEvent>(&message)) return On(std::move(*e));
  if (auto* e = std::get_if<Resources>(&message)) return On(std::move(*e));
}

void Worker::Impl::Do(Event event) {
  for (Action& action : agent_.Apply(std::move(event), Clock::System().Now().mono)) {
    Carry(std::move(action));
  }
}

void Worker::Impl::Carry(Action action) {
  std::visit([this](auto& a) { On(std::move(a)); }, action);
}

void Worker::Impl::On(SessionEvent event) {
  if (const auto* opened = std::get_if<Opened>(&event)) {
    return session_->SayHello(*opened, {profile_, boot_id_, agent_.HeldAttempts()});
  }
  if (const auto* refused = std::get_if<Refused>(&event)) {
    if (options_.on_refused) {
      options_.on_refused(refused->why,
                          refused->revoked ? StopMode::kEndJobs : StopMode::kKeepJobs);
    }
    return;
  }
  if (const auto* wanted = std::get_if<ExecWanted>(&event)) {
    On(*wanted);
  } else {
    Do(std::get<Event>(std::move(event)));
  }
  session_->Next();
}

void Worker::Impl::On(const ExecWanted& wanted) {
  const std::vector<Agent::Held> held = agent_.HeldAttempts();
  const bool runs = std::any_of(held.begin(), held.end(), [&](const Agent::Held& h) {
    return h.key.id == wanted.key.id && h.state == AttemptState::kRunning;
  });
  exec_calls_->Open(wanted.key.id, wanted.ticket, runs);
}

void Worker::Impl::On(ExecEvent event) {
  if (event.kind == ExecEvent::Kind::kStarted)
    return Do(ProgramStarted{event.id, event.started.at.mono});
  PostEnd(event.id, event.status);
}

void Worker::Impl::ProbeIfDue(TimePoint now) {
  if (probing_ || !next_probe_ || now < *next_probe_) return;
  probing_ = true;
  next_probe_.reset();
  prepare_pool_->Submit([this] {
    Result<Resources> found = options_.probe->Detect();
    if (!found.ok()) LogWarning("probe this machine: " + found.status().message());
    // The profile is the loop's; empty resources stand for "as before".
    Post(found.ok() ? *std::move(found) : Resources{-1, 0, {}});
  });
}

void Worker::Impl::On(Resources resources) {
  probing_ = false;
  next_probe_ = Clock::System().Now().mono + kProbeEvery;
  if (resources.slots < 0 || resources == profile_.resources) return;
  profile_.resources = std::move(resources);
  session_->SetResources(profile_.resources);
}

void Worker::Impl::On(Prepare action) {
  Running& running = running_[action.assignment.key.id];
  running.assignment = action.assignment;
  running.preparing = std::make_shared<Cancel>();
  prepare_pool_->Submit(
      [this, assignment = std::move(action.assignment), cancel = running.preparing] {
        Post(Event(PrepareBegun{assignment.key.id}));
        Status status = files_->Prepare(assignment, *cancel);
        Post(Event(Prepared{assignment.key.id, std::move(status)}));
      });
}

void Worker::Impl::On(const AbandonPrepare& action) {
  const auto it = running_.find(action.id);
  if (it != running_.end() && it->second.preparing) it->second.preparing->Request();
}

void Worker::Impl::On(const worker::Start& action) {
  FaultPoint("worker.before_start");
  std::vector<std::string> secrets;
  if (const auto values = std::exchange(running_[action.id].assignment.secrets, nullptr)) {
    for (const EnvVar& secret : *values) secrets.push_back(secret.name + "=" + secret.value);
  }
  const Status status = exec_->Start(action.id, secrets);
  for (std::string& secret : secrets) explicit_bzero(secret.data(), secret.size());
  FaultPoint("worker.after_start");
  if (status.ok()) return;
  Outcome outcome;
  outcome.cause = {CauseKind::kSpawnFailed, status.message()};
  Post(Event(ProgramEnded{action.id, false, std::move(outcome), 0, {}, {}}));
}

void Worker::Impl::On(const StopProgram& action) {
  const Status status = exec_->Stop(action.id, action.grace);
  if (!status.ok()) LogWarning("stop attempt " + action.id.value() + ": " + status.message());
}

void Worker::Impl::On(const CollectOutputs& action) {
  Running& running = running_[action.id];
  running.collecting = std::make_shared<Cancel>();
  collect_pool_->Submit([this, assignment = running.assignment, cancel = running.collecting] {
    Result<OutputResult> result = files_->Collect(assignment, *cancel);
    if (!result.ok()) {
      LogWarning("outputs of attempt " + ToString(assignment.key.ref) + ": " +
                 result.status().message());
    }
    Post(Event(OutputsCollected{assignment.key.id, std::move(result)}));
  });
}

void Worker::Impl::On(const AbandonCollect& action) {
  const auto it = running_.find(action.id);
  if (it != running_.end() && it->second.collecting) it->second.collecting->Request();
}

void Worker::Impl::On(const ReadLog& action) {
  logs_->Want(action.id, files_->store().PathOf(action.id), action.from);
}

void Worker::Impl::On(SendEnded action) {
  if (action.keep) action.kept_folder = files_->Keep(action.key.id);
  FaultPoint("worker.before_report");
  session_->Send(action);
}

void Worker::Impl::On(const Forget& action) {
  const auto it = running_.find(action.id);
  const bool may_keep = it != running_.end() && it->second.assignment.spec->keep;
  running_.erase(action.id);
  logs_->Drop(action.id);
  // A private server may end at once, and its data directory with it.
  if (may_keep) return files_->Discard(action.id);
  prepare_pool_->Submit([this, id = action.id] { files_->Discard(id); });
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;

Result<std::unique_ptr<Worker>> Worker::Start(WorkerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  GPULAYER_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

bool Worker::connected() const { return impl_->connected(); }
WorkerId Worker::id() const { return impl_->id(); }
void Worker::Stop(StopMode mode) { impl_->Stop(mode); }

}  // namespace gpulayer
