// What a caller may ask for that makes no sense, or only just does.
#include "client/client_impl.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/fake_transport.h"
#include "client/grpc_transport.h"
#include "gpulayer/v1/admin.pb.h"
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
      auto* job = static_cast<v1::GetJobReply*>(reply)->mutable_job();
      job->set_id(1);
      job->set_state(static_cast<std::int32_t>(state_));
      return OkStatus();
    };
    api::ClientOptions options;
    options.call_timeout = milliseconds::max();
    options.reconnect_for = milliseconds::max();
    auto impl = api::Client::Impl::Make(options, Target(), nullptr, std::move(fake));
    EXPECT_TRUE(impl.ok()) << impl.status().ToString();
    impl_ = *impl;
  }

  api::JobState state_ = api::JobState::kSucceeded;
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
