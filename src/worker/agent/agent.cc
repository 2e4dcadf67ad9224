#include "worker/agent/agent.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace gpulayer::worker {
namespace {

enum class Phase {
  kPreparing,    // Prepare is unanswered
  kPrepareWait,  // it failed for want of the server; again later
  kStarting,     // gpulayer-exec has it
  kRunning,
  kCollecting,   // CollectOutputs is unanswered
  kCollectWait,  // it failed for want of the server; again later
  kOver,         // outcome and outputs are known
};

struct Attempt {
  Assignment what;
  Phase phase = Phase::kPreparing;
  // Unanswered, whatever the phase: folders are in use until the answer.
  bool prepare_open = false;
  bool collect_open = false;
  bool program_open = false;  // between Start and ProgramEnded
  bool given_up = false;      // the server wants nothing of it any more
  bool acked = false;
  std::optional<TimePoint> retry_at;
  std::optional<TimePoint> preparing_since;  // a thread works on it
  Duration prepare_spent{};                  // in earlier tries
  std::optional<TimePoint> refused_since;    // outputs: the server answers, but cannot take them
  std::optional<Cause> stop;

  bool started = false;
  std::optional<TimePoint> started_at;
  std::optional<TimePoint> ended_at;
  std::optional<TimePoint> tell_at;  // the state is to be told then, if it lasts
  Outcome outcome;
  OutputResult outputs;

  std::optional<std::int64_t> log_size;  // known once the log is complete
  std::int64_t log_acked = 0;            // the server has it up to here
  std::int64_t log_sent = 0;             // sent on this session up to here
  std::deque<std::int64_t> log_marks;    // between the two: where the pieces that were sent end
  std::optional<std::int64_t> reading;   // ReadLog from here is unanswered
  std::optional<TimePoint> log_pause;    // nothing is read before then
  bool log_refused = false;

  bool current = false;  // this session's server said keep, or assigned it
  bool ended_sent = false;

  bool over() const {
    return phase == Phase::kCollecting || phase == Phase::kCollectWait || phase == Phase::kOver;
  }
  bool log_done() const { return log_refused || (log_size && log_sent >= *log_size); }
};

// The link's or the server's trouble, not this attempt's.
bool IsPassing(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kCancelled || status.code() == StatusCode::kUnauthenticated;
}

// It answered, or this machine did, that it is short of something: room may be made.
bool MayPass(const Status& status) {
  return status.code() == StatusCode::kResourceExhausted || status.code() == StatusCode::kAborted ||
         status.code() == StatusCode::kUnknown;
}

// Whose fault it is that the source could not be laid out.
CauseKind PrepareCause(const Status& status) {
  switch (status.code()) {
    case StatusCode::kNotFound:
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kDataLoss: return CauseKind::kPreparation;
    default: return CauseKind::kSpawnFailed;  // this machine's disk, memory, descriptors
  }
}

// An end that the server answers by another attempt: nothing of this one is of use to it.
bool RunsAgain(const Outcome& outcome) {
  return outcome.cause.kind == CauseKind::kWorkerLost ||
         outcome.cause.kind == CauseKind::kServerStopped ||
         outcome.cause.kind == CauseKind::kSpawnFailed;
}

// What a person may want to look at: the program failed, or what it made could not be stored. Where
// nothing was laid out there is nothing to see, and another attempt has its own folder.
bool Keeps(const Attempt& a) {
  if (!a.what.spec->keep || RunsAgain(a.outcome)) return false;
  const TaskState state = TerminalStateOf(a.outcome);
  return (state == TaskState::kFailed || state == TaskState::kTimedOut) &&
         a.outcome.cause.kind != CauseKind::kPreparation;
}

}  // namespace

struct Agent::State {
  Options options;
  bool connected = false;
  bool leaving = false;
  std::map<AttemptId, Attempt> attempts;

  // Of the Apply() that runs.
  std::vector<Action> actions;
  TimePoint now;

  Attempt* Find(const AttemptId& id) {
    const auto it = attempts.find(id);
    return it == attempts.end() ? nullptr : &it->second;
  }
  // One that the server still waits for; null otherwise.
  Attempt* FindLive(const AttemptId& id) {
    Attempt* a = Find(id);
    return a == nullptr || a->given_up || a->acked ? nullptr : a;
  }

  void BeginPrepare(Attempt& a) {
    if (a.what.LacksSecrets()) {
      // The server has them still, and gives them to the next attempt.
      return EndUnstarted(a, {CauseKind::kWorkerLost,
                              "the worker was restarted before the start, and has the job's "
                              "secrets no more"});
    }
    a.phase = Phase::kPreparing;
    a.prepare_open = true;
    a.preparing_since.reset();
    a.retry_at.reset();
    actions.push_back(Prepare{a.what});
  }

  // When the preparation under way has used up its time.
  std::optional<TimePoint> PrepareLimit(const Attempt& a) const {
    if (a.phase != Phase::kPreparing || !a.preparing_since) return std::nullopt;
    return *a.preparing_since + (options.prepare_limit - a.prepare_spent);
  }

  void BeginCollect(Attempt& a) {
    a.phase = Phase::kCollecting;
    a.collect_open = true;
    a.retry_at.reset();
    actions.push_back(CollectOutputs{a.what.key.id});
  }

  // The furthest place up to `size` from which the log can be read on: the beginning or the end of
  // a piece that was sent. What the server names may lie within a frame, where its disk became
  // full, or beyond all that was written here, in what an attempt of another time left there.
  static std::int64_t Reached(const Attempt& a, std::int64_t size) {
    std::int64_t reached = a.log_acked <= size ? a.log_acked : 0;
    for (const std::int64_t mark : a.log_marks) {
      if (mark <= size) reached = mark;
    }
    return reached;
  }

  // The log goes on from `from` anew.
  static void SetLogBack(Attempt& a, std::int64_t from) {
    a.log_acked = std::min(a.log_acked, from);
    a.log_sent = from;
    a.log_marks.clear();
    a.reading.reset();
  }

  // Over without a program's end: it never began, or its preparation is broken off.
  void EndUnstarted(Attempt& a, Cause cause) {
    if (a.prepare_open) actions.push_back(AbandonPrepare{a.what.key.id});
    a.phase = Phase::kOver;
    a.retry_at.reset();
    a.outcome = Outcome{{}, {}, std::move(cause)};
    a.log_size = 0;
    Report(a);
  }

  // The log's next piece, then the end: whatever is due on this session.
  void Report(Attempt& a) {
    if (!connected || !a.current || a.given_up || a.acked) return;
    if (!a.log_done()) return ReadOn(a);
    if (a.phase != Phase::kOver || a.ended_sent) return;
    a.ended_sent = true;
    a.tell_at.reset();
    actions.push_back(SendEnded{a.what.key, a.started, a.outcome, a.outputs, a.log_size.value_or(0),
                                Ago(a.started_at), Ago(a.ended_at), Keeps(a)});
  }

  // After another boot the clock began again: none, or too much, which the server bounds by when it
  // made the attempt.
  std::optional<Duration> Ago(const std::optional<TimePoint>& t) const {
    return t && *t <= now ? std::optional<Duration>(now - *t) : std::nullopt;
  }

  void ReadOn(Attempt& a) {
    const bool has_log = a.phase != Phase::kPreparing && a.phase != Phase::kPrepareWait &&
                         a.phase != Phase::kStarting;
    if (!has_log || a.reading == a.log_sent || a.log_pause) return;
    if (a.log_sent - a.log_acked >= options.log_window_bytes) return;
    a.reading = a.log_sent;
    actions.push_back(ReadLog{a.what.key.id, a.log_sent});
  }

  void SendState(Attempt& a) {
    a.tell_at.reset();
    if (!connected || !a.current) return;
    if (a.phase == Phase::kRunning) {
      actions.push_back(SendProgress{a.what.key, AttemptState::kRunning, {}, Ago(a.started_at)});
    } else if (a.over() && a.started && !RunsAgain(a.outcome)) {
      actions.push_back(
          SendProgress{a.what.key, AttemptState::kFinishing, a.outcome, Ago(a.started_at)});
    }
  }

  void TellAfter(Attempt& a, Duration wait) {
    a.tell_at = now + wait;
    if (wait <= Duration::zero()) SendState(a);
  }

  // The server wants nothing more of it: end what is under way.
  void GiveUp(Attempt& a) {
    if (a.given_up) return;
    a.given_up = true;
    a.current = false;
    a.retry_at.reset();
    a.log_pause.reset();
    a.tell_at.reset();
    const AttemptId& id = a.what.key.id;
    if (a.prepare_open && a.phase == Phase::kPreparing) actions.push_back(AbandonPrepare{id});
    if (a.program_open) actions.push_back(StopProgram{id, Duration::zero()});
    if (a.collect_open) actions.push_back(AbandonCollect{id});
  }

  // Erases the attempt if nobody needs it and nothing of it is under way.
  void Settle(const AttemptId& id) {
    const Attempt* a = Find(id);
    if (a == nullptr || !(a->given_up || a->acked)) return;
    if (a->prepare_open || a->collect_open || a->program_open) return;
    actions.push_back(Forget{id});
    attempts.erase(id);
  }

  void On(const Connected& e);
  void On(const Disconnected& e);
  void On(const Assigned& e);
  void On(const StopOrdered& e);
  void On(const LogAcked& e);
  void On(const EndAcked& e);
  void On(const Adopted& e);
  void On(const PrepareBegun& e);
  void On(const Prepared& e);
  void On(const ProgramStarted& e);
  void On(const ProgramEnded& e);
  void On(const OutputsCollected& e);
  void On(LogRead e);
  void On(const LogFailed& e);
  void On(const Leaving& e);
  void On(const Tick& e);
};

void Agent::State::On(const Connected& e) {
  connected = true;
  std::map<AttemptId, const AttemptKey*> keep;
  for (const AttemptKey& key : e.keep) keep.emplace(key.id, &key);
  std::vector<AttemptId> dropped;
  for (auto& [id, a] : attempts) {
    a.current = false;
    a.ended_sent = false;
    a.log_refused = false;
    SetLogBack(a, a.log_acked);
    a.log_pause.reset();
    if (a.given_up || a.acked) continue;
    const auto it = keep.find(id);
    if (it == keep.end()) {
      GiveUp(a);
      dropped.push_back(id);
      continue;
    }
    a.what.key = *it->second;
    a.current = true;
    SendState(a);
    if (a.phase == Phase::kPrepareWait) BeginPrepare(a);
    if (a.phase == Phase::kCollectWait) BeginCollect(a);
    Report(a);
  }
  for (const AttemptId& id : dropped) Settle(id);
}

void Agent::State::On(const Disconnected&) {
  connected = false;
  for (auto& [id, a] : attempts) {
    a.current = false;
    a.retry_at.reset();  // what waits for the server goes on when it is back
    a.log_pause.reset();
  }
}

void Agent::State::On(const Assigned& e) {
  const auto [it, is_new] = attempts.try_emplace(e.assignment.key.id);
  if (!is_new) return;  // an attempt is never run twice
  Attempt& a = it->second;
  a.what = e.assignment;
  a.current = connected;
  if (leaving) return EndUnstarted(a, {CauseKind::kServerStopped, "the worker was stopped"});
  BeginPrepare(a);
}

void Agent::State::On(const Adopted& e) {
  const auto [it, is_new] = attempts.try_emplace(e.assignment.key.id);
  if (!is_new) return;
  Attempt& a = it->second;
  a.what = e.assignment;
  if (e.begun) {
    a.phase = Phase::kStarting;
    a.program_open = true;
  } else {
    a.phase = Phase::kPrepareWait;  // until the server says keep
  }
}

void Agent::State::On(const StopOrdered& e) {
  Attempt* a = FindLive(e.key.id);
  if (a == nullptr) return;
  const bool first = !a->stop;
  if (first) a->stop = e.cause;
  switch (a->phase) {
    case Phase::kPreparing:
    case Phase::kPrepareWait: return EndUnstarted(*a, *a->stop);
    case Phase::kStarting:
    case Phase::kRunning: actions.push_back(StopProgram{e.key.id, e.grace}); return;
    default:
      // The program was over: nothing changes. Except that after a restart of this daemon the order
      // that ended it comes again, and only it knows who gave it.
      if (first && a->outcome.cause.kind == CauseKind::kCancelled) a->outcome.cause = e.cause;
  }
}

void Agent::State::On(const LogAcked& e) {
  Attempt* a = FindLive(e.key.id);
  if (a == nullptr || !a->current) return;
  if (!e.current) {
    a->log_refused = true;
    a->reading.reset();
    return Report(*a);
  }
  const std::int64_t reached = Reached(*a, e.size);
  const bool took_less = e.size < a->log_sent && reached <= a->log_acked;
  if (took_less) {
    // Not stored: its disk is full, or bytes before these are missing there. Once a second is
    // enough.
    SetLogBack(*a, reached);
    a->ended_sent = false;
    if (!a->log_pause) a->log_pause = now + std::chrono::seconds(1);
    return;
  }
  a->log_acked = reached;
  while (!a->log_marks.empty() && a->log_marks.front() <= reached) a->log_marks.pop_front();
  Report(*a);
}

void Agent::State::On(const EndAcked& e) {
  Attempt* a = FindLive(e.key.id);
  // Any end that we have not reached ourselves is an answer to somebody else's report.
  if (a == nullptr || !a->ended_sent) return;
  if (e.current && e.resend_log_from) {
    a->ended_sent = false;
    SetLogBack(*a, Reached(*a, std::max<std::int64_t>(0, *e.resend_log_from)));
    return Report(*a);
  }
  a->acked = true;
  Settle(e.key.id);
}

void Agent::State::On(const PrepareBegun& e) {
  Attempt* a = Find(e.id);
  if (a != nullptr && a->phase == Phase::kPreparing && a->prepare_open) a->preparing_since = now;
}

void Agent::State::On(const Prepared& e) {
  Attempt* a = Find(e.id);
  if (a == nullptr || !a->prepare_open) return;
  a->prepare_open = false;
  if (a->preparing_since) a->prepare_spent += now - *a->preparing_since;
  a->preparing_since.reset();
  if (a->given_up || a->acked) return Settle(e.id);
  if (a->phase != Phase::kPreparing) return;  // abandoned
  if (e.status.ok()) {
    a->phase = Phase::kStarting;
    a->program_open = true;
    a->what.secrets.reset();
    actions.push_back(Start{e.id});
  } else if (IsPassing(e.status)) {
    a->phase = Phase::kPrepareWait;
    if (connected) a->retry_at = now + options.retry;
  } else {
    EndUnstarted(*a, {PrepareCause(e.status), "preparation: " + e.status.message()});
  }
}

void Agent::State::On(const ProgramStarted& e) {
  Attempt* a = Find(e.id);
  if (a == nullptr || a->phase != Phase::kStarting) return;
  a->phase = Phase::kRunning;
  a->started = true;
  a->started_at = e.at;
  if (a->given_up) return;
  TellAfter(*a, options.tell_running);
  if (options.first_read > Duration::zero()) a->log_pause = now + options.first_read;
  Report(*a);
}

void Agent::State::On(const ProgramEnded& e) {
  Attempt* a = Find(e.id);
  if (a == nullptr || !a->program_open) return;
  a->program_open = false;
  if (a->given_up) return Settle(e.id);
  a->started = a->started || e.started;
  if (e.started_at) a->started_at = e.started_at;
  a->ended_at = e.ended_at;
  a->outcome = e.outcome;
  if (!a->log_size) a->log_size = e.log_bytes;
  a->log_pause.reset();
  Cause& cause = a->outcome.cause;
  if (cause.kind == CauseKind::kCancelled && a->stop) cause = *a->stop;
  // Of a start that came too late for gpulayer-exec, too.
  const bool not_begun = !a->started && cause.kind == CauseKind::kSpawnFailed;
  if (leaving && (cause.kind == CauseKind::kWorkerLost || not_begun)) {
    cause = {CauseKind::kServerStopped, "the worker was stopped"};
  }
  a->phase = Phase::kOver;
  TellAfter(*a, options.tell_finishing);
  if (a->started && a->what.spec->outputs.collect && !RunsAgain(a->outcome)) BeginCollect(*a);
  Report(*a);
}

void Agent::State::On(const OutputsCollected& e) {
  Attempt* a = Find(e.id);
  if (a == nullptr || !a->collect_open) return;
  a->collect_open = false;
  if (a->given_up) return Settle(e.id);
  if (e.result.ok()) {
    a->outputs = *e.result;
    a->phase = Phase::kOver;
    return Report(*a);
  }
  const Status why = e.result.status();
  const bool may_pass = MayPass(why);
  if (may_pass && !a->refused_since) a->refused_since = now;
  if (IsPassing(why) || (may_pass && now - *a->refused_since < options.store_patience)) {
    a->phase = Phase::kCollectWait;
    if (connected) a->retry_at = now + options.retry;
    return;
  }
  a->phase = Phase::kOver;
  const std::string text = "outputs could not be stored: " + why.message();
  a->outputs = OutputResult{};
  a->outputs.left_out = {{".", 0, text}};
  a->outputs.left_out_count = 1;
  if (TerminalStateOf(a->outcome) == TaskState::kSucceeded) {
    a->outcome.cause = {CauseKind::kOutputsNotStored, text};
  }
  Report(*a);
}

void Agent::State::On(LogRead e) {
  Attempt* a = FindLive(e.id);
  if (a == nullptr || a->reading != e.offset) return;
  a->reading.reset();
  if (e.final) a->log_size = e.offset + static_cast<std::int64_t>(e.data.size());
  if (!connected || !a->current) return;  // read again on the next session
  if (!e.data.empty()) {
    a->log_sent = e.offset + static_cast<std::int64_t>(e.data.size());
    a->log_marks.push_back(a->log_sent);
    actions.push_back(SendLog{a->what.key, e.offset, std::move(e.data)});
  }
  Report(*a);
}

void Agent::State::On(const LogFailed& e) {
  Attempt* a = FindLive(e.id);
  if (a == nullptr || a->reading != e.offset) return;
  a->reading.reset();
  a->log_size = e.offset;
  Report(*a);
}

void Agent::State::On(const Leaving&) {
  leaving = true;
  for (auto& [id, a] : attempts) {
    if (a.given_up || a.acked) continue;
    if (a.phase == Phase::kPreparing || a.phase == Phase::kPrepareWait) {
      EndUnstarted(a, {CauseKind::kServerStopped, "the worker was stopped"});
    }
  }
}

void Agent::State::On(const Tick&) {
  for (auto& [id, a] : attempts) {
    if (a.log_pause && *a.log_pause <= now) {
      a.log_pause.reset();
      Report(a);
    }
    if (a.given_up || a.acked) continue;
    if (a.tell_at && *a.tell_at <= now) SendState(a);
    if (const std::optional<TimePoint> limit = PrepareLimit(a); limit && *limit <= now) {
      EndUnstarted(a, {CauseKind::kPreparation, "preparation took longer than its limit"});
      continue;
    }
    if (!a.retry_at || *a.retry_at > now) continue;
    a.retry_at.reset();
    if (a.phase == Phase::kPrepareWait) BeginPrepare(a);
    if (a.phase == Phase::kCollectWait) BeginCollect(a);
  }
}

Agent::Agent() : Agent(Options()) {}
Agent::Agent(Options options) : state_(std::make_unique<State>()) { state_->options = options; }
Agent::~Agent() = default;
Agent::Agent(Agent&&) noexcept = default;
Agent& Agent::operator=(Agent&&) noexcept = default;

std::vector<Action> Agent::Apply(Event event, TimePoint now) {
  state_->now = now;
  std::visit([&](auto& e) { state_->On(std::move(e)); }, event);
  return std::exchange(state_->actions, {});
}

std::vector<Agent::Held> Agent::HeldAttempts() const {
  std::vector<Held> held;
  for (const auto& [id, a] : state_->attempts) {
    if (a.acked) continue;
    AttemptState state = AttemptState::kPreparing;
    if (a.phase == Phase::kRunning) state = AttemptState::kRunning;
    if (a.over()) state = AttemptState::kFinishing;
    held.push_back({a.what.key, state});
  }
  return held;
}

std::optional<TimePoint> Agent::NextTick() const {
  std::optional<TimePoint> next;
  const auto at = [&](TimePoint t) { next = next ? std::min(*next, t) : t; };
  for (const auto& [id, a] : state_->attempts) {
    if (a.given_up || a.acked) continue;
    if (a.retry_at) at(*a.retry_at);
    if (a.log_pause) at(*a.log_pause);
    if (a.tell_at) at(*a.tell_at);
    if (const std::optional<TimePoint> limit = state_->PrepareLimit(a)) at(*limit);
  }
  return next;
}

bool Agent::idle() const { return state_->attempts.empty(); }

}  // namespace gpulayer::worker
