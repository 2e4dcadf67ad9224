#include "sim/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace gpulayer::sim {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

WorkerProfile MakeProfile(const std::string& name, Resources resources) {
  WorkerProfile profile;
  profile.id = WorkerId("id-" + name);
  profile.name = name;
  profile.resources = std::move(resources);
  return profile;
}

Outcome Because(CauseKind kind) {
  Outcome outcome;
  outcome.cause.kind = kind;
  return outcome;
}

}  // namespace

Machine::Machine(Timeline& timeline, Server& server, std::string name, Resources resources)
    : timeline_(timeline), server_(server), profile_(MakeProfile(name, std::move(resources))) {
  StartDaemon();
}

// ---- Faults. ----

void Machine::CutLink() {
  if (link_) link_->Cut();
}

void Machine::Partition(Duration time) {
  timeline_.Note(profile_.name + " is cut off");
  partitioned_until_ = timeline_.now().mono + time;
  CutLink();
}

void Machine::KillDaemon(Duration down) {
  if (agent_ == nullptr) return;
  timeline_.Note(profile_.name + ": daemon dies");
  agent_.reset();
  ++daemon_;
  welcomed_ = false;
  if (link_) {
    link_->worker.gone = true;
    link_->Cut();
    link_.reset();
  }
  for (auto& [id, attempt] : attempts_) attempt.read_from.reset();
  timeline_.After(down, [this] {
    if (agent_ == nullptr && power_) StartDaemon();
  });
}

void Machine::PowerOff(Duration down) {
  if (!power_) return;
  KillDaemon(down + 1s);
  timeline_.Note(profile_.name + ": power is off");
  power_ = false;
  ++boot_;
  for (auto& [id, attempt] : attempts_) {
    if (attempt.begun && attempt.process != Attempt::Process::kOver) {
      attempt.process = Attempt::Process::kOver;
      attempt.outcome = Because(CauseKind::kWorkerLost);
    }
  }
  timeline_.After(down, [this] {
    power_ = true;
    if (agent_ == nullptr) StartDaemon();
  });
}

void Machine::Leave(Duration down) {
  if (agent_ == nullptr) return;
  timeline_.Note(profile_.name + ": planned stop");
  Tell(worker::Leaving{});
  std::vector<AttemptId> running;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.begun && attempt.process != Attempt::Process::kOver) running.push_back(id);
  }
  for (const AttemptId& id : running) EndProcess(id, Because(CauseKind::kWorkerLost));
  const int daemon = daemon_;
  timeline_.After(timeline_.Between(0s, 3s), [this, daemon, down] {
    if (daemon == daemon_) KillDaemon(down);
  });
}

// ---- The daemon. ----

void Machine::StartDaemon() {
  timeline_.Note(profile_.name + ": daemon starts");
  agent_ = std::make_unique<worker::Agent>();
  const int daemon = ++daemon_;
  std::vector<AttemptId> found;
  for (const auto& [id, attempt] : attempts_) found.push_back(id);
  for (const AttemptId& id : found) {
    Tell(worker::Adopted{attempts_.at(id).what, attempts_.at(id).begun});
    Replay(id);
  }
  DialSoon();
  Heartbeat(daemon);
}

// exec tells a new daemon what became of an attempt.
void Machine::Replay(const AttemptId& id) {
  const auto it = attempts_.find(id);
  if (it == attempts_.end() || !it->second.begun) return;
  const Attempt attempt = it->second;
  using Process = Attempt::Process;
  if (attempt.process == Process::kRunning ||
      (attempt.process == Process::kOver && attempt.started)) {
    TellLater(timeline_.Between(0ms, 20ms), worker::ProgramStarted{id});
  }
  if (attempt.process == Process::kOver) {
    TellLater(20ms,
              worker::ProgramEnded{id, attempt.started, attempt.outcome, std::ssize(attempt.log)});
  }
}

void Machine::DialSoon() {
  timeline_.After(timeline_.Between(100ms, 3s), [this, daemon = daemon_] {
    if (daemon != daemon_ || agent_ == nullptr || link_) return;
    if (timeline_.now().mono < partitioned_until_) return DialSoon();
    link_ = server_.Dial();
    if (link_ == nullptr) return DialSoon();
    link_->at_worker = [this](Link&, const ToWorker& message) { Receive(message); };
    link_->worker.lost = [this](Link&) {
      link_.reset();
      if (std::exchange(welcomed_, false)) Tell(worker::Disconnected{});
      DialSoon();
    };
    core::WorkerConnected hello;
    hello.profile = profile_;
    hello.boot_id = std::to_string(boot_);
    for (const worker::Agent::Held& held : agent_->HeldAttempts()) {
      hello.held.push_back({held.key, held.state});
    }
    SendToServer({hello});
  });
}

void Machine::Heartbeat(int daemon) {
  if (daemon != daemon_) return;
  if (link_ && welcomed_) SendToServer({core::WorkerHeard{}});
  timeline_.After(2s, [this, daemon] { Heartbeat(daemon); });
}

void Machine::SendToServer(ToServer message) {
  if (link_) link_->Send(std::move(message));
}

void Machine::Receive(const ToWorker& message) {
  if (std::holds_alternative<worker::Connected>(message.what)) welcomed_ = true;
  std::visit([&](const auto& event) { Tell(event); }, message.what);
}

void Machine::Tell(worker::Event event) {
  if (agent_ == nullptr) return;
  const std::vector<worker::Action> actions = agent_->Apply(std::move(event), timeline_.now().mono);
  for (const worker::Action& action : actions) Do(action);
  if (const auto next = agent_->NextTick()) {
    const int daemon = daemon_;
    timeline_.After(std::max<Duration>(1ms, *next - timeline_.now().mono), [this, daemon] {
      const auto due = daemon == daemon_ && agent_ ? agent_->NextTick() : std::nullopt;
      if (due && *due <= timeline_.now().mono) Tell(worker::Tick{});
    });
  }
}

void Machine::TellLater(Duration delay, worker::Event event) {
  timeline_.After(delay, [this, daemon = daemon_, event = std::move(event)] {
    if (daemon == daemon_) Tell(event);
  });
}

void Machine::Do(const worker::Action& action) {
  std::visit(
      Overloaded{[&](const worker::Prepare& a) {
                   const AttemptId& id = a.assignment.key.id;
                   attempts_[id].what = a.assignment;
                   Status status;
                   if (!link_ && timeline_.Chance(50)) status = Unavailable("no link");
                   if (faults && timeline_.Chance(3)) status = ResourceExhausted("disk full");
                   if (faults && timeline_.Chance(2)) status = NotFound("no such source");
                   TellLater(1ms, worker::PrepareBegun{id});
                   TellLater(timeline_.Between(1ms, 3s), worker::Prepared{id, status});
                 },
                 [&](const worker::AbandonPrepare& a) {
                   TellLater(10ms, worker::Prepared{a.id, Cancelled("abandoned")});
                 },
                 [&](const worker::Start& a) { BeginProcess(a.id); },
                 [&](const worker::StopProgram& a) {
                   Attempt& attempt = attempts_.at(a.id);
                   if (a.grace == 0s) attempt.dying = true;
                   const Duration obeys = std::min(a.grace, timeline_.Between(1ms, 20s));
                   timeline_.After(obeys + 1ms, [this, id = a.id] {
                     EndProcess(id, Because(CauseKind::kCancelled));
                   });
                 },
                 [&](const worker::CollectOutputs& a) {
                   Result<OutputResult> result = OutputResult{};
                   if (!link_) result = Unavailable("no link");
                   TellLater(timeline_.Between(1ms, 5s), worker::OutputsCollected{a.id, result});
                 },
                 [&](const worker::AbandonCollect& a) {
                   TellLater(10ms, worker::OutputsCollected{a.id, Cancelled("abandoned")});
                 },
                 [&](const worker::ReadLog& a) {
                   attempts_.at(a.id).read_from = a.from;
                   AnswerRead(a.id);
                 },
                 [&](const worker::SendProgress& a) {
                   SendToServer({core::AttemptProgress{{}, a.key, a.state, a.outcome}});
                 },
                 [&](const worker::SendLog& a) { SendToServer({a}); },
                 [&](const worker::SendEnded& a) {
                   SendToServer({core::AttemptEnded{
                       {}, a.key, a.started, a.outcome, a.outputs, a.log_bytes}});
                 },
                 [&](const worker::Forget& a) {
                   const auto it = attempts_.find(a.id);
                   if (it == attempts_.end()) return;
                   EXPECT_TRUE(!it->second.begun || it->second.process == Attempt::Process::kOver)
                       << "forgotten while it runs: " << a.id.value();
                   attempts_.erase(it);
                 }},
      action);
}

// ---- Processes, which live on without the daemon. ----

void Machine::BeginProcess(const AttemptId& id) {
  Attempt& attempt = attempts_.at(id);
  EXPECT_FALSE(attempt.begun) << "started twice: " << id.value();
  attempt.begun = true;
  attempt.process = Attempt::Process::kStarting;
  if (faults && timeline_.Chance(3)) {
    timeline_.After(5ms, [this, id] { EndProcess(id, Because(CauseKind::kSpawnFailed)); });
    return;
  }
  timeline_.After(timeline_.Between(1ms, 100ms), [this, id] {
    const auto it = attempts_.find(id);
    if (it == attempts_.end() || it->second.process != Attempt::Process::kStarting) return;
    it->second.process = Attempt::Process::kRunning;
    it->second.started = true;
    timeline_.Note(profile_.name + ": runs " + id.value());
    TellLater(0ms, worker::ProgramStarted{id});
    Grow(id);
    Outcome outcome = Because(CauseKind::kProgram);
    outcome.exit_code = timeline_.Chance(10) ? 7 : 0;
    timeline_.After(timeline_.Between(10ms, 15s), [this, id, outcome] { EndProcess(id, outcome); });
  });
}

void Machine::Grow(const AttemptId& id) {
  const auto it = attempts_.find(id);
  if (it == attempts_.end() || it->second.process != Attempt::Process::kRunning) return;
  it->second.log += id.value() + " says " + std::to_string(timeline_.Draw(0, 1'000'000)) + "\n";
  AnswerRead(id);
  timeline_.After(timeline_.Between(100ms, 4s), [this, id] { Grow(id); });
}

void Machine::EndProcess(const AttemptId& id, const Outcome& outcome) {
  const auto it = attempts_.find(id);
  using Process = Attempt::Process;
  if (it == attempts_.end() || !it->second.begun || it->second.process == Process::kOver) return;
  Attempt& attempt = it->second;
  attempt.process = Process::kOver;
  attempt.outcome = outcome;
  if (attempt.started) written[id] = attempt.log;
  TellLater(timeline_.Between(0ms, 10ms),
            worker::ProgramEnded{id, attempt.started, outcome, std::ssize(attempt.log)});
  AnswerRead(id);
}

void Machine::AnswerRead(const AttemptId& id) {
  Attempt& attempt = attempts_.at(id);
  const bool over = attempt.process == Attempt::Process::kOver;
  if (!attempt.read_from || agent_ == nullptr) return;
  const std::int64_t from = *attempt.read_from;
  const std::int64_t left = std::ssize(attempt.log) - from;
  if (left <= 0 && !over) return;
  const std::int64_t size = left <= 0 ? 0 : timeline_.Draw(1, left);
  attempt.read_from.reset();
  TellLater(timeline_.Between(0ms, 5ms),
            worker::LogRead{
                id, from,
                attempt.log.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(size)),
                over && size >= left});
}

// ---- What must hold. ----

void Machine::Check() const {
  if (!link_ || !welcomed_ || !server_.IsSession(*link_)) return;
  std::int32_t slots = 0;
  for (const auto& [id, attempt] : attempts_) {
    const bool alive = attempt.begun && attempt.process != Attempt::Process::kOver;
    if (!alive || attempt.dying) continue;
    slots += attempt.what.allocation.slots;
    const AttemptRecord& row = server_.store.attempts.at(attempt.what.key.ref);
    EXPECT_TRUE(row.state != AttemptState::kEnded && row.state != AttemptState::kLost)
        << profile_.name << " runs what is over: " << id.value();
  }
  EXPECT_LE(slots, profile_.resources.slots) << profile_.name << " runs more than it has room for";
}

bool Machine::Idle() const { return agent_ && agent_->idle() && attempts_.empty(); }

}  // namespace gpulayer::sim
