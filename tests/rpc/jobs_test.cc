#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/hash.h"
#include "model/job.h"
#include "rpc/fake_worker.h"
#include "rpc/fixture.h"
#include "support/eventually.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kQueued = static_cast<int>(TaskState::kQueued);
constexpr int kSucceeded = static_cast<int>(TaskState::kSucceeded);
constexpr int kCancelled = static_cast<int>(TaskState::kCancelled);
constexpr int kRunning = 2;  // attempt states
constexpr int kFinishing = 3;

class JobsTest : public BothTransports {
 protected:
  std::unique_ptr<FakeWorker> NewWorker() {
    const std::string bearer =
        GetParam() == Transport::kTls ? Credential(Role::kWorker, FakeWorker::kId) : "";
    return std::make_unique<FakeWorker>(ConnectTo(*server_, GetParam()), bearer);
  }

  // Stores `data`; returns the name of its blob.
  std::string PutBlob(const std::string& data) {
    v1::UploadChunk chunk;
    v1::BlobPart* part = chunk.add_parts();
    part->set_hash(std::string(Hash::Of(data).bytes()));
    part->set_size(static_cast<std::int64_t>(data.size()));
    part->set_data(data);
    v1::UploadReply reply;
    Call call(client_);
    auto stream = artifacts_->Upload(&call, &reply);
    EXPECT_TRUE(stream->Write(chunk));
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    return part->hash();
  }

  // Plays an attempt from its start to its acknowledged end.
  static void Play(FakeWorker& worker, const v1::Assign& assign, int exit_code) {
    ASSERT_TRUE(worker.SendProgress(assign.key(), kRunning));
    ASSERT_TRUE(worker.SendProgress(assign.key(), kFinishing, exit_code));
    ASSERT_TRUE(worker.SendEnded(assign.key(), exit_code, 0));
    const auto ack = worker.Next();
    ASSERT_TRUE(ack && ack->has_end_ack());
    EXPECT_TRUE(ack->end_ack().current());
  }
};
GPULAYER_BOTH_TRANSPORTS(JobsTest);

TEST_P(JobsTest, RunsOnAWorkerAndIsSeenByWatch) {
  const std::int64_t job = Submit(Spec({"/bin/render", "7"}, "r1"));
  EXPECT_EQ(Get(job).job().spec().name(), "render 7");
  EXPECT_EQ(Get(job).job().state(), kQueued);

  Call call(client_);
  v1::WatchRequest watch;
  watch.set_job(job);
  auto stream = jobs_->Watch(&call, watch);
  v1::GetJobReply seen;
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.job().state(), kQueued);

  auto worker = NewWorker();
  ASSERT_TRUE(worker->Greet());
  EXPECT_GT(worker->welcome().worker_epoch(), 0);
  EXPECT_EQ(worker->welcome().lost_after_ms(), 60'000);
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  EXPECT_EQ(assign->key().job(), job);
  EXPECT_EQ(assign->spec().command(1), "7");
  EXPECT_EQ(assign->key().worker_epoch(), worker->welcome().worker_epoch());
  Play(*worker, *assign, 0);

  int last = 0;
  while (stream->Read(&seen)) last = seen.job().state();
  EXPECT_EQ(last, kSucceeded);
  EXPECT_TRUE(stream->Finish().ok());
  const v1::GetJobReply done = Get(job);
  ASSERT_EQ(done.tasks_size(), 1);
  ASSERT_EQ(done.tasks(0).attempts_size(), 1);
  EXPECT_EQ(done.tasks(0).attempts(0).worker(), "w1");
  EXPECT_EQ(done.tasks(0).outcome().exit_code(), 0);
}

TEST_P(JobsTest, EndsOfSeveralJobsComeOverOneStreamAsTheyEnd) {
  auto worker = NewWorker();
  ASSERT_TRUE(worker->Greet());
  std::map<std::int64_t, v1::Assign> assigned;
  const auto submit = [&](const std::string& request) {
    const std::int64_t job = Submit(Spec({"true"}, request));
    const auto assign = worker->NextAssign();
    EXPECT_TRUE(assign && assign->key().job() == job);
    assigned[job] = *assign;
    return job;
  };
  const std::int64_t over = submit("over");
  Play(*worker, assigned[over], 3);
  const std::int64_t last = submit("last");
  const std::int64_t first = submit("first");
  Call call(client_);
  v1::WatchRequest watch;
  watch.set_end_only(true);
  for (const std::int64_t job : {last, over, first, first}) watch.add_jobs(job);
  auto stream = jobs_->Watch(&call, watch);
  v1::GetJobReply seen;
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.job().id(), over);
  EXPECT_EQ(seen.tasks(0).outcome().exit_code(), 3);
  Play(*worker, assigned[first], 0);
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.job().id(), first);
  EXPECT_EQ(seen.job().state(), kSucceeded);
  Play(*worker, assigned[last], 0);
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.job().id(), last);
  EXPECT_FALSE(stream->Read(&seen));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_P(JobsTest, AWaitForTooManyJobsOrForNoneSuchIsRefused) {
  v1::WatchRequest watch;
  watch.set_end_only(true);
  for (std::int64_t job = 1; job <= 10'001; ++job) watch.add_jobs(job);
  v1::GetJobReply seen;
  for (const auto code : {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::NOT_FOUND}) {
    Call call(client_);
    auto stream = jobs_->Watch(&call, watch);
    EXPECT_FALSE(stream->Read(&seen));
    EXPECT_EQ(stream->Finish().error_code(), code);
    watch.mutable_jobs()->RemoveLast();
  }
}

TEST_P(JobsTest, SameRequestIdIsTheSameJob) {
  const v1::JobSpec spec = Spec({"true"}, "same");
  const std::int64_t job = Submit(spec);
  v1::SubmitReply again;
  ASSERT_TRUE(TrySubmit(spec, &again).ok());
  ASSERT_EQ(again.jobs_size(), 1);
  EXPECT_EQ(again.jobs(0).job(), job);
  EXPECT_TRUE(again.jobs(0).existed());
}

TEST_P(JobsTest, WhatIsOverIsStillCompared) {
  const std::int64_t job = Submit(Spec({"true"}, "same"));
  Call call(client_);
  v1::CancelRequest cancel;
  cancel.add_tasks()->set_job(job);
  v1::CancelReply cancelled;
  ASSERT_TRUE(jobs_->Cancel(&call, cancel, &cancelled).ok());
  ASSERT_EQ(Get(job).job().state(), kCancelled);

  v1::SubmitReply again;
  ASSERT_TRUE(TrySubmit(Spec({"true"}, "same"), &again).ok());
  EXPECT_EQ(again.jobs(0).job(), job);
  EXPECT_EQ(again.jobs(0).warning(), "");
  v1::JobSpec with_input = Spec({"true"}, "same");
  with_input.set_stdin_blob(PutBlob("typed"));
  ASSERT_TRUE(TrySubmit(with_input, &again).ok());
  EXPECT_EQ(again.jobs(0).job(), job);
  EXPECT_THAT(again.jobs(0).warning(), HasSubstr("other files"));
  const grpc::Status other = TrySubmit(Spec({"false"}, "same"), &again);
  EXPECT_EQ(other.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(other.error_message(), HasSubstr("asks for something else"));

  cancel.mutable_tasks(0)->set_task(7);
  Call second(client_);
  const grpc::Status none = jobs_->Cancel(&second, cancel, &cancelled);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(none.error_message(), HasSubstr("it has no task 7. Its only one is 0"));
}

TEST_P(JobsTest, ANameThatGpulayerSetsIsRefused) {
  v1::JobSpec spec = Spec({"true"}, "env");
  v1::EnvVar* var = spec.add_env();
  var->set_name("GPULAYER_JOB_ID");
  var->set_value("7");
  v1::SubmitReply reply;
  const grpc::Status refused = TrySubmit(spec, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("GPULAYER_JOB_ID"));
}

TEST_P(JobsTest, ListsNewestFirstInPages) {
  for (int i = 0; i < 5; ++i) Submit(Spec({"true"}, "r" + std::to_string(i)));
  v1::ListJobsRequest request;
  request.set_limit(2);
  std::vector<std::int64_t> ids;
  for (int page = 0; page < 10; ++page) {
    v1::ListJobsReply reply;
    Call call(client_);
    ASSERT_TRUE(jobs_->List(&call, request, &reply).ok());
    for (const v1::JobInfo& job : reply.jobs()) ids.push_back(job.id());
    if (!reply.has_next_before()) break;
    request.set_before(reply.next_before());
  }
  EXPECT_THAT(ids, ::testing::ElementsAre(5, 4, 3, 2, 1));
}

TEST_P(JobsTest, LargeSpecsArePagedByBytes) {
  for (int i = 0; i < 4; ++i) {
    v1::JobSpec spec = Spec({"true"}, "big" + std::to_string(i));
    for (int k = 0; k < 16; ++k) {
      v1::EnvVar* var = spec.add_env();
      var->set_name("V" + std::to_string(k));
      var->set_value(std::string(120'000, 'x'));
    }
    ASSERT_GT(Submit(spec), 0);
  }
  v1::ListJobsRequest request;
  std::size_t seen = 0;
  for (int page = 0; page < 10; ++page) {
    v1::ListJobsReply reply;
    Call call(client_);
    const grpc::Status status = jobs_->List(&call, request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    seen += static_cast<std::size_t>(reply.jobs_size());
    if (!reply.has_next_before()) break;
    request.set_before(reply.next_before());
  }
  EXPECT_EQ(seen, 4U);
}

TEST_P(JobsTest, CancelEndsAQueuedJob) {
  const std::int64_t job = Submit(Spec({"true"}, "c"));
  v1::CancelRequest request;
  request.add_tasks()->set_job(job);
  v1::CancelReply reply;
  Call call(client_);
  ASSERT_TRUE(jobs_->Cancel(&call, request, &reply).ok());
  EXPECT_EQ(reply.cancelled(), 1);
  EXPECT_EQ(Get(job).job().state(), kCancelled);
  Call watch_call(client_);
  v1::WatchRequest watch;
  watch.set_job(job);
  auto stream = jobs_->Watch(&watch_call, watch);
  v1::GetJobReply seen;
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.job().state(), kCancelled);
  EXPECT_FALSE(stream->Read(&seen));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_P(JobsTest, ACancelThatIsRefusedHasCancelledNothing) {
  const std::int64_t over = Submit(Spec({"true"}, "over"));
  v1::CancelRequest request;
  request.add_tasks()->set_job(over);
  v1::CancelReply reply;
  Call first(client_);
  ASSERT_TRUE(jobs_->Cancel(&first, request, &reply).ok());
  const std::int64_t waits = Submit(Spec({"true"}, "waits"));
  request.mutable_tasks(0)->set_task(99);  // the core has forgotten that there never was one
  request.add_tasks()->set_job(waits);
  Call second(client_);
  const grpc::Status refused = jobs_->Cancel(&second, request, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::NOT_FOUND);
  // Nor if other tasks of the same job, and of another, come between.
  v1::CancelRequest mixed;
  for (const std::int64_t task : {0, 99}) {
    for (const std::int64_t job : {waits, over}) {
      v1::CancelRequest::Selector* one = mixed.add_tasks();
      one->set_job(job);
      one->set_task(job == over ? task : 0);
    }
  }
  Call of_mixed(client_);
  const grpc::Status none = jobs_->Cancel(&of_mixed, mixed, &reply);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(none.error_message(), refused.error_message());
  EXPECT_EQ(Get(waits).job().state(), static_cast<int>(TaskState::kQueued));

  request.mutable_tasks(0)->set_task(0);
  Call third(client_);
  ASSERT_TRUE(jobs_->Cancel(&third, request, &reply).ok());
  EXPECT_EQ(reply.cancelled(), 1);
  EXPECT_EQ(reply.already_ended(), 1);
}

TEST_P(JobsTest, ACancelNamesNotMoreThanTheLimit) {
  v1::CancelRequest request;
  for (int i = 0; i < 10'001; ++i) request.add_tasks()->set_job(1);
  v1::CancelReply reply;
  Call call(client_);
  const grpc::Status status = jobs_->Cancel(&call, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("the limit is 10000"));
}

TEST_P(JobsTest, CancelStopsARunningTask) {
  auto worker = NewWorker();
  ASSERT_TRUE(worker->Greet());
  const std::int64_t job = Submit(Spec({"sleep", "9"}, "c"));
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  ASSERT_TRUE(worker->SendProgress(assign->key(), kRunning));
  v1::CancelRequest request;
  request.add_tasks()->set_job(job);
  v1::CancelReply reply;
  Call call(client_);
  ASSERT_TRUE(jobs_->Cancel(&call, request, &reply).ok());
  const auto stop = worker->Next();
  ASSERT_TRUE(stop && stop->has_stop());
  EXPECT_EQ(stop->stop().key().id(), assign->key().id());
  EXPECT_EQ(stop->stop().grace_ms(), 1000);
}

TEST_P(JobsTest, WatchOfAnUnknownJobIsNotFound) {
  Call call(client_);
  v1::WatchRequest watch;
  watch.set_job(77);
  auto stream = jobs_->Watch(&call, watch);
  v1::GetJobReply seen;
  EXPECT_FALSE(stream->Read(&seen));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_P(JobsTest, MissingContentIsNamed) {
  v1::JobSpec spec = Spec({"true"}, "m");
  spec.set_source_tree(std::string(32, 'q'));
  v1::SubmitReply reply;
  grpc::Status status = TrySubmit(spec, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("manifest is not on the server"));
  spec.clear_source_tree();
  spec.set_stdin_blob(std::string(32, 'q'));
  status = TrySubmit(spec, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("standard input"));
}

TEST_P(JobsTest, BadRequestsAreRefused) {
  v1::SubmitReply reply;
  EXPECT_EQ(TrySubmit(Spec({}, "x"), &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(TrySubmit(Spec({"true"}, ""), &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::SubmitRequest none;
  Call call(client_);
  EXPECT_EQ(jobs_->Submit(&call, none, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::CancelReply cancelled;
  Call cancel(client_);
  EXPECT_EQ(jobs_->Cancel(&cancel, {}, &cancelled).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_P(JobsTest, ExplainsQueuedAndEndedJobs) {
  const std::int64_t job = Submit(Spec({"true"}, "e"));
  v1::ExplainRequest request;
  request.set_job(job);
  v1::ExplainReply reply;
  Call call(client_);
  ASSERT_TRUE(jobs_->Explain(&call, request, &reply).ok());
  EXPECT_EQ(reply.state(), kQueued);
  v1::CancelRequest cancel;
  cancel.add_tasks()->set_job(job);
  v1::CancelReply cancelled;
  Call cancel_call(client_);
  ASSERT_TRUE(jobs_->Cancel(&cancel_call, cancel, &cancelled).ok());
  Call again(client_);
  ASSERT_TRUE(jobs_->Explain(&again, request, &reply).ok());
  EXPECT_THAT(reply.summary(), HasSubstr("ended"));
  request.set_job(99);
  Call unknown(client_);
  EXPECT_EQ(jobs_->Explain(&unknown, request, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_P(JobsTest, WhatNoWorkerCanRunIsRejectedWithReasons) {
  auto worker = NewWorker();
  ASSERT_TRUE(worker->Greet());
  v1::JobSpec spec = Spec({"true"}, "huge");
  spec.set_wait_for_worker(false);
  spec.mutable_requirements()->set_memory_bytes(std::int64_t{900} << 30);
  v1::SubmitReply reply;
  ASSERT_TRUE(TrySubmit(spec, &reply).ok());
  EXPECT_THAT(reply.rejected(), HasSubstr("w1"));
  EXPECT_EQ(reply.jobs_size(), 0);
}

}  // namespace
}  // namespace gpulayer::testing
