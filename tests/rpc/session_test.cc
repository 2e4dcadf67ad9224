#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fs.h"
#include "base/hash.h"
#include "model/job.h"
#include "rpc/fake_worker.h"
#include "rpc/fixture.h"
#include "support/eventually.h"
#include "wire/tree.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;

class SessionTest : public BothTransports {
 protected:
  std::unique_ptr<FakeWorker> Dial(const std::string& worker_id = FakeWorker::kId) {
    const std::string bearer =
        GetParam() == Transport::kTls ? Credential(Role::kWorker, worker_id) : "";
    return std::make_unique<FakeWorker>(ConnectTo(*server_, GetParam()), bearer);
  }
  // Null: the server has not taken it.
  std::unique_ptr<FakeWorker> GreetAs(const std::string& worker_id, const std::string& name) {
    auto worker = Dial(worker_id);
    v1::WorkerMessage hello = FakeWorker::HelloMessage();
    hello.mutable_hello()->set_worker_id(worker_id);
    hello.mutable_hello()->set_name(name);
    return worker->Send(hello) && worker->Next() ? std::move(worker) : nullptr;
  }
  int WorkersInState(WorkerState state) {
    v1::ListWorkersReply reply;
    Call call(client_);
    EXPECT_TRUE(workers_->List(&call, {}, &reply).ok());
    int count = 0;
    for (const auto& worker : reply.workers()) count += worker.state() == static_cast<int>(state);
    return count;
  }
};
GPULAYER_BOTH_TRANSPORTS(SessionTest);

TEST_P(SessionTest, AnotherMajorVersionIsRefusedByName) {
  auto worker = Dial();
  v1::WorkerMessage hello = FakeWorker::HelloMessage();
  hello.mutable_hello()->mutable_version()->set_major(9);
  worker->Send(hello);
  const grpc::Status status = worker->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("protocol 9.0"));
}

TEST_P(SessionTest, MustBeginWithAWellFormedHello) {
  auto silent = Dial();
  v1::WorkerMessage beat;
  beat.mutable_heartbeat();
  silent->Send(beat);
  EXPECT_EQ(silent->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  auto nameless = Dial();
  v1::WorkerMessage hello = FakeWorker::HelloMessage();
  hello.mutable_hello()->set_name("");
  nameless->Send(hello);
  EXPECT_EQ(nameless->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  auto stranger = Dial();
  hello = FakeWorker::HelloMessage();
  hello.mutable_hello()->set_worker_id("../../etc");
  stranger->Send(hello);
  const grpc::StatusCode code = stranger->Finish().error_code();
  EXPECT_TRUE(code == grpc::StatusCode::INVALID_ARGUMENT ||
              code == grpc::StatusCode::PERMISSION_DENIED);
}

TEST_P(SessionTest, ASecondSessionSupersedesTheFirst) {
  auto first = Dial();
  ASSERT_TRUE(first->Greet());
  auto second = Dial();
  ASSERT_TRUE(second->Greet());
  EXPECT_GT(second->welcome().worker_epoch(), first->welcome().worker_epoch());
  EXPECT_FALSE(first->Finish().ok());
  EXPECT_EQ(WorkersInState(WorkerState::kOnline), 1);
}

TEST_P(SessionTest, AWorkerThatLeavesKeepsItsAttemptForItsReturn) {
  auto worker = Dial();
  ASSERT_TRUE(worker->Greet());
  Submit(Spec({"true"}, "k"));
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  worker.reset();
  auto back = Dial();
  v1::WorkerMessage hello = FakeWorker::HelloMessage();
  auto* held = hello.mutable_hello()->add_held();
  *held->mutable_key() = assign->key();
  held->set_state(static_cast<int>(AttemptState::kRunning));
  ASSERT_TRUE(back->Send(hello));
  const auto welcome = back->Next();
  ASSERT_TRUE(welcome && welcome->has_welcome());
  ASSERT_EQ(welcome->welcome().keep_size(), 1);
  EXPECT_EQ(welcome->welcome().keep(0).id(), assign->key().id());
  // Reports under the old epoch are of nobody now; under the new one they count.
  ASSERT_TRUE(back->SendEnded(assign->key(), 0, 0));
  auto ack = back->Next();
  ASSERT_TRUE(ack && ack->has_end_ack());
  EXPECT_FALSE(ack->end_ack().current());
  ASSERT_TRUE(back->SendEnded(welcome->welcome().keep(0), 0, 0));
  ack = back->Next();
  ASSERT_TRUE(ack && ack->has_end_ack());
  EXPECT_TRUE(ack->end_ack().current());
}

TEST_P(SessionTest, OutputsThatAreNotThereAreNotPromised) {
  auto worker = Dial();
  ASSERT_TRUE(worker->Greet());
  const std::int64_t job = Submit(Spec({"true"}, "o"));
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  ASSERT_TRUE(
      worker->SendEnded(assign->key(), 0, 0, std::string(Hash::Of("no such tree").bytes())));
  const auto ack = worker->Next();
  ASSERT_TRUE(ack && ack->has_end_ack());
  const v1::GetJobReply reply = Get(job);
  EXPECT_EQ(reply.job().state(), static_cast<int>(TaskState::kFailed));
  EXPECT_THAT(reply.job().outcome().cause().text(), HasSubstr("not on the server"));
}

TEST_P(SessionTest, OutputsOutliveATroubleThatPasses) {
  const std::string manifest = wire::SerializeTree(Tree());
  const Hash tree = Hash::Of(manifest);
  const std::string path =
      dir_ / "d/server/blobs/v1/" + tree.hex().substr(0, 2) + "/" + tree.hex().substr(2);
  ASSERT_TRUE(MakeDirs(DirName(path), 0700).ok());
  ASSERT_EQ(symlink(path.c_str(), path.c_str()), 0);  // cannot be opened, and is not missing either
  auto worker = Dial();
  ASSERT_TRUE(worker->Greet());
  const std::int64_t job = Submit(Spec({"true"}, "o"));
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  Submit(Spec({"true"}, "p"));
  const auto other = worker->NextAssign();
  ASSERT_TRUE(other);
  ASSERT_TRUE(worker->SendEnded(assign->key(), 0, 0, std::string(tree.bytes())));
  ASSERT_TRUE(worker->SendEnded(other->key(), 0, 0));  // is not held up
  const auto first = worker->Next();
  ASSERT_TRUE(first && first->has_end_ack());
  EXPECT_EQ(first->end_ack().key().id(), other->key().id());
  ASSERT_TRUE(WriteFileAtomic(path, manifest).ok());
  const auto ack = worker->Next();
  ASSERT_TRUE(ack && ack->has_end_ack());
  EXPECT_EQ(Get(job).job().state(), static_cast<int>(TaskState::kSucceeded));
}

TEST_P(SessionTest, AWorkerSeesItselfAloneInTheList) {
  const std::string other(32, 'f');
  auto first = Dial();
  ASSERT_TRUE(first->Greet());
  const auto second = GreetAs(other, "w2");
  ASSERT_TRUE(second);
  auto workers = v1::Workers::NewStub(ConnectTo(*server_, Transport::kTls));
  v1::ListWorkersReply reply;
  Call call(Credential(Role::kWorker, other));
  ASSERT_TRUE(workers->List(&call, {}, &reply).ok());
  ASSERT_EQ(reply.workers_size(), 1);
  EXPECT_EQ(reply.workers(0).id(), other);
  Call bare(Token(Role::kWorker));
  EXPECT_EQ(workers->List(&bare, {}, &reply).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  // All of them, page by page.
  v1::ListWorkersRequest page;
  page.set_limit(1);
  std::vector<std::string> ids;
  do {
    Call next(client_);
    ASSERT_TRUE(workers_->List(&next, page, &reply).ok());
    ASSERT_EQ(reply.workers_size(), 1);
    ids.push_back(reply.workers(0).id());
    page.set_after(reply.next());
  } while (!reply.next().empty());
  EXPECT_EQ(ids, (std::vector<std::string>{FakeWorker::kId, other}));
}

TEST_P(SessionTest, AWorkerSeesThatAnotherHasItsName) {
  const std::string other(32, 'f');
  auto first = Dial();
  ASSERT_TRUE(first->Greet());
  const auto second = GreetAs(other, "w1");
  ASSERT_TRUE(second);
  auto workers = v1::Workers::NewStub(ConnectTo(*server_, Transport::kTls));
  v1::ListWorkersReply reply;
  Call call(Credential(Role::kWorker, other));
  ASSERT_TRUE(workers->List(&call, {}, &reply).ok());
  ASSERT_EQ(reply.workers_size(), 2);
  EXPECT_EQ(reply.workers(0).id(), FakeWorker::kId);
  EXPECT_FALSE(reply.workers(0).has_resources());  // and no more of it
  EXPECT_TRUE(reply.workers(1).has_resources());
}

TEST_P(SessionTest, AClosedSessionIsSeen) {
  auto worker = Dial();
  ASSERT_TRUE(worker->Greet());
  EXPECT_EQ(WorkersInState(WorkerState::kOnline), 1);
  const auto online = [&] {
    v1::StatusRequest request;
    request.mutable_version()->set_major(1);
    v1::StatusReply reply;
    Call call(client_);
    EXPECT_TRUE(admin_->Status(&call, request, &reply).ok());
    return reply.workers_online();
  };
  EXPECT_EQ(online(), 1);
  worker.reset();
  EXPECT_TRUE(Eventually([&] { return WorkersInState(WorkerState::kOnline) == 0; }));
  EXPECT_EQ(online(), 0);
}

}  // namespace
}  // namespace gpulayer::testing
