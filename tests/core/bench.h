// A core with a clock, a store and short ways to say what happens. Every event is followed by a
// check of the invariants and of the stored rows.
#ifndef GPULAYER_TESTS_CORE_BENCH_H_
#define GPULAYER_TESTS_CORE_BENCH_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/store_image.h"
#include "server/core/core.h"

namespace gpulayer::testing {

using namespace std::chrono_literals;  // NOLINT: tests say 30s often

inline const ServerIdentity kServer{"0123456789abcdef0123456789abcdef", 1};
inline constexpr core::Options kOptions{10s, 60s};

template <typename T>
std::vector<T> All(const std::vector<core::Effect>& effects) {
  std::vector<T> out;
  for (const core::Effect& e : effects) {
    if (const T* t = std::get_if<T>(&e)) out.push_back(*t);
  }
  return out;
}

// A spec by default runs one command on one slot.
struct SpecBuilder {
  JobSpec spec;
  SpecBuilder() { spec.command = {"true"}; }
  SpecBuilder& Slots(int n) {
    spec.requirements.slots = n;
    return *this;
  }
  SpecBuilder& Memory(std::int64_t n) {
    spec.requirements.memory_bytes = n;
    return *this;
  }
  SpecBuilder& Cuda(int n, std::int64_t memory = 0) {
    spec.requirements.accelerator = AcceleratorKind::kCuda;
    spec.requirements.devices = n;
    spec.requirements.device_memory_bytes = memory;
    return *this;
  }
  SpecBuilder& On(const std::string& worker) {
    spec.requirements.workers = {worker};
    return *this;
  }
  SpecBuilder& Tasks(std::int64_t n) {
    spec.array = true;
    spec.tasks.count = n;
    return *this;
  }
  SpecBuilder& Request(const std::string& id) {
    spec.request_id = RequestId(id);
    return *this;
  }
  SpecBuilder& Wait() {
    spec.wait_for_worker = true;
    return *this;
  }
};

inline Outcome Exit(int code) {
  Outcome o;
  o.exit_code = code;
  o.cause.kind = CauseKind::kProgram;
  return o;
}
inline Outcome Because(CauseKind kind, std::string text = "") {
  Outcome o;
  o.cause = {kind, std::move(text)};
  return o;
}

class Bench {
 public:
  Bench() : core_(kOptions, StoreImage().Load(kServer), now_) {}

  std::vector<core::Effect> Apply(const core::Event& event) {
    std::vector<core::Effect> effects = core_.Apply(event, now_);
    store.Write(effects);
    EXPECT_THAT(core_.CheckInvariants(), ::testing::IsEmpty());
    last = effects;
    return effects;
  }
  // Time passes with the engine's ticks, heard workers stay heard.
  void Pass(Duration d, const std::vector<SessionId>& heard = {}) {
    for (const Duration step = 1s; d > Duration::zero(); d -= step) {
      Step(std::min<Duration>(d, step));
      for (const SessionId s : heard) Apply(core::WorkerHeard{s, std::nullopt});
      Apply(core::Tick{});
    }
  }
  void Step(Duration d) {
    now_.mono += d;
    now_.wall += std::chrono::duration_cast<std::chrono::microseconds>(d);
  }
  void Restart() {
    core_ = core::Core(kOptions, store.Load(kServer), now_);
    sessions_.clear();
  }

  // The id of the job, or 0 with `status` set.
  JobId Submit(SpecBuilder b, const std::string& user = "ann") {
    if (b.spec.request_id.value().empty()) b.Request("r" + std::to_string(++requests_));
    core::SubmitJobs e{core::ReplyTag(1), {UserName(user)}, {}};
    e.specs.push_back(std::make_shared<const JobSpec>(b.spec));
    const core::ReplyBody body = Reply(e);
    if (const auto* s = std::get_if<Status>(&body)) {
      status = *s;
      return JobId();
    }
    submitted = std::get<core::SubmitReply>(body).jobs.at(0);
    return submitted.job;
  }
  core::ReplyBody Reply(const core::Event& e) {
    const auto replies = All<core::Reply>(Apply(e));
    EXPECT_EQ(replies.size(), 1u);
    return replies.at(0).body;
  }
  core::ReplyBody Cancel(JobId job, std::optional<int> task = {}, bool at_once = false,
                         const std::string& user = "ann", bool admin = false) {
    core::CancelTasks e{core::ReplyTag(1), {UserName(user), admin}, {}, {}, at_once};
    e.tasks.push_back({job, task ? std::optional(TaskIndex(*task)) : std::nullopt});
    return Reply(e);
  }

  SessionId Connect(const std::string& name, Resources resources = {4, 16ll << 30, {}},
                    std::vector<core::WorkerConnected::Held> held = {},
                    const std::string& boot = "boot") {
    core::WorkerConnected e;
    e.session = SessionId(++next_session_);
    e.profile.id = WorkerId("id-" + name);
    e.profile.name = name;
    e.profile.resources = std::move(resources);
    e.boot_id = boot;
    e.held = std::move(held);
    sessions_[name] = e.session;
    Apply(e);
    return e.session;
  }
  SessionId session(const std::string& name) { return sessions_.at(name); }

  // The key of the task's latest attempt as its worker knows it now.
  AttemptKey Key(JobId job, int task = 0) {
    const TaskRef ref{job, TaskIndex(task)};
    const AttemptRecord& a = store.attempts.at({ref, store.tasks.at(ref).attempts});
    return {kServer, a.ref, a.id, store.workers.at(a.worker).epoch};
  }
  SessionId SessionOf(const AttemptKey& key) {
    return sessions_.at(store.attempts.at(key.ref).worker_name);
  }
  std::vector<core::Effect> Running(JobId job, int task = 0) {
    const AttemptKey key = Key(job, task);
    return Apply(core::AttemptProgress{SessionOf(key), key, AttemptState::kRunning, {}});
  }
  std::vector<core::Effect> Finishing(JobId job, int task = 0, Outcome o = Exit(0)) {
    const AttemptKey key = Key(job, task);
    return Apply(core::AttemptProgress{SessionOf(key), key, AttemptState::kFinishing, o});
  }
  std::vector<core::Effect> Ended(JobId job, int task = 0, Outcome o = Exit(0),
                                  bool started = true) {
    const AttemptKey key = Key(job, task);
    return Apply(core::AttemptEnded{SessionOf(key), key, started, o, {}, 7});
  }

  TaskState State(JobId job, int task = 0) {
    const auto it = store.tasks.find({job, TaskIndex(task)});
    return it == store.tasks.end() ? TaskState::kQueued : it->second.state;
  }
  const TaskRecord& Task(JobId job, int task = 0) { return store.tasks.at({job, TaskIndex(task)}); }
  std::string WorkerOf(JobId job, int task = 0) {
    return store.attempts.at(Key(job, task).ref).worker_name;
  }
  WorkerView View(const std::string& name) {
    for (WorkerView& v : core_.Workers()) {
      if (v.record.profile.name == name) return std::move(v);
    }
    ADD_FAILURE() << "no worker " << name;
    return {};
  }

  core::Core& core() { return core_; }
  Instant now() const { return now_; }

  StoreImage store;
  std::vector<core::Effect> last;
  Status status;
  core::Submitted submitted;

 private:
  Instant now_{TimePoint(1h), FromMicros(1'800'000'000'000'000)};
  core::Core core_;
  std::map<std::string, SessionId> sessions_;
  std::int64_t next_session_ = 0;
  int requests_ = 0;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_CORE_BENCH_H_
