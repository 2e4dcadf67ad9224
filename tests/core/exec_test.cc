#include "core/bench.h"

namespace gpulayer::testing {
namespace {

using core::RunningPlace;
using ::testing::HasSubstr;

class FindRunningTest : public ::testing::Test {
 protected:
  Result<RunningPlace> Find(JobId job, std::optional<int> task = {},
                            const std::string& user = "ann", bool admin = false) {
    return b.core().FindRunning(job, task ? std::optional(TaskIndex(*task)) : std::nullopt,
                                {UserName(user), admin});
  }
  void ExpectFails(const Result<RunningPlace>& found, StatusCode code, const std::string& text) {
    EXPECT_EQ(found.status().code(), code) << found.status().ToString();
    EXPECT_THAT(found.status().message(), HasSubstr(text));
  }

  Bench b;
};

TEST_F(FindRunningTest, TheAttemptAndTheSessionOfItsWorker) {
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  for (const auto& found : {Find(job), Find(job, 0), Find(job, {}, "root", true)}) {
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->session, b.session("w1"));
    EXPECT_EQ(found->key, b.Key(job));
    EXPECT_EQ(found->worker, WorkerId("id-w1"));
    EXPECT_EQ(found->worker_name, "w1");
  }
}

TEST_F(FindRunningTest, OnlyWhoseJobItIsOrAnAdmin) {
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  ExpectFails(Find(job, {}, "bob"), StatusCode::kPermissionDenied, "it is a job of ann");
  ExpectFails(Find(job, {}, "bob"), StatusCode::kPermissionDenied, "its secrets too");
  // Nor is it said what there would be.
  ExpectFails(Find(job, 7, "bob"), StatusCode::kPermissionDenied, "it is a job of ann");
}

TEST_F(FindRunningTest, WhatIsNotThere) {
  b.Connect("w1");
  const JobId job = b.Submit({});
  ExpectFails(Find(JobId(7)), StatusCode::kNotFound, "job 7: no such job");
  ExpectFails(Find(JobId(0)), StatusCode::kNotFound, "no such job");
  ExpectFails(Find(job, 5), StatusCode::kNotFound, "it has no task 5");
}

TEST_F(FindRunningTest, WhatDoesNotRunIsSaidWithItsState) {
  const JobId job = b.Submit({});
  ExpectFails(Find(job), StatusCode::kFailedPrecondition,
              "job 1 is queued, there is nothing to run a command in yet");
  ExpectFails(Find(job), StatusCode::kFailedPrecondition, "`gpulayer job explain 1`");
  b.Connect("w1");
  ExpectFails(Find(job), StatusCode::kFailedPrecondition, "job 1 is preparing");
  b.Running(job);
  EXPECT_TRUE(Find(job).ok());
  b.Finishing(job);
  ExpectFails(Find(job), StatusCode::kFailedPrecondition, "its program is over");
  b.Ended(job);
  ExpectFails(Find(job), StatusCode::kNotFound, "no such job");  // to the core: the store knows it
}

TEST_F(FindRunningTest, OfSeveralTasksOneIsNamed) {
  b.Connect("w1", {2, 16ll << 30, {}});
  const JobId job = b.Submit(SpecBuilder().Tasks(4));
  ExpectFails(Find(job), StatusCode::kInvalidArgument, "it has 4 tasks. Name one, as 1.0");
  b.Running(job, 1);
  ExpectFails(Find(job), StatusCode::kInvalidArgument, "Name one, as 1.1");
  const auto found = Find(job, 1);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->key, b.Key(job, 1));
  ExpectFails(Find(job, 0), StatusCode::kFailedPrecondition, "task 1.0 is preparing");
  ExpectFails(Find(job, 3), StatusCode::kFailedPrecondition, "task 1.3 is queued");
  b.Ended(job, 1);
  ExpectFails(Find(job, 1), StatusCode::kFailedPrecondition, "task 1.1 is over");
  ExpectFails(Find(job, 4), StatusCode::kNotFound, "It has 0 to 3");
}

TEST_F(FindRunningTest, AnArrayOfOneTaskNeedsNoNumber) {
  b.Connect("w1");
  SpecBuilder one;
  one.Tasks(1);
  one.spec.tasks.first = 7;
  const JobId job = b.Submit(one);
  b.Running(job, 7);
  const auto found = Find(job);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->key.ref.task.task, TaskIndex(7));
}

TEST_F(FindRunningTest, AWorkerThatIsAwayIsNamed) {
  const SessionId first = b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  const AttemptKey key = b.Key(job);
  b.Apply(core::WorkerDisconnected{first});
  ExpectFails(Find(job), StatusCode::kUnavailable, "worker w1, which is not connected");
  // Back: its new session, and the key under which it knows the attempt there.
  const SessionId second = b.Connect("w1", {4, 16ll << 30, {}}, {{key, AttemptState::kRunning}});
  const auto found = Find(job);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->session, second);
  EXPECT_EQ(found->key, b.Key(job));
  EXPECT_NE(found->key.epoch, key.epoch);
}

}  // namespace
}  // namespace gpulayer::testing
