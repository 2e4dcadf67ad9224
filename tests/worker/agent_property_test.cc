// Random lives of a few attempts: a small world answers the agent's actions late, in any order,
// with cuts, stops and refusals between, and checks what must hold after every step.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/agent/agent.h"

namespace gpulayer::worker {
namespace {

using namespace std::chrono_literals;

constexpr int kAttempts = 4;

// One attempt as machine and server see it.
struct Truth {
  bool assigned = false;
  bool preparing = false;
  bool abandoned = false;
  bool started = false;  // Start was asked for
  bool running = false;
  bool over = false;
  bool collecting = false;
  bool forgotten = false;
  bool killed = false;
  std::string log;                   // on the machine
  std::string stored;                // on the server
  std::optional<std::int64_t> read;  // unanswered
  std::int64_t sent_on_session = 0;
  bool acked = false;
  int ended_on_session = 0;
  std::vector<std::int64_t> acks_due;
  bool end_ack_due = false;
};

class World {
 public:
  void Step() {
    const int n = *rc::gen::inRange(0, kAttempts);
    Truth& t = truth_[n];
    switch (*rc::gen::inRange(0, 12)) {
      case 0: return connected_ ? Cut() : Connect();
      case 1:
        if (connected_ && !t.assigned) {
          t.assigned = true;
          Do(Assigned{Work(n)});
        }
        return;
      case 2:
        if (connected_ && t.assigned && !t.acked && !t.killed) {
          Do(StopOrdered{
              Key(n), {CauseKind::kCancelled, "x"}, *rc::gen::element<Duration>(0s, 5s)});
        }
        return;
      case 3:
        if (t.preparing && *rc::gen::inRange(0, 3) == 0) return Do(PrepareBegun{Id(n)});
        if (t.preparing) {
          t.preparing = false;
          Do(Prepared{Id(n), *rc::gen::element(OkStatus(), OkStatus(), Unavailable("cut"),
                                               NotFound("no blob"))});
        }
        return;
      case 4:
        if (t.started && !t.running && !t.over) {
          t.running = true;
          Do(ProgramStarted{Id(n)});
        }
        return;
      case 5:
        if (t.running && !t.over) t.log += "0123456789";
        return;
      case 6:
        if (t.started && !t.over) {
          t.over = true;
          Do(ProgramEnded{Id(n),
                          t.running,
                          {0, {}, {CauseKind::kProgram, ""}},
                          static_cast<std::int64_t>(t.log.size())});
        }
        return;
      case 7:
        if (t.collecting) {
          t.collecting = false;
          if (*rc::gen::inRange(0, 3) == 0) {
            Do(OutputsCollected{Id(n), Unavailable("cut")});
          } else {
            Do(OutputsCollected{Id(n), OutputResult{}});
          }
        }
        return;
      case 8: return AnswerRead(n);
      case 9:
        if (connected_ && !t.acks_due.empty()) {
          const std::int64_t size = t.acks_due.front();
          t.acks_due.erase(t.acks_due.begin());
          Do(LogAcked{Key(n), size, true});
        }
        return;
      case 10:
        if (connected_ && t.end_ack_due) {
          t.end_ack_due = false;
          t.acked = true;
          Do(EndAcked{Key(n), true, {}});
        }
        return;
      case 11: now_ += 3s; return Do(Tick{});
    }
  }

  // Everything answers; at the end nothing is left.
  void Drain() {
    for (int round = 0; round < 200 && !agent_.idle(); ++round) {
      if (!connected_) Connect();
      for (int n = 0; n < kAttempts; ++n) {
        Truth& t = truth_[n];
        if (t.preparing) {
          t.preparing = false;
          Do(Prepared{Id(n), OkStatus()});
        }
        if (t.started && !t.over) {
          t.over = true;
          Do(ProgramEnded{Id(n),
                          true,
                          {0, {}, {CauseKind::kProgram, ""}},
                          static_cast<std::int64_t>(t.log.size())});
        }
        if (t.collecting) {
          t.collecting = false;
          Do(OutputsCollected{Id(n), OutputResult{}});
        }
        AnswerRead(n);
        while (!t.acks_due.empty()) {
          const std::int64_t size = t.acks_due.front();
          t.acks_due.erase(t.acks_due.begin());
          Do(LogAcked{Key(n), size, true});
        }
        if (t.end_ack_due) {
          t.end_ack_due = false;
          t.acked = true;
          Do(EndAcked{Key(n), true, {}});
        }
      }
      now_ += 3s;
      Do(Tick{});
    }
    RC_ASSERT(agent_.idle());
    for (const auto& [n, t] : truth_) {
      RC_ASSERT(!t.assigned || t.forgotten);
      if (t.acked) RC_ASSERT(t.stored == t.log);
    }
  }

 private:
  AttemptId Id(int n) const { return AttemptId("a" + std::to_string(n)); }
  AttemptKey Key(int n) const {
    AttemptKey key;
    key.id = Id(n);
    key.epoch = WorkerEpoch(epoch_);
    return key;
  }
  Assignment Work(int n) const {
    auto spec = std::make_shared<JobSpec>();
    spec->outputs.collect = n % 2 == 0;
    return {Key(n), UserName("u"), spec, {}};
  }

  void Cut() {
    connected_ = false;
    for (auto& [n, t] : truth_) {
      t.acks_due.clear();
      t.end_ack_due = false;
      t.sent_on_session = 0;
      t.ended_on_session = 0;
    }
    Do(Disconnected{});
  }

  void Connect() {
    connected_ = true;
    ++epoch_;
    Connected e{{"s", 1}, WorkerEpoch(epoch_), {}, {}};
    for (const Agent::Held& held : agent_.HeldAttempts()) {
      const int n = held.key.id.value()[1] - '0';
      Truth& t = truth_[n];
      if (t.killed || t.acked || *rc::gen::inRange(0, 8) == 0) {
        t.killed = true;
        e.kill.push_back(held.key);
      } else {
        e.keep.push_back(Key(n));
      }
    }
    Do(e);
  }

  void AnswerRead(int n) {
    Truth& t = truth_[n];
    if (!t.read) return;
    const auto from = static_cast<std::size_t>(*t.read);
    RC_ASSERT(from <= t.log.size());
    const std::string data = t.log.substr(from, 7);
    const bool final = t.over && from + data.size() == t.log.size();
    if (data.empty() && !final) return;
    const std::int64_t offset = *t.read;
    t.read.reset();
    Do(LogRead{Id(n), offset, data, final});
  }

  void Do(Event event) {
    for (const Action& action : agent_.Apply(std::move(event), now_)) {
      std::visit([&](const auto& a) { On(a); }, action);
    }
  }

  Truth& Of(const AttemptId& id) {
    Truth& t = truth_[id.value()[1] - '0'];
    RC_ASSERT(!t.forgotten);
    return t;
  }
  // What every message must satisfy.
  Truth& Sent(const AttemptKey& key) {
    Truth& t = Of(key.id);
    RC_ASSERT(connected_);
    RC_ASSERT(key.epoch.value() == epoch_);
    RC_ASSERT(!t.killed);
    RC_ASSERT(!t.acked);
    return t;
  }

  void On(const Prepare& a) {
    Truth& t = Of(a.assignment.key.id);
    RC_ASSERT(!t.preparing && !t.started && !t.abandoned && !t.killed);
    t.preparing = true;
  }
  void On(const AbandonPrepare& a) {
    RC_ASSERT(Of(a.id).preparing);
    Of(a.id).abandoned = true;
  }
  void On(const Start& a) {
    Truth& t = Of(a.id);
    RC_ASSERT(!t.started && !t.preparing && !t.abandoned && !t.killed);
    t.started = true;
  }
  void On(const StopProgram& a) { RC_ASSERT(Of(a.id).started && !Of(a.id).over); }
  void On(const CollectOutputs& a) {
    Truth& t = Of(a.id);
    RC_ASSERT(t.over && !t.collecting && !t.killed);
    t.collecting = true;
  }
  void On(const AbandonCollect& a) { RC_ASSERT(Of(a.id).collecting); }
  void On(const ReadLog& a) {
    RC_ASSERT(!Of(a.id).killed);
    Of(a.id).read = a.from;
  }
  void On(const SendProgress& a) { Sent(a.key); }
  void On(const SendLog& a) {
    Truth& t = Sent(a.key);
    RC_ASSERT(t.ended_on_session == 0);
    const auto size = static_cast<std::int64_t>(t.stored.size());
    RC_ASSERT(a.offset <= size);  // no gap
    t.stored.resize(static_cast<std::size_t>(a.offset));
    t.stored += a.data;
    RC_ASSERT(t.log.substr(0, t.stored.size()) == t.stored);
    t.sent_on_session = static_cast<std::int64_t>(t.stored.size());
    t.acks_due.push_back(t.sent_on_session);
  }
  void On(const SendEnded& a) {
    Truth& t = Sent(a.key);
    RC_ASSERT(++t.ended_on_session == 1);
    RC_ASSERT(t.stored == t.log);
    RC_ASSERT(a.log_bytes == static_cast<std::int64_t>(t.log.size()));
    RC_ASSERT(!t.started || t.over);
    RC_ASSERT(!t.collecting);
    t.end_ack_due = true;
  }
  void On(const Forget& a) {
    Truth& t = Of(a.id);
    RC_ASSERT(t.acked || t.killed);
    RC_ASSERT(!t.preparing && !t.collecting && (!t.started || t.over));
    t.forgotten = true;
    t.read.reset();
  }

  Agent agent_;
  std::map<int, Truth> truth_;
  bool connected_ = false;
  std::int64_t epoch_ = 0;
  TimePoint now_{1h};
};

RC_GTEST_PROP(AgentProperty, EveryAttemptIsReportedWholeAndReleased, ()) {
  World world;
  const int steps = *rc::gen::resize(100, rc::gen::inRange(0, 600));
  for (int i = 0; i < steps; ++i) world.Step();
  world.Drain();
}

}  // namespace
}  // namespace gpulayer::worker
