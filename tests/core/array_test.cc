// Jobs of several tasks: their numbers, and how many of them may be at work.
#include "core/bench.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;

SpecBuilder Numbered(TaskNumbers tasks, std::int64_t max_parallel = 0) {
  SpecBuilder b;
  b.spec.array = true;
  b.spec.tasks = tasks;
  b.spec.max_parallel = max_parallel;
  return b;
}

TEST(ArrayTest, TasksHaveTheNumbersThatWereAskedFor) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit(Numbered({.first = 5, .step = 3, .count = 3}));
  for (const int task : {5, 8, 11}) EXPECT_EQ(b.State(job, task), TaskState::kPreparing) << task;
  EXPECT_FALSE(b.store.tasks.contains({job, TaskIndex(6)}));
  b.Ended(job, 8, Exit(3));
  b.Ended(job, 5);
  b.Ended(job, 11, Exit(4));
  EXPECT_EQ(b.store.jobs.at(job).state, TaskState::kFailed);
  EXPECT_EQ(b.store.jobs.at(job).outcome.exit_code, 3);  // of the lowest one in the worst state
}

TEST(ArrayTest, OnlyANumberOfItsOwnCanBeCancelled) {
  Bench b;
  const JobId job = b.Submit(Numbered({.first = 5, .step = 3, .count = 3}));
  for (const int task : {0, 4, 6, 14}) {
    const core::ReplyBody reply = b.Cancel(job, task);
    EXPECT_THAT(std::get<Status>(reply).message(), HasSubstr("It has 5 to 11 in steps of 3"))
        << task;
  }
  EXPECT_EQ(std::get<core::CancelReply>(b.Cancel(job, 8)).cancelled, 1);
  EXPECT_EQ(b.State(job, 8), TaskState::kCancelled);
  b.Restart();
  b.Connect("w1");
  EXPECT_EQ(b.State(job, 8), TaskState::kCancelled);
  EXPECT_EQ(b.State(job, 11), TaskState::kPreparing);
}

TEST(ArrayTest, NoMoreThanItsLimitAreAtWork) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit(Numbered({.count = 5}, 2));
  const JobId other = b.Submit({});
  EXPECT_EQ(b.State(job, 1), TaskState::kPreparing);
  EXPECT_EQ(b.State(job, 2), TaskState::kQueued);
  EXPECT_EQ(b.State(other), TaskState::kPreparing) << "others do not wait behind it";
  EXPECT_THAT(b.core().Explain(job, b.now())->summary, HasSubstr("2 tasks at work"));
  b.Finishing(job, 0);  // holds nothing any more
  EXPECT_EQ(b.State(job, 2), TaskState::kPreparing);
  EXPECT_EQ(b.State(job, 3), TaskState::kQueued);
}

TEST(ArrayTest, ATaskThatRunsAgainKeepsToTheLimit) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit(Numbered({.first = 10, .count = 4}, 1));
  b.Running(job, 10);
  b.Connect("w1");  // lost it
  EXPECT_EQ(b.State(job, 10), TaskState::kPreparing);
  EXPECT_EQ(b.State(job, 11), TaskState::kQueued);
}

}  // namespace
}  // namespace gpulayer::testing
