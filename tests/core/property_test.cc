// Random events, one after the other, with workers that follow orders, forget, crash and repeat
// themselves. After each: the core's invariants, the rows' rules, and that a restart would find
// what is there.
#include <gtest/gtest.h>  // rapidcheck/gtest.h does not include it
//
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <map>

#include "core/bench.h"

namespace gpulayer::testing {
namespace {

using core::AttemptEnded;
using core::AttemptProgress;
using core::Effect;
using core::Event;

// One random step: what happens, and two numbers that choose to whom and how.
struct Op {
  int what;
  int a;
  int b;
};
void showValue(const Op& op, std::ostream& os) {  // NOLINT: the name that RapidCheck looks for
  os << "{" << op.what << ", " << op.a << ", " << op.b << "}";
}

struct FakeWorker {
  WorkerProfile profile;
  SessionId session;
  int boot = 1;
  std::map<AttemptId, core::WorkerConnected::Held> held;
};

class World {
 public:
  World() : core_(kOptions, StoreImage().Load(kServer), now_) {
    for (int i = 0; i < 3; ++i) {
      FakeWorker& w = workers_[i];
      w.profile.name = "w" + std::to_string(i);
      w.profile.id = WorkerId("id-" + w.profile.name);
      w.profile.resources = {i + 1, 4 << 20, {}};
      for (int d = 0; d < i; ++d) {
        w.profile.resources.devices.push_back({w.profile.name + "-g" + std::to_string(d),
                                               AcceleratorKind::kCuda, "x", (d + 1) << 20});
      }
    }
  }

  void Do(const Op& op) {
    FakeWorker& w = workers_[op.a % 3];
    switch (op.what) {
      case 0:
      case 1: return Submit(op);
      case 2: return Connect(w);
      case 3: return Disconnect(w);
      case 4:
      case 5:
      case 6: return Progress(w, op.b);
      case 7:
      case 8: return End(w, op.b);
      case 9:
        if (!said_.empty()) Apply(said_[op.a % said_.size()]);
        return;
      case 10: return Cancel(op);
      case 11: return Pass(op.b % 12 + 1, nullptr);
      case 12: return Pass(70, &w);
      case 13: return RestartServer();
      case 14:  // the machine crashes
        w.held.clear();
        ++w.boot;
        return Disconnect(w);
      case 15:  // its credential is revoked; it joins again when it connects
        Apply(core::WorkerRevoked{w.profile.id});
        return Disconnect(w);
      default:
        w.profile.resources.slots = op.b % 4 + 1;
        if (w.session.value() != 0) {
          Apply(core::WorkerHeard{w.session, w.profile.resources});
        }
    }
  }

  // No more faults, and every worker can run everything: it must come to its end.
  void Settle() {
    for (auto& [i, w] : workers_) {
      w.profile.resources.slots = 4;
      w.profile.resources.devices = {
          {w.profile.name + "-g0", AcceleratorKind::kCuda, "x", 2 << 20},
          {w.profile.name + "-g1", AcceleratorKind::kCuda, "x", 2 << 20}};
      Connect(w);
    }
    for (int round = 0; round < 400 && !AllEnded(); ++round) {
      for (auto& [i, w] : workers_) {
        const auto held = w.held;
        for (const auto& [id, h] : held) Say(AttemptEnded{w.session, h.key, true, Exit(0), {}, 1});
      }
      Pass(1, nullptr);
    }
    RC_ASSERT(AllEnded());
    for (auto& [i, w] : workers_) RC_ASSERT(w.held.empty());
  }

 private:
  bool AllEnded() const {
    return std::all_of(store_.jobs.begin(), store_.jobs.end(),
                       [](const auto& j) { return IsTerminal(j.second.state); });
  }

  void Apply(const Event& event) {
    const std::vector<Effect> effects = core_.Apply(event, now_);
    store_.Write(effects);
    RC_ASSERT(!::testing::Test::HasFailure());
    Deliver(effects);
    Check();
  }
  void Say(const Event& event) {
    said_.push_back(event);
    Apply(event);
  }

  void Deliver(const std::vector<Effect>& effects) {
    for (const Effect& effect : effects) {
      if (const auto* e = std::get_if<core::SendWelcome>(&effect)) {
        for (auto& [i, w] : workers_) {
          if (w.session != e->session) continue;
          std::map<AttemptId, core::WorkerConnected::Held> kept;
          for (const AttemptKey& key : e->keep) kept[key.id] = {key, w.held.at(key.id).state};
          RC_ASSERT(kept.size() + e->kill.size() == w.held.size());
          w.held = std::move(kept);
        }
      } else if (const auto* a = std::get_if<core::SendAssign>(&effect)) {
        for (auto& [i, w] : workers_) {
          if (w.session != a->session) continue;
          RC_ASSERT(w.held.emplace(a->key.id, core::WorkerConnected::Held{a->key}).second);
        }
      } else if (const auto* k = std::get_if<core::SendEndAck>(&effect)) {
        for (auto& [i, w] : workers_) {
          if (w.session == k->session && w.held.contains(k->key.id) &&
              w.held[k->key.id].key == k->key) {
            w.held.erase(k->key.id);
          }
        }
      } else if (const auto* c = std::get_if<core::CloseSession>(&effect)) {
        for (auto& [i, w] : workers_) {
          if (w.session == c->session) w.session = SessionId();
        }
      }
    }
  }

  void Check() {
    const std::vector<std::string> broken = core_.CheckInvariants();
    for (const std::string& line : broken) RC_LOG() << line << std::endl;
    RC_ASSERT(broken.empty());
    // What a connected worker holds is current, so no task runs twice at once.
    for (const auto& [i, w] : workers_) {
      if (w.session.value() == 0) continue;
      for (const auto& [id, held] : w.held) {
        const AttemptRecord& row = store_.attempts.at(held.key.ref);
        RC_ASSERT(row.id == id);
        RC_ASSERT(row.state != AttemptState::kEnded && row.state != AttemptState::kLost);
        RC_ASSERT(store_.tasks.at(held.key.ref.task).attempts == held.key.ref.number);
      }
    }
    // A restart would find the same.
    const core::Core again(kOptions, store_.Load(kServer), now_);
    RC_ASSERT(again.CheckInvariants().empty());
    RC_ASSERT(again.TotalCounts() == core_.TotalCounts());
    const auto before = core_.Workers();
    const auto after = again.Workers();
    RC_ASSERT(before.size() == after.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      RC_ASSERT(before[i].slots_used == after[i].slots_used);
      RC_ASSERT(before[i].devices_used == after[i].devices_used);
      RC_ASSERT(before[i].running == after[i].running);
      RC_ASSERT(before[i].record.epoch == after[i].record.epoch);
    }
    for (const auto& [id, job] : store_.jobs) {
      RC_ASSERT(core_.Explain(id, now_).ok() == !IsTerminal(job.state));
    }
  }

  void Submit(const Op& op) {
    SpecBuilder spec;
    spec.Request(op.b % 7 == 0 ? "again" : "r" + std::to_string(said_.size() * 1000 + op.a));
    spec.Slots(op.a % 3 + 1).Tasks(op.b % 4 + 1);
    if (op.a % 5 == 0) spec.Cuda(op.b % 2 + 1, op.b % 3 == 0 ? 2 << 20 : 0);
    if (op.b % 5 == 0) spec.On("w" + std::to_string(op.a % 3));
    spec.spec.wait_for_worker = op.b % 2 == 0;
    core::SubmitJobs e{core::ReplyTag(1), {UserName("ann")}, {}};
    e.specs.push_back(std::make_shared<const JobSpec>(spec.spec));
    Say(e);
  }

  void Connect(FakeWorker& w) {
    core::WorkerConnected e;
    w.session = e.session = SessionId(++sessions_);
    e.profile = w.profile;
    e.boot_id = std::to_string(w.boot);
    for (const auto& [id, held] : w.held) e.held.push_back(held);
    Apply(e);
  }
  void Disconnect(FakeWorker& w) {
    if (w.session.value() == 0) return;
    const SessionId session = w.session;
    w.session = SessionId();
    Say(core::WorkerDisconnected{session});
  }

  core::WorkerConnected::Held* Pick(FakeWorker& w, int b) {
    if (w.session.value() == 0 || w.held.empty()) return nullptr;
    auto it = w.held.begin();
    std::advance(it, b % static_cast<int>(w.held.size()));
    return &it->second;
  }
  void Progress(FakeWorker& w, int b) {
    auto* held = Pick(w, b);
    if (held == nullptr || held->state == AttemptState::kFinishing) return;
    held->state = b % 3 == 0 ? AttemptState::kFinishing : AttemptState::kRunning;
    Say(AttemptProgress{w.session, held->key, held->state,
                        held->state == AttemptState::kFinishing ? Exit(b % 2) : Outcome()});
  }
  void End(FakeWorker& w, int b) {
    auto* held = Pick(w, b);
    if (held == nullptr) return;
    const std::array<Outcome, 8> ends = {Exit(0),
                                         Exit(0),
                                         Exit(3),
                                         Because(CauseKind::kSpawnFailed),
                                         Because(CauseKind::kCancelled),
                                         Because(CauseKind::kTimeLimit),
                                         Because(CauseKind::kWorkerLost),
                                         Because(CauseKind::kServerStopped)};
    const bool started = held->state != AttemptState::kPreparing;
    Say(AttemptEnded{w.session, held->key, started, ends[b % 8], {}, 1});
  }

  void Cancel(const Op& op) {
    if (store_.jobs.empty()) return;
    core::CancelTasks e{core::ReplyTag(1), {UserName("ann")}, {}, {}, op.b % 4 == 0};
    const JobId job(op.a % static_cast<int>(store_.jobs.size()) + 1);
    e.tasks.push_back({job, op.b % 3 == 0 ? std::nullopt : std::optional(TaskIndex(op.b % 4))});
    Say(e);
  }
  void Pass(int seconds, const FakeWorker* silent) {
    for (int i = 0; i < seconds; ++i) {
      now_.mono += 1s;
      now_.wall += 1s;
      for (auto& [n, w] : workers_) {
        if (&w != silent && w.session.value() != 0) Apply(core::WorkerHeard{w.session, {}});
      }
      Apply(core::Tick{});
    }
  }
  void RestartServer() {
    core_ = core::Core(kOptions, store_.Load(kServer), now_);
    for (auto& [i, w] : workers_) w.session = SessionId();
    Check();
  }

  Instant now_{TimePoint(1h), FromMicros(1'800'000'000'000'000)};
  core::Core core_;
  StoreImage store_;
  std::map<int, FakeWorker> workers_;
  std::vector<Event> said_;
  std::int64_t sessions_ = 0;
};

RC_GTEST_PROP(CorePropertyTest, RandomEventsKeepTheInvariants, ()) {
  const auto ops = *rc::gen::container<std::vector<Op>>(rc::gen::construct<Op>(
      rc::gen::inRange(0, 17), rc::gen::inRange(0, 1000), rc::gen::inRange(0, 1000)));
  World world;
  for (const Op& op : ops) world.Do(op);
  world.Settle();
}

}  // namespace
}  // namespace gpulayer::testing
