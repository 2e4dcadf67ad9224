// Commands inside attempts, as the server passes them on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "model/job.h"
#include "model/limits.h"
#include "rpc/fake_worker.h"
#include "rpc/fixture.h"
#include "support/eventually.h"
#include "wire/version.h"

namespace gpulayer::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using v1::ExecInput;
using v1::ExecOutput;

constexpr char kOtherWorker[] = "fedcba9876543210fedcba9876543210";

// A stream with its context; broken off at the latest with this object.
template <typename Out, typename In>
class Stream {
 public:
  template <typename Open>
  Stream(const std::string& bearer, Open open) : call_(bearer), stream_(open(&call_)) {}
  ~Stream() {
    if (finished_) return;
    call_->TryCancel();
    Finish();
  }

  bool Write(const Out& message) { return stream_->Write(message); }
  std::optional<In> Read() {
    In message;
    if (!stream_->Read(&message)) return std::nullopt;
    return message;
  }
  void Cancel() { call_->TryCancel(); }
  // What comes meanwhile is dropped.
  grpc::Status Finish() {
    while (Read()) {
    }
    finished_ = true;
    return stream_->Finish();
  }

 private:
  Call call_;
  std::unique_ptr<grpc::ClientReaderWriter<Out, In>> stream_;
  bool finished_ = false;
};
using RunStream = Stream<ExecInput, ExecOutput>;
using ServeStream = Stream<ExecOutput, ExecInput>;

ExecInput BeginOf(std::int64_t job) {
  ExecInput message;
  message.mutable_begin()->set_job(job);
  message.mutable_begin()->add_command("cat");
  message.mutable_begin()->add_command("a\xff b");
  return message;
}
ExecInput Data(const std::string& bytes) {
  ExecInput message;
  message.set_data(bytes);
  return message;
}
ExecOutput Out(const std::string& bytes) {
  ExecOutput message;
  message.set_out(bytes);
  return message;
}
ExecOutput Ended(int exit_code) {
  ExecOutput message;
  message.mutable_ended()->set_exit_code(exit_code);
  return message;
}

class ExecTest : public BothTransports {
 protected:
  void SetUp() override {
    BothTransports::SetUp();
    if (channel_) exec_ = v1::Exec::NewStub(channel_);
  }
  void TearDown() override {
    run_.reset();
    serve_.reset();
    worker_.reset();
    BothTransports::TearDown();
  }

  std::string WorkerBearer() {
    if (GetParam() == Transport::kUnix) return "";
    if (worker_bearer_.empty()) worker_bearer_ = Credential(Role::kWorker, FakeWorker::kId);
    return worker_bearer_;
  }
  void Connect(bool knows_exec = true) {
    worker_ = std::make_unique<FakeWorker>(ConnectTo(*server_, GetParam()), WorkerBearer());
    v1::WorkerMessage hello = FakeWorker::HelloMessage();
    if (knows_exec) hello.mutable_hello()->mutable_version()->add_features(wire::kExecFeature);
    ASSERT_TRUE(worker_->Send(hello));
    const auto welcome = worker_->Next();
    ASSERT_TRUE(welcome && welcome->has_welcome());
  }
  // A job of ann's that runs on the worker; 0: it does not.
  std::int64_t RunningJob() {
    const std::int64_t job = Submit(Spec({"sleep", "600"}, "job"));
    const auto assign = worker_->NextAssign();
    if (!assign) return 0;
    key_ = assign->key();
    worker_->SendProgress(key_, static_cast<int>(AttemptState::kRunning));
    const bool runs =
        Eventually([&] { return Get(job).job().state() == static_cast<int>(TaskState::kRunning); });
    return runs ? job : 0;
  }
  std::unique_ptr<RunStream> Run(const ExecInput& begin, const std::string& bearer) {
    auto run = std::make_unique<RunStream>(
        bearer, [&](grpc::ClientContext* context) { return exec_->Run(context); });
    run->Write(begin);
    return run;
  }
  std::unique_ptr<RunStream> Run(std::int64_t job) { return Run(BeginOf(job), client_); }
  grpc::Status Refused(const ExecInput& begin) { return Run(begin, client_)->Finish(); }
  std::unique_ptr<ServeStream> Serve(const std::string& ticket, const std::string& bearer) {
    auto serve = std::make_unique<ServeStream>(
        bearer, [&](grpc::ClientContext* context) { return exec_->Serve(context); });
    ExecOutput first;
    first.set_ticket(ticket);
    serve->Write(first);
    return serve;
  }
  // What the worker is told next; empty: something else.
  std::string NextTicket(std::chrono::milliseconds patience = kPatience) {
    const auto message = worker_->Next(patience);
    if (!message || !message->has_exec()) return "";
    EXPECT_EQ(message->exec().key().SerializeAsString(), key_.SerializeAsString());
    return message->exec().ticket();
  }
  // A command that runs, with `run_` and `serve_` its two ends.
  void Open() {
    Connect();
    const std::int64_t job = RunningJob();
    ASSERT_GT(job, 0);
    run_ = Run(job);
    const std::string ticket = NextTicket();
    ASSERT_EQ(ticket.size(), 32u);
    serve_ = Serve(ticket, WorkerBearer());
    const auto begin = serve_->Read();
    ASSERT_TRUE(begin);
    EXPECT_EQ(begin->SerializeAsString(), BeginOf(job).SerializeAsString());
    const auto answered = run_->Read();
    ASSERT_TRUE(answered);
    EXPECT_EQ(answered->kind_case(), ExecOutput::KIND_NOT_SET);
  }

  std::unique_ptr<v1::Exec::Stub> exec_;
  std::unique_ptr<FakeWorker> worker_;
  std::string worker_bearer_;
  v1::AttemptKey key_;
  std::unique_ptr<RunStream> run_;
  std::unique_ptr<ServeStream> serve_;
};
GPULAYER_BOTH_TRANSPORTS(ExecTest);

// Where callers differ.
class ExecAccessTest : public ExecTest {};
INSTANTIATE_TEST_SUITE_P(, ExecAccessTest, ::testing::Values(Transport::kTls), TransportName);

TEST_P(ExecTest, PassesOnWhatComesFromEitherSide) {
  ASSERT_NO_FATAL_FAILURE(Open());
  ExecInput resize;
  resize.mutable_resize()->set_rows(50);
  ExecInput end;
  end.set_end(true);
  for (const ExecInput& message : {Data(std::string("a\0\xff", 3)), resize, end}) {
    ASSERT_TRUE(run_->Write(message));
    const auto got = serve_->Read();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->SerializeAsString(), message.SerializeAsString());
  }
  ExecOutput err;
  err.set_err("oops");
  for (const ExecOutput& message : {Out(std::string("\0\xfe", 2)), err, Ended(7)}) {
    ASSERT_TRUE(serve_->Write(message));
    const auto got = run_->Read();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->SerializeAsString(), message.SerializeAsString());
  }
  EXPECT_FALSE(run_->Read());
  EXPECT_TRUE(run_->Finish().ok());
  EXPECT_TRUE(serve_->Finish().ok());
}

TEST_P(ExecTest, TenMegabytesEachWayAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Open());
  constexpr int kPieces = 160;
  const auto piece = [](int i) {
    return std::string(limits::kExecPieceBytes, static_cast<char>('a' + i % 26));
  };
  std::thread echo([&] {
    while (const auto message = serve_->Read()) {
      if (message->has_end()) break;
      if (!serve_->Write(Out(message->data()))) return;
    }
    serve_->Write(Ended(0));
  });
  std::thread writer([&] {
    for (int i = 0; i < kPieces; ++i) {
      if (!run_->Write(Data(piece(i)))) return;
    }
    ExecInput end;
    end.set_end(true);
    run_->Write(end);
  });
  int got = 0;
  bool same = true;
  std::optional<ExecOutput> message;
  while ((message = run_->Read()) && !message->has_ended()) same &= message->out() == piece(got++);
  writer.join();
  echo.join();
  EXPECT_EQ(got, kPieces);
  EXPECT_TRUE(same);
  ASSERT_TRUE(message && message->has_ended());
  EXPECT_TRUE(run_->Finish().ok());
  EXPECT_TRUE(serve_->Finish().ok());
}

TEST_P(ExecTest, AClientThatDoesNotReadMakesTheWorkerWait) {
  ASSERT_NO_FATAL_FAILURE(Open());
  constexpr int kPieces = 2048;  // 128 MiB
  std::atomic<int> sent{0};
  std::thread writer([&] {
    const ExecOutput out = Out(std::string(limits::kExecPieceBytes, 'x'));
    while (sent < kPieces && serve_->Write(out)) ++sent;
    serve_->Write(Ended(0));
  });
  int seen = -1;
  auto since = std::chrono::steady_clock::now();
  EXPECT_TRUE(Eventually([&] {
    const auto now = std::chrono::steady_clock::now();
    if (sent != seen) since = now;
    seen = sent;
    return now - since > std::chrono::milliseconds(300);
  }));
  EXPECT_LT(sent, kPieces / 2);
  int got = 0;
  while (const auto message = run_->Read()) got += message->has_out() ? 1 : 0;
  writer.join();
  EXPECT_EQ(got, kPieces);
  EXPECT_TRUE(run_->Finish().ok());
}

TEST_P(ExecTest, AWorkerThatHasEndedItIsNotHeldUpByInputThatNobodyReads) {
  ASSERT_NO_FATAL_FAILURE(Open());
  std::thread writer([&] {
    while (run_->Write(Data(std::string(limits::kExecPieceBytes, 'x')))) {
    }
  });
  ASSERT_TRUE(serve_->Write(Ended(3)));
  const auto ended = run_->Read();
  ASSERT_TRUE(ended && ended->has_ended());
  EXPECT_TRUE(run_->Finish().ok());
  writer.join();
  serve_->Cancel();
  serve_->Finish();
}

TEST_P(ExecTest, AClientThatIsGoneEndsTheWorkersSide) {
  ASSERT_NO_FATAL_FAILURE(Open());
  run_->Cancel();
  EXPECT_FALSE(serve_->Read());
  EXPECT_EQ(serve_->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_P(ExecTest, AWorkerThatIsGoneEndsTheClientsSide) {
  ASSERT_NO_FATAL_FAILURE(Open());
  serve_->Cancel();
  const grpc::Status status = run_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("worker w1 broke the command off"));
}

TEST_P(ExecTest, AWorkerThatTalksNonsenseIsGoneToTheClient) {
  ASSERT_NO_FATAL_FAILURE(Open());
  ExecOutput again;
  again.set_ticket("x");
  serve_->Write(again);
  EXPECT_EQ(serve_->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status status = run_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("worker w1 broke the command off"));
}

TEST_P(ExecTest, ASessionThatEndsBeforeItsWorkerCame) {
  Connect();
  const std::int64_t job = RunningJob();
  ASSERT_GT(job, 0);
  const auto run = Run(job);
  ASSERT_NE(NextTicket(), "");
  worker_.reset();
  const grpc::Status status = run->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("worker w1"));
  // Nor is it there for the next one.
  ASSERT_TRUE(Eventually([&] {
    return Refused(BeginOf(job)).error_message().find("is not connected") != std::string::npos;
  }));
}

TEST_P(ExecTest, WhatDoesNotRunIsRefused) {
  Connect();
  const std::int64_t job = RunningJob();
  ASSERT_GT(job, 0);
  ExecInput other_task = BeginOf(job);
  other_task.mutable_begin()->set_task(5);
  grpc::Status status = Refused(other_task);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("it has no task 5"));
  ASSERT_TRUE(worker_->SendEnded(key_, 0, 0));
  ASSERT_TRUE(Eventually(
      [&] { return Get(job).job().state() == static_cast<int>(TaskState::kSucceeded); }));
  status = Refused(BeginOf(job));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("is over, there is nothing to run a command in"));
  status = Refused(BeginOf(job + 1));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("no such job"));
}

TEST_P(ExecTest, AWorkerThatKnowsNoneIsNotAsked) {
  Connect(false);
  const std::int64_t job = RunningJob();
  ASSERT_GT(job, 0);
  const grpc::Status status = Refused(BeginOf(job));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("worker w1: its version knows no commands"));
}

TEST_P(ExecTest, NonsenseIsRefused) {
  EXPECT_EQ(Refused(Data("x")).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ExecInput nothing = BeginOf(1);
  nothing.mutable_begin()->clear_command();
  EXPECT_EQ(Refused(nothing).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Refused(BeginOf(0)).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status stranger = Serve(std::string(32, 'a'), WorkerBearer())->Finish();
  EXPECT_EQ(stranger.error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_NO_FATAL_FAILURE(Open());
  run_->Write(Data(std::string(limits::kExecPieceBytes + 1, 'x')));
  EXPECT_EQ(run_->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(serve_->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_P(ExecTest, NoMoreThanALimitAtOnce) {
  Connect();
  const std::int64_t job = RunningJob();
  ASSERT_GT(job, 0);
  std::vector<std::unique_ptr<RunStream>> all;
  for (std::size_t i = 0; i < limits::kMaxExecs; ++i) {
    all.push_back(Run(job));
    ASSERT_NE(NextTicket(), "");
  }
  const grpc::Status status = Refused(BeginOf(job));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("64 commands run inside jobs now"));
  all.pop_back();
  EXPECT_TRUE(Eventually([&] {
    const auto run = Run(job);
    return NextTicket(std::chrono::milliseconds(200)) != "";
  }));
}

TEST_P(ExecTest, AStopEndsBothSides) {
  ASSERT_NO_FATAL_FAILURE(Open());
  const auto waits = Run(1);  // and one whose worker has not come
  ASSERT_NE(NextTicket(), "");
  const auto begin = std::chrono::steady_clock::now();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  for (RunStream* run : {run_.get(), waits.get()}) {
    const grpc::Status status = run->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("server is stopping"));
  }
  EXPECT_FALSE(serve_->Finish().ok());
}

TEST_P(ExecAccessTest, AnotherUsersJobIsRefused) {
  Connect();
  const std::int64_t job = RunningJob();
  ASSERT_GT(job, 0);
  const grpc::Status status = Run(BeginOf(job), Token(Role::kClient, "bob"))->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("it is a job of ann"));
  const auto admin = Run(BeginOf(job), Token(Role::kAdmin, "root"));
  EXPECT_NE(NextTicket(), "");
}

TEST_P(ExecAccessTest, AnotherWorkerWithTheRightTicketIsRefused) {
  Connect();
  const std::int64_t job = RunningJob();
  ASSERT_GT(job, 0);
  const auto run = Run(job);
  const std::string ticket = NextTicket();
  ASSERT_NE(ticket, "");
  for (const std::string& bearer :
       {Credential(Role::kWorker, kOtherWorker), Token(Role::kWorker)}) {
    EXPECT_EQ(Serve(ticket, bearer)->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  const auto serve = Serve(ticket, WorkerBearer());
  EXPECT_TRUE(serve->Read());
  EXPECT_TRUE(run->Read());
  // It was good for once.
  EXPECT_EQ(Serve(ticket, WorkerBearer())->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_P(ExecAccessTest, ARevokedTokenEndsIt) {
  ASSERT_NO_FATAL_FAILURE(Open());
  v1::RevokeTokenRequest request;
  request.set_id(ParseToken(client_)->id);
  v1::RevokeTokenReply reply;
  Call call(Token(Role::kAdmin));
  ASSERT_TRUE(admin_->RevokeToken(&call, request, &reply).ok());
  const grpc::Status status = run_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(serve_->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

class ExecLateTest : public ExecTest {
 protected:
  void Adjust(ServerOptions& options) override {
    options.exec_deadline = std::chrono::milliseconds(1);
  }
};
INSTANTIATE_TEST_SUITE_P(, ExecLateTest, ::testing::Values(Transport::kTls), TransportName);

TEST_P(ExecLateTest, AWorkerThatDoesNotComeInTime) {
  Connect();
  const std::int64_t job = RunningJob();
  ASSERT_GT(job, 0);
  const auto run = Run(job);
  const std::string ticket = NextTicket();
  ASSERT_NE(ticket, "");
  const grpc::Status status = run->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("worker w1 did not answer in time"));
  EXPECT_EQ(Serve(ticket, WorkerBearer())->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace gpulayer::testing
