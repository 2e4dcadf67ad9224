#include "server/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpulayer {
namespace {

using ::testing::SizeIs;

JobRecord Job(std::int64_t id, TaskState state, std::shared_ptr<const JobSpec> spec = nullptr) {
  JobRecord job;
  job.id = JobId(id);
  job.state = state;
  job.spec = std::move(spec);
  return job;
}

bool Take(Gather& gather, core::Effect effect) { return gather.Take(effect); }

TEST(GatherTest, OnlyRowsAreTaken) {
  Gather gather;
  EXPECT_FALSE(Take(gather, core::JobChanged{JobId(1)}));
  EXPECT_FALSE(Take(gather, core::Reply{}));
  EXPECT_FALSE(Take(gather, core::SendEndAck{}));
  EXPECT_TRUE(gather.batch().empty());
}

TEST(GatherTest, TheLastPutOfARowStands) {
  Gather gather;
  const TaskRef first{JobId(1), TaskIndex(0)};
  const TaskRef second{JobId(1), TaskIndex(1)};
  EXPECT_TRUE(Take(gather, core::PutTask{{.ref = first, .state = TaskState::kPreparing}}));
  EXPECT_TRUE(Take(gather, core::PutTask{{.ref = second, .state = TaskState::kPreparing}}));
  EXPECT_TRUE(Take(gather, core::PutTask{{.ref = first, .state = TaskState::kRunning}}));
  ASSERT_THAT(gather.batch().tasks, SizeIs(2));
  EXPECT_EQ(gather.batch().tasks[0].ref, first);
  EXPECT_EQ(gather.batch().tasks[0].state, TaskState::kRunning);

  EXPECT_TRUE(Take(gather, core::PutAttempt{{.ref = {first, AttemptNo(1)}, .log_bytes = 1}}));
  EXPECT_TRUE(Take(gather, core::PutAttempt{{.ref = {first, AttemptNo(2)}, .log_bytes = 2}}));
  EXPECT_TRUE(Take(gather, core::PutAttempt{{.ref = {first, AttemptNo(1)}, .log_bytes = 3}}));
  ASSERT_THAT(gather.batch().attempts, SizeIs(2));
  EXPECT_EQ(gather.batch().attempts[0].log_bytes, 3);

  WorkerRecord worker;
  worker.profile.id = WorkerId("w");
  EXPECT_TRUE(Take(gather, core::PutWorker{worker}));
  worker.epoch = WorkerEpoch(7);
  EXPECT_TRUE(Take(gather, core::PutWorker{worker}));
  ASSERT_THAT(gather.batch().workers, SizeIs(1));
  EXPECT_EQ(gather.batch().workers[0].epoch, WorkerEpoch(7));
}

TEST(GatherTest, AnUpdateOfAJobOfThisBatchChangesItsInsert) {
  Gather gather;
  const auto spec = std::make_shared<const JobSpec>(JobSpec{.name = "n"});
  EXPECT_TRUE(Take(gather, core::InsertJob{Job(1, TaskState::kQueued, spec)}));
  EXPECT_TRUE(Take(gather, core::UpdateJob{Job(1, TaskState::kRunning)}));
  EXPECT_TRUE(Take(gather, core::UpdateJob{Job(2, TaskState::kRunning)}));
  EXPECT_TRUE(Take(gather, core::UpdateJob{Job(2, TaskState::kFailed)}));
  ASSERT_THAT(gather.batch().insert_jobs, SizeIs(1));
  EXPECT_EQ(gather.batch().insert_jobs[0].state, TaskState::kRunning);
  EXPECT_EQ(gather.batch().insert_jobs[0].spec, spec);
  ASSERT_THAT(gather.batch().update_jobs, SizeIs(1));
  EXPECT_EQ(gather.batch().update_jobs[0].state, TaskState::kFailed);
}

}  // namespace
}  // namespace gpulayer
