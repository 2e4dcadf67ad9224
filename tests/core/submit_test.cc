#include "core/bench.h"

namespace gpulayer::testing {
namespace {

core::SubmitJobs Batch(const std::vector<SpecBuilder>& jobs) {
  core::SubmitJobs e{core::ReplyTag(1), {UserName("ann")}, {}};
  for (const SpecBuilder& job : jobs) {
    e.specs.push_back(std::make_shared<const JobSpec>(job.spec));
  }
  return e;
}

TEST(SubmitTest, SameRequestIsTheSameJob) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit(SpecBuilder().Request("x"));
  EXPECT_FALSE(b.submitted.existed);
  EXPECT_EQ(b.Submit(SpecBuilder().Request("x")), job);
  EXPECT_TRUE(b.submitted.existed);
  EXPECT_NE(b.Submit(SpecBuilder().Request("x"), "bob"), job);  // request ids are a user's own
  b.Ended(job);
  EXPECT_EQ(b.Submit(SpecBuilder().Request("x")), job);  // after its end too
  b.Restart();
  EXPECT_EQ(b.Submit(SpecBuilder().Request("x")), job);
}

TEST(SubmitTest, ARequestIdOfAnotherJobIsRefused) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit(SpecBuilder().Request("x"));
  EXPECT_EQ(b.Submit(SpecBuilder().Request("x").Slots(2)), JobId());
  EXPECT_EQ(b.status.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(b.status.message(), ::testing::HasSubstr("job 1 has the request id x"));
  // Only its files are others: it is that job, and is said so.
  SpecBuilder changed;
  changed.Request("x").spec.source_tree = Hash::Of("edited");
  EXPECT_EQ(b.Submit(changed), job);
  EXPECT_THAT(b.submitted.warning, ::testing::HasSubstr("other files"));
}

TEST(SubmitTest, TwoJobsOfABatchWithOneRequestIdAreRefused) {
  Bench b;
  core::SubmitJobs e = Batch({SpecBuilder().Request("x"), SpecBuilder().Request("x").Slots(2)});
  EXPECT_THAT(std::get<Status>(b.Reply(e)).message(), ::testing::StartsWith("job 2 of 2: "));
  EXPECT_TRUE(b.store.jobs.empty());
}

TEST(SubmitTest, ABatchThatIsHalfARepeatIsRefusedWhole) {
  Bench b;
  b.Connect("w1");
  core::SubmitJobs e = Batch({SpecBuilder().Request("new"), SpecBuilder().Request("x").Slots(2)});
  const JobId job = b.Submit(SpecBuilder().Request("x"));
  b.Ended(job);  // only the store can compare it now
  const core::ReplyBody refused = b.Reply(e);
  EXPECT_EQ(std::get<Status>(refused).code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(std::get<Status>(refused).message(),
              ::testing::StartsWith("job 2 of 2: submit: job 1 has the request id x"));
  EXPECT_EQ(b.store.jobs.size(), 1u);
}

TEST(SubmitTest, NumbersGoOnAfterARestart) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Ended(job);
  b.Restart();
  EXPECT_EQ(b.Submit({}), JobId(job.value() + 1));
}

TEST(SubmitTest, ImpossibleIsRejectedWithNearestMisses) {
  Bench b;
  b.Connect("gpu-box", {4, 16ll << 30, {{"G1", AcceleratorKind::kCuda, "L4", 24ll << 30}}});
  b.Connect("mac-1", {8, 16ll << 30, {{"M", AcceleratorKind::kMetal, "M2", 16ll << 30}}});
  EXPECT_EQ(b.Submit(SpecBuilder().Cuda(1, 40ll << 30)), JobId());
  EXPECT_EQ(b.status.code(), StatusCode::kRejected);
  EXPECT_EQ(b.status.message(),
            "no worker can run this: needs 1 slot, cuda with 40GiB; gpu-box: cuda 24GiB; mac-1: "
            "metal 16GiB");
  EXPECT_TRUE(b.store.jobs.empty());
  const JobId job = b.Submit(SpecBuilder().Cuda(1, 40ll << 30).Wait());
  EXPECT_NE(job, JobId());
  EXPECT_THAT(b.submitted.warning, ::testing::EndsWith("metal 16GiB: the job waits"));
  SpecBuilder misspelt;
  misspelt.spec.requirements.workers = {"gpubox"};
  EXPECT_EQ(b.Submit(misspelt), JobId());
  EXPECT_EQ(b.status.message(),
            "no worker can run this: no worker is named gpubox; there are: gpu-box, mac-1");
  misspelt.spec.requirements.workers = {"gpubox", "mac-1"};
  EXPECT_NE(b.Submit(misspelt), JobId());
}

TEST(SubmitTest, OfflineWorkersCountAsKnown) {
  Bench b;
  const SessionId s = b.Connect("big", {64, 1ll << 40, {}});
  b.Apply(core::WorkerDisconnected{s});
  b.Pass(70s);
  EXPECT_EQ(b.View("big").state, WorkerState::kOffline);
  EXPECT_NE(b.Submit(SpecBuilder().Slots(60)), JobId());
  EXPECT_EQ(b.submitted.warning, "all workers that can run this are offline (big): the job waits");
  b.Connect("small", {1, 1ll << 30, {}});
  EXPECT_NE(b.Submit(SpecBuilder().Slots(60)), JobId());
  EXPECT_EQ(b.submitted.warning, "all workers that can run this are offline (big): the job waits");
  EXPECT_NE(b.Submit({}), JobId());
  EXPECT_EQ(b.submitted.warning, "");
}

TEST(SubmitTest, RejectionNamesAFewWorkersOfMany) {
  Bench b;
  for (int i = 0; i < 25; ++i) b.Connect("w" + std::to_string(i));
  b.Submit(SpecBuilder().Slots(5));
  EXPECT_THAT(b.status.message(), ::testing::EndsWith("; and 5 more"));
}

TEST(SubmitTest, BatchIsAllOrNothing) {
  Bench b;
  b.Connect("w1");
  core::SubmitJobs e = Batch({SpecBuilder().Request("a"), SpecBuilder().Request("b").Slots(99)});
  const core::ReplyBody refused = b.Reply(e);
  EXPECT_THAT(std::get<Status>(refused).message(), ::testing::StartsWith("job 2 of 2: no worker"));
  EXPECT_TRUE(b.store.jobs.empty());
  e.specs[1] = e.specs[0];
  const core::ReplyBody taken = b.Reply(e);
  const auto& jobs = std::get<core::SubmitReply>(taken).jobs;
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].job, jobs[1].job);
  EXPECT_FALSE(jobs[0].existed);
  EXPECT_TRUE(jobs[1].existed);
}

TEST(SubmitTest, NonsenseIsRefused) {
  Bench b;
  const auto code = [&](SpecBuilder s) {
    b.status = OkStatus();
    b.Submit(std::move(s));
    return b.status.code();
  };
  EXPECT_EQ(code(SpecBuilder().Tasks(0)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(SpecBuilder().Tasks(1'000'001)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(SpecBuilder().Slots(-1)), StatusCode::kInvalidArgument);
  SpecBuilder none;
  none.spec.command.clear();
  EXPECT_EQ(code(none), StatusCode::kInvalidArgument);
}

TEST(SubmitTest, CancelMayArriveBeforeTheSubmit) {
  Bench b;
  core::CancelTasks cancel{core::ReplyTag(1), {UserName("ann")}, {}, RequestId("x")};
  EXPECT_EQ(std::get<core::CancelReply>(b.Reply(cancel)).cancelled, 0);
  EXPECT_EQ(b.Submit(SpecBuilder().Request("x")), JobId());
  EXPECT_EQ(b.status.code(), StatusCode::kCancelled);
  EXPECT_NE(b.Submit(SpecBuilder().Request("x"), "bob"), JobId());
  EXPECT_NE(b.Submit(SpecBuilder().Request("y")), JobId());
}

}  // namespace
}  // namespace gpulayer::testing
