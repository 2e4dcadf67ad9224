#include "core/bench.h"

namespace gpulayer::testing {
namespace {

using core::CancelReply;
using core::SendStop;

StatusCode CodeOf(const core::ReplyBody& body) {
  const auto* status = std::get_if<Status>(&body);
  return status == nullptr ? StatusCode::kOk : status->code();
}

TEST(CancelTest, QueuedEndsAtOnce) {
  Bench b;
  const JobId job = b.Submit(SpecBuilder().Tasks(3));
  EXPECT_EQ(std::get<CancelReply>(b.Cancel(job, 1)).cancelled, 1);
  EXPECT_EQ(b.State(job, 1), TaskState::kCancelled);
  EXPECT_EQ(b.store.jobs[job].queued.ToText(), "0,2");
  EXPECT_EQ(std::get<CancelReply>(b.Cancel(job)).cancelled, 2);
  EXPECT_EQ(b.store.jobs[job].state, TaskState::kCancelled);
  EXPECT_EQ(b.store.jobs[job].outcome.cause.text, "cancelled by ann");
  EXPECT_EQ(std::get<CancelReply>(b.Cancel(job)).already_ended, 1);
}

TEST(CancelTest, WhoMayAndWhatThereIs) {
  Bench b;
  const JobId job = b.Submit({});
  EXPECT_EQ(CodeOf(b.Cancel(job, {}, false, "bob")), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(b.Cancel(JobId(7))), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(b.Cancel(JobId(0))), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(b.Cancel(job, 5)), StatusCode::kNotFound);
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  EXPECT_EQ(std::get<CancelReply>(b.Cancel(job, {}, false, "root", true)).cancelled, 1);
}

TEST(CancelTest, ActiveGetsAStopWithTheJobsGrace) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Cancel(job);
  auto stops = All<SendStop>(b.last);
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].grace, Duration(15s));
  EXPECT_EQ(stops[0].cause, (Cause{CauseKind::kCancelled, "cancelled by ann"}));
  EXPECT_EQ(b.State(job), TaskState::kRunning);
  b.Cancel(job);
  EXPECT_TRUE(All<SendStop>(b.last).empty());
  b.Cancel(job, {}, true);  // escalates
  stops = All<SendStop>(b.last);
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].grace, Duration::zero());
  Outcome o = Because(CauseKind::kCancelled, "cancelled by ann");
  o.signal = 15;
  b.Ended(job, 0, o);
  EXPECT_EQ(b.State(job), TaskState::kCancelled);
}

TEST(CancelTest, WhilePreparing) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Cancel(job);
  EXPECT_EQ(All<SendStop>(b.last).size(), 1u);
  b.Ended(job, 0, Because(CauseKind::kCancelled, "cancelled by ann"), false);
  EXPECT_EQ(b.State(job), TaskState::kCancelled);
  EXPECT_FALSE(b.store.jobs[job].started.has_value());
}

TEST(CancelTest, AProgramThatWasOverFirstKeepsItsOutcome) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Cancel(job);
  b.Ended(job, 0, Exit(0));
  EXPECT_EQ(b.State(job), TaskState::kSucceeded);
}

TEST(CancelTest, OutputsOnTheirWayAreNotStopped) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Finishing(job);
  const CancelReply reply = std::get<CancelReply>(b.Cancel(job));
  EXPECT_EQ(reply.finishing, 1);
  EXPECT_EQ(reply.already_ended + reply.cancelled, 0);
  b.Ended(job);
  EXPECT_EQ(b.State(job), TaskState::kSucceeded);
}

TEST(CancelRegression, CancelWhileFinishingIsNotRunAgainWhenTheMachineIsLost) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Finishing(job);
  EXPECT_EQ(std::get<CancelReply>(b.Cancel(job)).finishing, 1);
  EXPECT_TRUE(All<SendStop>(b.last).empty());
  b.Connect("w1");  // has lost it, outputs and all
  EXPECT_EQ(b.State(job), TaskState::kCancelled);
}

TEST(CancelTest, AStopSurvivesAReconnectAndARestart) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Cancel(job);
  b.Restart();
  const AttemptKey key = b.Key(job);
  b.Connect("w1", {4, 16ll << 30, {}}, {{key, AttemptState::kRunning}});
  const auto stops = All<SendStop>(b.last);
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].key.epoch, b.Key(job).epoch);
  EXPECT_EQ(stops[0].cause.text, "cancelled by ann");
}

// So many have no rows; what the job came to must not depend on the one that has succeeded.
TEST(CancelTest, AGreatCancelCountsAfterARestart) {
  Bench b;
  b.Connect("w1", {2, 1 << 30, {}});
  const JobId job = b.Submit(SpecBuilder().Tasks(3000));
  b.Running(job, 0);
  b.Ended(job, 0, Exit(0));
  b.Cancel(job);
  for (int i = 1; i <= 2; ++i) {
    b.Restart();
    const AttemptKey key = b.Key(job, i);
    const SessionId session = b.Connect("w1", {2, 1 << 30, {}}, {{key, AttemptState::kRunning}});
    b.Apply(core::AttemptEnded{session, b.Key(job, i), true, Exit(0), {}, 7});
  }
  EXPECT_EQ(b.store.jobs[job].state, TaskState::kCancelled);
  EXPECT_EQ(b.store.jobs[job].outcome.cause.kind, CauseKind::kCancelled);
}

TEST(CancelTest, AStoppedAttemptThatIsLostIsCancelled) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Cancel(job);
  b.Connect("w1");  // holds nothing any more
  EXPECT_EQ(b.State(job), TaskState::kCancelled);
}

TEST(CancelTest, ByRequest) {
  Bench b;
  const JobId job = b.Submit(SpecBuilder().Request("x"));
  core::CancelTasks cancel{core::ReplyTag(1), {UserName("ann")}, {}, RequestId("x")};
  EXPECT_EQ(std::get<CancelReply>(b.Reply(cancel)).cancelled, 1);
  EXPECT_EQ(b.store.jobs[job].state, TaskState::kCancelled);
  EXPECT_EQ(std::get<CancelReply>(b.Reply(cancel)).already_ended, 1);
}

TEST(CancelTest, WhatIsNamedTwiceCountsOnce) {
  Bench b;
  b.Connect("w1", {1, 1 << 30, {}});
  const JobId job = b.Submit(SpecBuilder().Tasks(3));
  b.Running(job, 0);
  const auto cancel = [&](const std::vector<int>& tasks) {
    core::CancelTasks e{core::ReplyTag(1), {UserName("ann"), false}, {}, {}, false};
    for (const int task : tasks) {
      e.tasks.push_back({job, task < 0 ? std::nullopt : std::optional(TaskIndex(task))});
    }
    return b.Reply(e);
  };
  EXPECT_EQ(std::get<CancelReply>(cancel({0, 0, 1, 0})).cancelled, 2);
  const CancelReply all = std::get<CancelReply>(cancel({0, -1, 2, -1}));
  EXPECT_EQ(all.cancelled, 2);  // 0, whose stop is ordered, and 2
  EXPECT_EQ(all.already_ended, 0);
  EXPECT_EQ(CodeOf(cancel({-1, 7})), StatusCode::kNotFound);
}

}  // namespace
}  // namespace gpulayer::testing
