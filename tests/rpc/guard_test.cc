#include "server/rpc/guard.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>

#include "model/token.h"
#include "rpc/fake_worker.h"
#include "rpc/fixture.h"
#include "server/rpc/streams.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;

std::vector<const google::protobuf::MethodDescriptor*> AllMethods() {
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const auto* file :
       {v1::SubmitRequest::descriptor()->file(), v1::ReadLogsRequest::descriptor()->file(),
        v1::MissingRequest::descriptor()->file(), v1::Hello::descriptor()->file(),
        v1::ExecInput::descriptor()->file(), v1::StatusRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        methods.push_back(file->service(s)->method(m));
    }
  }
  return methods;
}

class GuardTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (server_) channel_ = ConnectTo(*server_, Transport::kTls);
  }

  // Calls any method with an empty message and says how it ended.
  grpc::Status Try(const google::protobuf::MethodDescriptor* method, const std::string& bearer) {
    const std::string path = "/" + method->service()->full_name() + "/" + method->name();
    grpc::GenericStub stub(channel_);
    Call call(bearer);
    grpc::CompletionQueue queue;
    auto stream = stub.PrepareCall(&call, path, &queue);
    grpc::Slice empty("", std::size_t{0});
    grpc::ByteBuffer request(&empty, 1);
    grpc::Status status;
    const auto next = [&] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    stream->StartCall(nullptr);
    if (next()) {
      grpc::WriteOptions last;
      last.set_last_message();
      stream->Write(request, last, nullptr);
      next();
    }
    stream->Finish(&status, nullptr);
    next();
    return status;
  }

  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GuardTest, EveryMethodRefusesStrangersAndWrongRoles) {
  std::set<std::string> ruled;
  const std::string client = Credential(Role::kClient, "laptop");
  const std::string worker = Credential(Role::kWorker, FakeWorker::kId);
  for (const auto* method : AllMethods()) {
    const std::string name = method->service()->name() + "." + method->name();
    SCOPED_TRACE(name);
    const rpc::MethodRule* rule = nullptr;
    for (const rpc::MethodRule& one : rpc::MethodRules()) {
      if (one.name == name) rule = &one;
    }
    ASSERT_NE(rule, nullptr) << "add it to the table of methods";
    ruled.insert(name);
    EXPECT_EQ(Try(method, "").error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(Try(method, "glc1.admin.00000000.00000000000000000000000000000000").error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
    if (!rule->client) {
      EXPECT_EQ(Try(method, client).error_code(), grpc::StatusCode::PERMISSION_DENIED);
    }
    if (!rule->worker) {
      EXPECT_EQ(Try(method, worker).error_code(), grpc::StatusCode::PERMISSION_DENIED);
    }
  }
  EXPECT_EQ(ruled.size(), rpc::MethodRules().size());
}

TEST_F(GuardTest, EachReasonHasItsOwnWords) {
  auto jobs = v1::Jobs::NewStub(channel_);
  auto admin = v1::Admin::NewStub(channel_);
  const auto submit = [&](const std::string& bearer) {
    v1::SubmitReply reply;
    Call call(bearer);
    return jobs->Submit(&call, {}, &reply);
  };
  EXPECT_THAT(submit("").error_message(), HasSubstr("no token was sent"));
  EXPECT_THAT(submit("rubbish").error_message(), HasSubstr("token is wrong"));

  TokenText forged = *ParseToken(Token(Role::kClient));
  forged.secret[0] = forged.secret[0] == 'a' ? 'b' : 'a';
  EXPECT_THAT(submit(FormatToken(forged)).error_message(), HasSubstr("token is wrong"));

  const grpc::Status wrong_role = submit(Token(Role::kWorker));
  EXPECT_EQ(wrong_role.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(wrong_role.error_message(),
            "this is a worker's token; submitting needs a client token");

  auto brief = server_->CreateToken(Role::kClient, UserName("ann"), std::chrono::microseconds(1));
  ASSERT_TRUE(brief.ok());
  EXPECT_THAT(submit(*brief).error_message(), HasSubstr("token expired at "));

  const std::string revoked = Token(Role::kClient);
  EXPECT_EQ(submit(revoked).error_code(), grpc::StatusCode::INVALID_ARGUMENT);  // let in
  v1::RevokeTokenRequest request;
  request.set_id(ParseToken(revoked)->id);
  v1::RevokeTokenReply reply;
  Call call(Token(Role::kAdmin));
  ASSERT_TRUE(admin->RevokeToken(&call, request, &reply).ok());
  EXPECT_THAT(submit(revoked).error_message(), HasSubstr("token was revoked"));
}

TEST_F(GuardTest, RevokingEndsOpenStreamsOfThatCredentialAlone) {
  const std::string mine = Credential(Role::kWorker, FakeWorker::kId);
  FakeWorker worker(channel_, mine);
  ASSERT_TRUE(worker.Greet());
  auto admin = v1::Admin::NewStub(channel_);
  v1::RevokeTokenRequest request;
  request.set_id(ParseToken(mine)->id);
  v1::RevokeTokenReply reply;
  Call call(Token(Role::kAdmin));
  ASSERT_TRUE(admin->RevokeToken(&call, request, &reply).ok());
  EXPECT_EQ(worker.Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST(StreamRegistryTest, AStreamThatComesAfterItsTokenWasRevokedIsEnded) {
  struct Stream : rpc::OpenStream {
    void End(const Status& why) override { ended = why; }
    std::optional<Status> ended;
  };
  rpc::StreamRegistry registry;
  registry.EndOf("revoked", Unauthenticated("token was revoked"));
  const auto late = std::make_shared<Stream>();
  const auto other = std::make_shared<Stream>();
  registry.Add(late, "revoked");
  registry.Add(other, "good");
  ASSERT_TRUE(late->ended);
  EXPECT_EQ(late->ended->code(), StatusCode::kUnauthenticated);
  EXPECT_FALSE(other->ended);
  // So many that the server would only grow.
  for (int i = 0; i < 1'000; ++i) registry.EndOf("t" + std::to_string(i), Unauthenticated(""));
  const auto later = std::make_shared<Stream>();
  registry.Add(later, "revoked");
  EXPECT_FALSE(later->ended) << "the guard refuses it long since";
}

TEST_F(GuardTest, ARevokedWorkerIsGivenUpUnlessItHasJoinedAgain) {
  const std::string admin_token = Token(Role::kAdmin);
  const std::string earlier = Credential(Role::kWorker, FakeWorker::kId);
  const std::string mine = Credential(Role::kWorker, FakeWorker::kId);
  FakeWorker worker(channel_, mine);
  ASSERT_TRUE(worker.Greet());
  auto admin = v1::Admin::NewStub(channel_);
  auto workers = v1::Workers::NewStub(channel_);
  const auto revoke = [&](const std::string& credential) {
    v1::RevokeTokenRequest request;
    request.set_id(ParseToken(credential)->id);
    v1::RevokeTokenReply reply;
    Call call(admin_token);
    return admin->RevokeToken(&call, request, &reply).ok();
  };
  const auto state = [&] {
    v1::ListWorkersReply reply;
    Call call(admin_token);
    EXPECT_TRUE(workers->List(&call, {}, &reply).ok());
    return reply.workers_size() == 1 ? static_cast<WorkerState>(reply.workers(0).state())
                                     : WorkerState::kSuspect;
  };
  ASSERT_TRUE(revoke(earlier));
  EXPECT_EQ(state(), WorkerState::kOnline);
  ASSERT_TRUE(revoke(mine));
  EXPECT_EQ(state(), WorkerState::kOffline);  // not suspect: nothing is waited for
}

TEST_F(GuardTest, AWorkersCredentialOpensOnlyItsOwnSession) {
  FakeWorker other(channel_, Credential(Role::kWorker, std::string(32, 'f')));
  other.Send(FakeWorker::HelloMessage());
  EXPECT_EQ(other.Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  FakeWorker bare(channel_, Token(Role::kWorker));
  bare.Send(FakeWorker::HelloMessage());
  EXPECT_EQ(bare.Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(GuardTest, TokensAreListedWithoutSecrets) {
  auto admin = v1::Admin::NewStub(channel_);
  const std::string root = Token(Role::kAdmin);
  v1::CreateTokenRequest request;
  request.set_role("client");
  request.set_user("bob");
  request.set_expires_in_ms(60'000);
  v1::CreateTokenReply made;
  Call create(root);
  ASSERT_TRUE(admin->CreateToken(&create, request, &made).ok());
  v1::ListTokensReply list;
  Call call(root);
  ASSERT_TRUE(admin->ListTokens(&call, {}, &list).ok());
  bool seen = false;
  for (const auto& token : list.tokens()) {
    if (token.id() != made.id()) continue;
    seen = true;
    EXPECT_EQ(token.user(), "bob");
    EXPECT_TRUE(token.has_expires_at_us());
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(list.SerializeAsString().find(ParseToken(made.token())->secret), std::string::npos);
  // Nor does the database hold it.
  const auto names = ListDir(dir_ / "d/server");
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    const auto data = ReadFile(JoinPath(dir_ / "d/server", name));  // folders cannot be read
    EXPECT_EQ(data.value_or("").find(ParseToken(made.token())->secret), std::string::npos) << name;
  }
}

TEST_F(GuardTest, ACredentialMayRevokeItselfAndNoOther) {
  auto admin = v1::Admin::NewStub(channel_);
  const std::string mine = Credential(Role::kClient, "laptop");
  const std::string other = Credential(Role::kWorker, FakeWorker::kId);
  const auto revoke = [&](const std::string& bearer, const std::string& id) {
    v1::RevokeTokenRequest request;
    request.set_id(id);
    v1::RevokeTokenReply reply;
    Call call(bearer);
    return admin->RevokeToken(&call, request, &reply).error_code();
  };
  EXPECT_EQ(revoke(mine, ParseToken(other)->id), grpc::StatusCode::PERMISSION_DENIED);
  const std::string shared = Token(Role::kClient);
  EXPECT_EQ(revoke(shared, ""), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(revoke(mine, ""), grpc::StatusCode::OK);
  EXPECT_EQ(revoke(mine, ""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(revoke(other, ParseToken(other)->id), grpc::StatusCode::OK);
}

TEST_F(GuardTest, TokensAreListedPageByPage) {
  auto admin = v1::Admin::NewStub(channel_);
  const std::string root = Token(Role::kAdmin);
  for (int i = 0; i < 4; ++i) Token(Role::kClient);
  std::vector<std::string> ids;
  v1::ListTokensRequest request;
  request.set_limit(2);
  for (int page = 0; page < 3; ++page) {
    v1::ListTokensReply list;
    Call call(root);
    ASSERT_TRUE(admin->ListTokens(&call, request, &list).ok());
    for (const auto& token : list.tokens()) ids.push_back(token.id());
    EXPECT_EQ(list.next().empty(), page == 2);
    request.set_after(list.next());
  }
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 5U);
  EXPECT_EQ(ids.size(), 5U);
}

TEST_F(GuardTest, ACallersRoleBoundsWhatATokenIsExchangedFor) {
  auto admin = v1::Admin::NewStub(channel_);
  const auto exchange = [&](const std::string& bearer, const std::string& role) {
    v1::ExchangeRequest request;
    request.mutable_version()->set_major(1);
    request.set_subject("x");
    request.set_wanted_role(role);
    v1::ExchangeReply reply;
    Call call(bearer);
    return admin->Exchange(&call, request, &reply).error_code();
  };
  EXPECT_EQ(exchange(Token(Role::kWorker), "client"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(exchange(Token(Role::kClient), "admin"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(exchange(Token(Role::kAdmin), "worker"), grpc::StatusCode::OK);
  EXPECT_EQ(exchange(Token(Role::kAdmin), "admin"), grpc::StatusCode::OK);
  EXPECT_EQ(exchange(Token(Role::kClient), "king"), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(exchange(Credential(Role::kClient, "a"), "client"),
            grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace gpulayer::testing
