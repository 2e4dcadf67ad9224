// A whole installation in one thread: the real core, two real agents, and a network, machines and
// clients that fail by chance. GPULAYER_SIM_SEED=N runs one seed and prints what happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/machine.h"
#include "sim/server.h"
#include "sim/timeline.h"

namespace gpulayer::sim {
namespace {

constexpr int kSeeds = 200;
constexpr Duration kFaultTime = 4min;
constexpr Duration kPatience = 1h;  // of simulated time, once nothing fails any more

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed)
      : timeline_(seed),
        server_(timeline_),
        a_(timeline_, server_, "a", {2, 8 << 20, {}}),
        b_(timeline_, server_, "b", {4, 8 << 20, {}}) {}

  void Run() {
    ClientActs();
    FaultStrikes();
    while (timeline_.elapsed() < kFaultTime && Step()) {
    }
    timeline_.Note("no more faults");
    server_.faults = a_.faults = b_.faults = false;
    while (timeline_.elapsed() < kFaultTime + kPatience && !Settled() && Step()) {
    }
    if (!::testing::Test::HasFailure()) CheckEnd();
  }
  const Timeline& timeline() const { return timeline_; }

 private:
  bool Step() {
    timeline_.Step();
    a_.Check();
    b_.Check();
    return !::testing::Test::HasFailure();
  }
  bool Settled() const {
    return requests_open_.empty() && server_.AllEnded() && a_.Idle() && b_.Idle();
  }

  void ClientActs() {
    if (timeline_.elapsed() < kFaultTime && !timeline_.Chance(30)) {
      const int kind = static_cast<int>(timeline_.Draw(0, 9));
      if (kind < 6) {
        Submit();
      } else if (kind < 9) {
        Cancel();
      }
    }
    RepeatUnanswered();
    timeline_.After(timeline_.Between(200ms, 10s), [this] { ClientActs(); });
  }

  void Submit() {
    JobSpec spec;
    spec.command = {"work"};
    spec.array = true;
    spec.tasks = {timeline_.Draw(0, 9), timeline_.Draw(1, 3), timeline_.Draw(1, 5)};
    spec.max_parallel = timeline_.Draw(0, 2);
    spec.requirements.slots = static_cast<std::int32_t>(timeline_.Draw(1, 4));
    spec.wait_for_worker = true;
    spec.grace = timeline_.Between(0s, 15s);
    spec.outputs.collect = timeline_.Chance(70);
    spec.request_id = RequestId("request-" + std::to_string(++requests_));
    Send(std::make_shared<const JobSpec>(spec));
  }
  void Send(const std::shared_ptr<const JobSpec>& spec) {
    requests_open_[spec->request_id] = spec;
    const auto reply = server_.Ask(core::SubmitJobs{core::ReplyTag(1), {UserName("ann")}, {spec}});
    if (!reply || timeline_.Chance(10)) return;  // the answer is lost: said again later
    requests_open_.erase(spec->request_id);
    const auto* submitted = std::get_if<core::SubmitReply>(&*reply);
    ASSERT_NE(submitted, nullptr);
    const auto [it, is_new] = answers_.emplace(spec->request_id, submitted->jobs.at(0).job);
    EXPECT_EQ(it->second, submitted->jobs.at(0).job) << "one request, two jobs";
  }
  void RepeatUnanswered() {
    const auto open = requests_open_;
    for (const auto& [id, spec] : open) Send(spec);
    if (!answers_.empty() && timeline_.Chance(20)) {  // a repeat out of nowhere
      const auto& [id, job] = *answers_.begin();
      Send(server_.store.jobs.at(job).spec);
    }
  }
  void Cancel() {
    if (server_.store.jobs.empty()) return;
    core::CancelTasks cancel{core::ReplyTag(1), {UserName("ann")}, {}, {}, timeline_.Chance(20)};
    const JobId job(timeline_.Draw(1, std::ssize(server_.store.jobs)));
    cancel.tasks.push_back({job, std::nullopt});
    if (timeline_.Chance(30)) cancel.tasks[0].task = TaskIndex(0);
    const bool whole = !cancel.tasks[0].task;
    if (server_.Ask(cancel) && whole) cancelled_.emplace(job, timeline_.now().wall);
  }

  void FaultStrikes() {
    if (timeline_.elapsed() >= kFaultTime) return;
    Machine& machine = timeline_.Chance(50) ? a_ : b_;
    const Duration down =
        timeline_.Chance(80) ? timeline_.Between(100ms, 20s) : timeline_.Between(60s, 100s);
    switch (timeline_.Draw(0, 9)) {
      case 0: machine.Partition(down); break;
      case 1: machine.KillDaemon(down); break;
      case 2: machine.PowerOff(down); break;
      case 3: machine.Leave(down); break;
      case 4: server_.Crash(down); break;
      case 5: server_.Freeze(down); break;
      case 6: server_.Repeat(); break;
      default: machine.CutLink();
    }
    timeline_.After(timeline_.Between(100ms, 30s), [this] { FaultStrikes(); });
  }

  void CheckEnd() {
    for (const auto& [id, job] : server_.store.jobs) {
      EXPECT_TRUE(IsTerminal(job.state)) << "job " << id << " hangs, " << ToString(job.state);
    }
    EXPECT_TRUE(a_.Idle() && b_.Idle()) << "a worker keeps something";
    for (const auto& [request, job] : answers_) EXPECT_TRUE(server_.store.jobs.contains(job));
    for (const auto& [ref, attempt] : server_.store.attempts) {
      EXPECT_TRUE(attempt.state == AttemptState::kEnded || attempt.state == AttemptState::kLost);
      if (const auto it = cancelled_.find(ref.task.job); it != cancelled_.end()) {
        EXPECT_LE(attempt.created, it->second) << ToString(ref) << " began after its cancel";
      }
      if (attempt.state != AttemptState::kEnded || !attempt.started) continue;
      // Not a byte of its log is lost, and none is there twice.
      const auto& written = attempt.worker_name == "a" ? a_.written : b_.written;
      if (!written.contains(attempt.id)) continue;  // its power went before it could say
      EXPECT_EQ(server_.logs[attempt.id], written.at(attempt.id)) << ToString(ref);
      EXPECT_EQ(attempt.log_bytes, std::ssize(written.at(attempt.id))) << ToString(ref);
    }
    for (const auto& [ref, task] : server_.store.tasks) {
      if (task.state != TaskState::kSucceeded) continue;
      const AttemptRecord& last = server_.store.attempts.at({ref, task.attempts});
      EXPECT_EQ(last.state, AttemptState::kEnded);
      EXPECT_EQ(last.outcome.exit_code, 0);
    }
  }

  Timeline timeline_;
  Server server_;
  Machine a_;
  Machine b_;
  int requests_ = 0;
  std::map<RequestId, std::shared_ptr<const JobSpec>> requests_open_;
  std::map<RequestId, JobId> answers_;
  std::map<JobId, WallTime> cancelled_;  // the whole job, first time
};

TEST(SimTest, EverythingEndsAndNothingIsLost) {
  const char* chosen = std::getenv("GPULAYER_SIM_SEED");
  const std::uint64_t first = chosen == nullptr ? 1 : std::strtoull(chosen, nullptr, 10);
  const std::uint64_t last = chosen == nullptr ? kSeeds : first;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Simulation simulation(seed);
    simulation.Run();
    if (chosen != nullptr) {
      for (const std::string& line : simulation.timeline().trace()) std::cerr << line << "\n";
    }
    ASSERT_FALSE(HasFailure()) << "replay with GPULAYER_SIM_SEED=" << seed;
  }
}

}  // namespace
}  // namespace gpulayer::sim
