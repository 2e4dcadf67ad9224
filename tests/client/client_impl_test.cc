// What a caller may ask for that makes no sense, or only just does.
#include "client/client_impl.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>

#include "client/fake_transport.h"
#include "client/grpc_transport.h"
#include "gpulayer/v1/admin.pb.h"
#include "support/temp_dir.h"
#include "wire/tree.h"
#include "wire/version.h"

namespace gpulayer::client {
namespace {

using std::chrono::milliseconds;

class ClientImplTest : public ::testing::Test {
 protected:
  ClientImplTest() {
    auto fake = std::make_unique<FakeTransport>();
    fake->answers[Method::kStatus] = [](const auto&, auto* reply) {
      *static_cast<v1::StatusReply*>(reply)->mutable_version() = wire::OwnVersion();
      return OkStatus();
    };
    fake->answers[Method::kGetJob] = [this](const auto&, auto* reply) {
      auto* answer = static_cast<v1::GetJobReply*>(reply);
      answer->mutable_job()->set_id(1);
      answer->mutable_job()->set_state(static_cast<std::int32_t>(state_));
      if (!outputs_.empty()) answer->add_tasks()->mutable_outputs()->set_tree(outputs_);
      return OkStatus();
    };
    fake_ = fake.get();
    api::ClientOptions options;
    options.call_timeout = milliseconds::max();
    options.reconnect_for = milliseconds::max();
    auto impl = api::Client::Impl::Make(options, Target(), nullptr, std::move(fake));
    EXPECT_TRUE(impl.ok()) << impl.status().ToString();
    impl_ = *impl;
  }

  // Files of one task, by name and content.
  void HasOutputs(const std::map<std::string, std::string>& files) {
    Tree tree;
    for (const auto& [path, content] : files) {
      TreeEntry entry;
      entry.path = path;
      entry.mode = 0644;
      entry.size = std::ssize(content);
      entry.hash = Hash::Of(content);
      fake_->blobs[std::string(entry.hash.bytes())] = content;
      tree.entries.push_back(std::move(entry));
    }
    const std::string manifest = wire::SerializeTree(tree);
    outputs_ = Hash::Of(manifest).bytes();
    fake_->blobs[outputs_] = manifest;
  }

  api::JobState state_ = api::JobState::kSucceeded;
  std::string outputs_;  // hash of the manifest; empty: none
  FakeTransport* fake_ = nullptr;
  std::shared_ptr<api::Client::Impl> impl_;
};

TEST_F(ClientImplTest, NoTimeIsEnoughToHearOfAnEnd) {
  EXPECT_EQ(impl_->Watch(1, nullptr, milliseconds(0))->state, api::JobState::kSucceeded);
  state_ = api::JobState::kRunning;
  EXPECT_EQ(impl_->Watch(1, nullptr, milliseconds(0)).status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST_F(ClientImplTest, AnEmptyFunctionIsRefused) {
  EXPECT_EQ(impl_->StreamLogs(1, {}, nullptr).code(), StatusCode::kInvalidArgument);
}

TEST_F(ClientImplTest, AFolderThatIsNamedKeepsTheFilesThatAreThere) {
  const testing::TempDir dir;
  api::DownloadOptions options;
  options.to = dir / "to";
  HasOutputs({{"a", "1"}, {"b", "2"}, {"sub/c", "3"}});
  ASSERT_TRUE(impl_->Download(1, options).ok());
  ASSERT_TRUE(impl_->Download(1, options).ok()) << "what is there is the same";
  ASSERT_TRUE(WriteFileAtomic(dir / "to/sub/c", "mine").ok());
  ASSERT_TRUE(RemoveTree(dir / "to/a").ok());
  const Status refused = impl_->Download(1, options).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("content: sub/c. Nothing"), std::string::npos)
      << refused.message();
  EXPECT_EQ(ReadFile(dir / "to/sub/c").value_or(""), "mine");
  EXPECT_FALSE(PathExists(dir / "to/a"));
}

TEST_F(ClientImplTest, SecretsAreAskedAgainAndOnlyOfAServerThatKnowsThem) {
  fake_->answers[Method::kGetJob] = [](const auto&, auto* reply) {
    v1::JobInfo* job = static_cast<v1::GetJobReply*>(reply)->mutable_job();
    job->set_state(static_cast<std::int32_t>(api::JobState::kFailed));
    job->mutable_spec()->add_secrets("KEY");
    job->mutable_spec()->add_secrets("TOK");
    return OkStatus();
  };
  v1::SubmitRequest sent;
  fake_->answers[Method::kSubmit] = [&](const auto& request, auto* reply) {
    sent = static_cast<const v1::SubmitRequest&>(request);
    static_cast<v1::SubmitReply*>(reply)->add_jobs()->set_job(8);
    return OkStatus();
  };
  api::RetryOptions options;
  options.secrets = {{"KEY", "k"}};
  const Status missing = impl_->Retry(impl_, 7, options).status();
  EXPECT_EQ(missing.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(missing.message().find("again: --secret TOK"), std::string::npos) << missing.message();
  options.secrets["TOK"] = "t";
  ASSERT_TRUE(impl_->Retry(impl_, 7, options).ok());
  ASSERT_EQ(sent.secrets_size(), 1);
  EXPECT_EQ(sent.secrets(0).values(1).value(), "t");
  options.secrets["OTHER"] = "o";
  EXPECT_EQ(impl_->Retry(impl_, 7, options).status().code(), StatusCode::kInvalidArgument);

  auto old = std::make_unique<FakeTransport>();
  old->answers[Method::kStatus] = [](const auto&, auto* reply) {
    *static_cast<v1::StatusReply*>(reply)->mutable_version() = wire::OwnVersion();
    static_cast<v1::StatusReply*>(reply)->mutable_version()->clear_features();
    return OkStatus();
  };
  auto client = *api::Client::Impl::Make({}, Target(), nullptr, std::move(old));
  api::JobSpec spec;
  spec.command = {"true"};
  spec.secrets = {{"TOK", "t"}};
  const Status refused = client->Submit(client, std::span(&spec, 1)).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("knows no secrets"), std::string::npos) << refused.message();
}

TEST(GrpcTransportTest, AForkedChildIsToldThatTheClientIsItsParents) {
  const std::unique_ptr<Transport> transport = MakeGrpcTransport({"/none", "", "", ""});
  const pid_t child = ::fork();
  if (child == 0) {
    v1::StatusReply reply;
    const Status status = transport->Call(Method::kStatus, v1::StatusRequest(), &reply, {});
    ::_exit(status.code() == StatusCode::kFailedPrecondition &&
                    status.message().find("parent process") != std::string::npos
                ? 0
                : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gpulayer::client
