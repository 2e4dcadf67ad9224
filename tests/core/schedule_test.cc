// Where tasks go and in which order.
#include "core/bench.h"
#include "server/core/placement.h"

namespace gpulayer::testing {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Device Cuda(const std::string& id, std::int64_t gib) {
  return {id, AcceleratorKind::kCuda, "L4", gib * kGiB};
}

TEST(PlacementTest, TheSmallestDevicesThatDo) {
  const Resources has{8, 64 * kGiB, {Cuda("big", 80), Cuda("b", 24), Cuda("a", 24), Cuda("s", 8)}};
  const auto fit = [&](SpecBuilder b, const std::set<std::string>& used) {
    const auto allocation = core::Fit(b.spec.requirements, core::FreeOf(has, 0, 0, used));
    return allocation ? allocation->device_ids : std::vector<std::string>{"none"};
  };
  using V = std::vector<std::string>;
  EXPECT_EQ(fit(SpecBuilder().Cuda(1), {}), V{"s"});
  EXPECT_EQ(fit(SpecBuilder().Cuda(2, 16 * kGiB), {}), (V{"a", "b"}));
  EXPECT_EQ(fit(SpecBuilder().Cuda(2, 16 * kGiB), {"a"}), (V{"b", "big"}));
  EXPECT_EQ(fit(SpecBuilder().Cuda(2, 16 * kGiB), {"a", "b"}), V{"none"});
  EXPECT_EQ(fit(SpecBuilder(), {"a", "b", "big", "s"}), V{});
}

TEST(PlacementTest, SettingAsideLeavesWhatIsNotNeeded) {
  const Resources has{4, 16 * kGiB, {Cuda("a", 24), Cuda("b", 24)}};
  core::FreeCapacity free = core::FreeOf(has, 1, 0, {"a"});
  core::SetAside(SpecBuilder().Slots(2).Memory(20 * kGiB).Cuda(2).spec.requirements, free);
  EXPECT_EQ(free.slots, 1);
  EXPECT_EQ(free.memory_bytes, 0);
  EXPECT_TRUE(free.devices.empty());
}

TEST(ScheduleTest, BestFitKeepsLargeMachinesForLargeWork) {
  Bench b;
  b.Connect("large", {16, 64 * kGiB, {}});
  b.Connect("gpu", {4, 16 * kGiB, {Cuda("g", 24)}});
  b.Connect("small", {4, 16 * kGiB, {}});
  const JobId cpu = b.Submit(SpecBuilder().Slots(4));
  EXPECT_EQ(b.WorkerOf(cpu), "small");
  const JobId gpu = b.Submit(SpecBuilder().Cuda(1));
  EXPECT_EQ(b.WorkerOf(gpu), "gpu");
  EXPECT_EQ(b.View("gpu").devices_used, std::vector<std::string>{"g"});
}

TEST(ScheduleTest, OrderOfSubmitAcrossClasses) {
  Bench b;
  const JobId a = b.Submit(SpecBuilder().Slots(1));
  const JobId c = b.Submit(SpecBuilder().Slots(2));
  const JobId d = b.Submit(SpecBuilder().Slots(1));
  b.Connect("w1", {2, kGiB, {}});
  EXPECT_EQ(b.State(a), TaskState::kPreparing);
  EXPECT_EQ(b.State(c), TaskState::kQueued);
  EXPECT_EQ(b.State(d), TaskState::kQueued);  // the free slot is kept for c
  b.Ended(a);
  EXPECT_EQ(b.State(c), TaskState::kPreparing);
  b.Ended(c);
  EXPECT_EQ(b.State(d), TaskState::kPreparing);
}

TEST(ScheduleTest, AStreamOfSmallTasksDoesNotStarveALargeOne) {  // F30
  Bench b;
  b.Connect("w1", {4, kGiB, {}});
  b.Connect("w2", {4, kGiB, {}});
  std::vector<JobId> small;
  for (int i = 0; i < 8; ++i) small.push_back(b.Submit({}));
  const JobId large = b.Submit(SpecBuilder().Slots(4));
  for (int i = 0; i < 100; ++i) small.push_back(b.Submit({}));
  int ends = 0;
  for (std::size_t i = 0; b.State(large) == TaskState::kQueued && i < small.size(); ++i) {
    if (b.State(small[i]) != TaskState::kPreparing) continue;
    b.Ended(small[i]);
    ++ends;
  }
  EXPECT_EQ(b.State(large), TaskState::kPreparing);
  EXPECT_LE(ends, 8);  // both workers' load of when it came, at most
}

TEST(ScheduleTest, WaitingForADeviceDoesNotIdleTheSlots) {
  Bench b;
  b.Connect("gpu", {4, 16 * kGiB, {Cuda("g", 24)}});
  const JobId first = b.Submit(SpecBuilder().Cuda(1));
  const JobId second = b.Submit(SpecBuilder().Cuda(1));
  const JobId cpu = b.Submit(SpecBuilder().Slots(2));
  const JobId cpu2 = b.Submit(SpecBuilder().Slots(1));
  EXPECT_EQ(b.State(second), TaskState::kQueued);
  EXPECT_EQ(b.State(cpu), TaskState::kPreparing);
  EXPECT_EQ(b.State(cpu2), TaskState::kQueued);  // the last slot is the second one's
  b.Ended(first);
  EXPECT_EQ(b.State(second), TaskState::kPreparing);
}

TEST(ScheduleTest, ARequeuedTaskKeepsItsPlace) {
  Bench b;
  b.Connect("w1", {1, kGiB, {}});
  const JobId job = b.Submit(SpecBuilder().Tasks(3));
  b.Running(job, 0);
  b.Connect("w1", {1, kGiB, {}});  // lost it
  EXPECT_EQ(b.State(job, 0), TaskState::kPreparing);
  EXPECT_EQ(b.State(job, 1), TaskState::kQueued);
}

TEST(ScheduleTest, WorkersByNameOrId) {
  Bench b;
  b.Connect("w1");
  b.Connect("w2");
  EXPECT_EQ(b.WorkerOf(b.Submit(SpecBuilder().On("w2"))), "w2");
  EXPECT_EQ(b.WorkerOf(b.Submit(SpecBuilder().On("id-w1"))), "w1");
}

TEST(ExplainTest, WhoIsInTheWay) {
  Bench b;
  b.Connect("box", {4, 16 * kGiB, {Cuda("g", 24)}});
  b.Connect("tiny", {1, kGiB, {}});
  const JobId running = b.Submit(SpecBuilder().Slots(3).Cuda(1));
  const JobId waits = b.Submit(SpecBuilder().Slots(2).Cuda(1));
  b.Step(90s);
  const Explanation e = *b.core().Explain(waits, b.now());
  EXPECT_EQ(e.state, TaskState::kQueued);
  EXPECT_EQ(e.needs, "2 slots, cuda");
  EXPECT_EQ(e.ahead, 0);
  ASSERT_EQ(e.workers.size(), 2u);
  EXPECT_EQ(e.workers[0].kind, WorkerReason::Kind::kNotNow);
  EXPECT_THAT(e.workers[0].lacks, ::testing::ElementsAre("3 of 4 slots in use by job 1",
                                                         "1 of 1 device in use by job 1"));
  EXPECT_EQ(e.workers[1].kind, WorkerReason::Kind::kNever);
  EXPECT_EQ(e.summary,
            "waits (1m30s): box: 3 of 4 slots in use by job 1, 1 of 1 device in use by job 1");
  EXPECT_EQ(b.core().Explain(running, b.now())->summary, "no task of it waits");
}

TEST(ExplainTest, WhatWaitsAgainWaitsSinceThen) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Step(60s);
  b.Ended(job, 0, Because(CauseKind::kServerStopped));
  b.Step(10s);
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  EXPECT_THAT(b.core().Explain(job, b.now())->summary, ::testing::HasSubstr("waits (10s)"));
}

TEST(ExplainTest, NeverAndNobodyAndKeptForAnother) {
  Bench b;
  const JobId first = b.Submit(SpecBuilder().Slots(4));
  EXPECT_EQ(b.core().Explain(first, b.now())->summary, "waits: no worker is known yet");
  const SessionId s = b.Connect("w1", {2, kGiB, {}});
  EXPECT_EQ(b.core().Explain(first, b.now())->summary,
            "waits: never, with the workers of now; it needs 4 slots");
  b.Apply(core::WorkerHeard{s, Resources{4, kGiB, {}}});
  EXPECT_EQ(b.State(first), TaskState::kPreparing);
  const JobId small = b.Submit({});
  const JobId large = b.Submit(SpecBuilder().Slots(4));
  const JobId later = b.Submit(SpecBuilder().Slots(2));
  b.Ended(first);
  EXPECT_EQ(b.State(small), TaskState::kPreparing);
  EXPECT_EQ(b.State(large), TaskState::kQueued);
  const Explanation e = *b.core().Explain(later, b.now());
  EXPECT_EQ(e.ahead, 1);
  EXPECT_EQ(e.workers[0].kind, WorkerReason::Kind::kHeld);
  EXPECT_EQ(e.summary, "waits: 1 task ahead; w1: kept free for job 3");
}

}  // namespace
}  // namespace gpulayer::testing
