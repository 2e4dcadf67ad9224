// A real server in a folder of its own, and callers over both transports.
#ifndef GPULAYER_TESTS_RPC_FIXTURE_H_
#define GPULAYER_TESTS_RPC_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpulayer/v1/admin.grpc.pb.h"
#include "gpulayer/v1/artifacts.grpc.pb.h"
#include "gpulayer/v1/exec.grpc.pb.h"
#include "gpulayer/v1/jobs.grpc.pb.h"
#include "gpulayer/v1/logs.grpc.pb.h"
#include "gpulayer/v1/workers.grpc.pb.h"
#include "model/token.h"
#include "server/server.h"
#include "support/temp_dir.h"

namespace gpulayer::testing {

inline constexpr auto kPatience = std::chrono::seconds(20);

enum class Transport { kUnix, kTls };

// A client context with a deadline and, if given, a bearer.
class Call {
 public:
  explicit Call(const std::string& bearer = "", std::chrono::milliseconds patience = kPatience) {
    context_.set_deadline(std::chrono::system_clock::now() + patience);
    if (!bearer.empty()) context_.AddMetadata("authorization", "Bearer " + bearer);
  }
  grpc::ClientContext* operator&() { return &context_; }
  grpc::ClientContext* operator->() { return &context_; }

 private:
  grpc::ClientContext context_;
};

inline std::shared_ptr<grpc::Channel> ConnectTo(const Server& server, Transport transport) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(8 << 20);
  if (transport == Transport::kUnix) {
    return grpc::CreateCustomChannel("unix:" + server.socket_path(),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = server.ca_pem();
  arguments.SetSslTargetNameOverride(kTlsServerName);
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server.port()),
                                   grpc::SslCredentials(ssl), arguments);
}

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override { StartServer(); }
  void TearDown() override { server_.reset(); }

  virtual void Adjust(ServerOptions&) {}
  void StartServer() {
    ServerOptions options;
    options.data_dir = dir_ / "d";
    options.listen = "127.0.0.1:0";
    options.durable = false;
    Adjust(options);
    auto started = Server::Start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    server_ = *std::move(started);
  }

  std::string Token(Role role, const std::string& user = "ann") {
    auto token = server_->CreateToken(role, UserName(user), std::nullopt);
    EXPECT_TRUE(token.ok()) << token.status().ToString();
    return token.value_or("");
  }

  // A credential for `subject` made of a fresh token of `role`.
  std::string Credential(Role role, const std::string& subject) {
    auto admin = v1::Admin::NewStub(ConnectTo(*server_, Transport::kTls));
    v1::ExchangeRequest request;
    request.mutable_version()->set_major(1);
    request.set_subject(subject);
    request.set_wanted_role(std::string(ToString(role)));
    v1::ExchangeReply reply;
    Call call(Token(role));
    const grpc::Status status = admin->Exchange(&call, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.credential();
  }

  TempDir dir_;
  std::unique_ptr<Server> server_;
};

// Every test over the socket (as admin) and over TLS (with a credential).
class BothTransports : public ServerTest, public ::testing::WithParamInterface<Transport> {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (!server_) return;
    if (GetParam() == Transport::kTls) client_ = Credential(Role::kClient, "laptop");
    channel_ = ConnectTo(*server_, GetParam());
    jobs_ = v1::Jobs::NewStub(channel_);
    logs_ = v1::Logs::NewStub(channel_);
    artifacts_ = v1::Artifacts::NewStub(channel_);
    workers_ = v1::Workers::NewStub(channel_);
    admin_ = v1::Admin::NewStub(channel_);
  }

  static v1::JobSpec Spec(const std::vector<std::string>& command, const std::string& request_id) {
    v1::JobSpec spec;
    for (const std::string& arg : command) spec.add_command(arg);
    spec.mutable_requirements()->set_slots(1);
    spec.mutable_outputs()->set_collect(true);
    spec.mutable_outputs()->set_limit_bytes(1 << 30);
    spec.set_grace_ms(1000);
    spec.set_task_count(1);
    spec.set_request_id(request_id);
    spec.set_wait_for_worker(true);
    return spec;
  }

  grpc::Status TrySubmit(const v1::JobSpec& spec, v1::SubmitReply* reply) {
    v1::SubmitRequest request;
    *request.add_jobs() = spec;
    Call call(client_);
    return jobs_->Submit(&call, request, reply);
  }
  std::int64_t Submit(const v1::JobSpec& spec) {
    v1::SubmitReply reply;
    const grpc::Status status = TrySubmit(spec, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.jobs_size() == 1 ? reply.jobs(0).job() : 0;
  }
  v1::GetJobReply Get(std::int64_t job) {
    v1::GetJobRequest request;
    request.set_job(job);
    v1::GetJobReply reply;
    Call call(client_);
    const grpc::Status status = jobs_->Get(&call, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  std::string client_;  // bearer of the client; empty over the socket
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<v1::Logs::Stub> logs_;
  std::unique_ptr<v1::Artifacts::Stub> artifacts_;
  std::unique_ptr<v1::Workers::Stub> workers_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

inline std::string TransportName(const ::testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::kUnix ? "Unix" : "Tls";
}

}  // namespace gpulayer::testing

#define GPULAYER_BOTH_TRANSPORTS(Suite)                                             \
  INSTANTIATE_TEST_SUITE_P(, Suite,                                                 \
                           ::testing::Values(::gpulayer::testing::Transport::kUnix, \
                                             ::gpulayer::testing::Transport::kTls), \
                           ::gpulayer::testing::TransportName)

#endif  // GPULAYER_TESTS_RPC_FIXTURE_H_
