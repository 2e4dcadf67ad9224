#include "server/server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "model/log_frame.h"
#include "model/token.h"
#include "rpc/fake_worker.h"
#include "rpc/fixture.h"
#include "server/security/tls.h"
#include "support/eventually.h"
#include "support/small_disk.h"
#include "worker/session/grpc_log.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class WholeServerTest : public ServerTest {
 protected:
  static int ModeOf(const std::string& path) {
    struct stat st{};
    return stat(path.c_str(), &st) == 0 ? static_cast<int>(st.st_mode & 0777) : -1;
  }
};

TEST_F(WholeServerTest, ASecondServerOnTheSameFolderIsRefusedAtOnce) {
  auto second = Server::Start({dir_ / "d", "", false});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("is in use by pid " + std::to_string(getpid())));
  EXPECT_TRUE(PathExists(server_->socket_path()));
}

TEST_F(WholeServerTest, APortInUseIsSaidAndNothingIsLeft) {
  auto second = Server::Start({dir_ / "e", "127.0.0.1:" + std::to_string(server_->port()), false});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("is in use by another program"));
  EXPECT_FALSE(PathExists(dir_ / "e/server.sock"));
  EXPECT_FALSE(PathExists(dir_ / "e/server/server.db"));
  EXPECT_FALSE(PathExists(dir_ / "e/server/endpoint.json"));
  for (const char* bad : {"nonsense", "1.2.3.4.5:1", "127.0.0.1:99999", "192.0.2.1:0"}) {
    EXPECT_FALSE(Server::Start({dir_ / "e", bad, false}).ok()) << bad;
  }
}

TEST_F(WholeServerTest, AFolderThatCannotBeMadeIsSaid) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "file", "x").ok());
  auto server = Server::Start({dir_ / "file", "", false});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.status().message(), HasSubstr("--data-dir"));
}

TEST_F(WholeServerTest, AFolderThatCannotBeToldIsRefused) {
  auto server = Server::Start({dir_ / "caf\xe9", "", false});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.status().message(), HasSubstr("not printable UTF-8"));
}

TEST_F(WholeServerTest, FilesAreForTheOwnerAlone) {
  EXPECT_EQ(ModeOf(dir_ / "d/server"), 0700);
  EXPECT_EQ(ModeOf(server_->socket_path()), 0600);
  EXPECT_EQ(ModeOf(dir_ / "d/server/endpoint.json"), 0600);
  EXPECT_EQ(ModeOf(dir_ / "d/server/tls/ca.key"), 0600);
  EXPECT_EQ(ModeOf(dir_ / "d/server/tls/server.key"), 0600);
}

TEST_F(WholeServerTest, AnOpenDataDirectoryIsClosedToWritersAndItsPrivatePartsToAll) {
  const std::string dir = dir_ / "open";
  ASSERT_TRUE(MakeDirs(dir + "/server", 0755).ok());
  ASSERT_EQ(chmod(dir.c_str(), 0777), 0);
  ASSERT_EQ(chmod((dir + "/server").c_str(), 0755), 0);
  ::testing::internal::CaptureStderr();
  auto server = Server::Start({dir, "", false});
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_EQ(ModeOf(dir), 0755);
  EXPECT_EQ(ModeOf(dir + "/server"), 0700);
  EXPECT_EQ(ModeOf((*server)->socket_path()), 0600);
  EXPECT_THAT(log, HasSubstr(dir + " could be written to by other accounts"));
  EXPECT_THAT(log, HasSubstr(dir + "/server was open to other accounts"));
}

TEST_F(WholeServerTest, ErrorsOfGrpcAreSaidAndTheRestIsNot) {
  worker::LogGrpcLines();
  ::testing::internal::CaptureStderr();
  gpr_log(GPR_ERROR, "accept: too many open files");
  gpr_log(GPR_INFO, "a subchannel is idle");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("gRPC: accept: too many open files"));
  EXPECT_THAT(said, ::testing::Not(HasSubstr("subchannel")));
}

TEST_F(WholeServerTest, WhoKnocksWithoutTlsFillsNoLog) {
  worker::LogGrpcLines();
  ::testing::internal::CaptureStderr();
  const UniqueFd peer(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(server_->port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(peer.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  ASSERT_TRUE(WriteAll(peer.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n").ok());
  char buffer[64];
  while (read(peer.get(), buffer, sizeof buffer) > 0) {
  }
  server_.reset();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

class DoorTest : public ServerTest, public ::testing::WithParamInterface<Transport> {
 protected:
  // A connection that says nothing; not valid without a descriptor for it.
  UniqueFd Knock() const {
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    server_->socket_path().copy(local.sun_path, sizeof local.sun_path - 1);
    sockaddr_in net{};
    net.sin_family = AF_INET;
    net.sin_port = htons(static_cast<std::uint16_t>(server_->port()));
    net.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool by_unix = GetParam() == Transport::kUnix;
    UniqueFd fd(socket(by_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return fd;
    const auto* to = by_unix ? reinterpret_cast<const sockaddr*>(&local)
                             : reinterpret_cast<const sockaddr*>(&net);
    EXPECT_EQ(connect(fd.get(), to, by_unix ? sizeof local : sizeof net), 0);
    return fd;
  }
};

TEST_P(DoorTest, IsOpenAgainOnceThereAreDescriptors) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(STDERR_FILENO);
  ASSERT_EQ(close(next), 0);
  const rlimit few{static_cast<rlim_t>(next) + 40, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const UniqueFd log = *OpenFile(dir_ / "log", O_RDWR | O_CREAT | O_APPEND);
  const UniqueFd real_log(dup(STDERR_FILENO));
  ASSERT_GE(dup2(log.get(), STDERR_FILENO), 0);
  // As many connections as there is room for on both sides, then one with no room for the server's
  // side of it.
  std::vector<UniqueFd> taken;
  for (UniqueFd fd = Knock(); fd.valid(); fd = Knock()) taken.push_back(std::move(fd));
  for (UniqueFd fd(dup(log.get())); fd.valid(); fd = UniqueFd(dup(log.get()))) {
    taken.push_back(std::move(fd));
  }
  taken.pop_back();
  const UniqueFd last = Knock();
  const bool noticed = Eventually([&] {
    char said[4096] = "";
    return pread(log.get(), said, sizeof said - 1, 0) > 0 &&
           std::string_view(said).find("too many connections") != std::string_view::npos;
  });
  dup2(real_log.get(), STDERR_FILENO);
  EXPECT_TRUE(last.valid());
  EXPECT_TRUE(noticed);
  taken.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string token = GetParam() == Transport::kUnix ? "" : Token(Role::kClient);
  auto admin = v1::Admin::NewStub(ConnectTo(*server_, GetParam()));
  v1::StatusRequest request;
  request.mutable_version()->set_major(1);
  v1::StatusReply reply;
  Call call(token);
  const grpc::Status status = admin->Status(&call, request, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

GPULAYER_BOTH_TRANSPORTS(DoorTest);

TEST_F(WholeServerTest, StopLeavesNoEndpointAndAStartFindsEverythingAgain) {
  const std::string token = Token(Role::kClient);
  const std::string ca = server_->ca_pem();
  const std::string socket = server_->socket_path();
  server_->Stop();
  EXPECT_FALSE(PathExists(socket));
  EXPECT_FALSE(PathExists(dir_ / "d/server/endpoint.json"));
  server_.reset();
  StartServer();
  EXPECT_EQ(server_->ca_pem(), ca);
  auto admin = v1::Admin::NewStub(ConnectTo(*server_, Transport::kTls));
  v1::StatusRequest request;
  request.mutable_version()->set_major(1);
  v1::StatusReply reply;
  Call call(token);
  const grpc::Status status = admin->Status(&call, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.user(), "ann");
  EXPECT_EQ(reply.data_dir(), "");
  EXPECT_GE(reply.addresses_size(), 1);
}

TEST_F(WholeServerTest, ATokenNamesTheAuthority) {
  auto parsed = ParseToken(Token(Role::kWorker));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->ca_fingerprint, *security::PublicKeyFingerprint(server_->ca_pem()));
}

TEST_F(WholeServerTest, StopEndsOpenStreamsWithinSeconds) {
  auto channel = ConnectTo(*server_, Transport::kUnix);
  FakeWorker worker(channel, "");
  ASSERT_TRUE(worker.Greet());
  auto jobs = v1::Jobs::NewStub(channel);
  auto logs = v1::Logs::NewStub(channel);
  v1::SubmitRequest submit;
  v1::JobSpec* spec = submit.add_jobs();
  spec->add_command("sleep");
  spec->mutable_requirements()->set_slots(1);
  spec->set_task_count(1);
  spec->set_request_id("r");
  v1::SubmitReply submitted;
  Call submit_call;
  ASSERT_TRUE(jobs->Submit(&submit_call, submit, &submitted).ok());
  v1::WatchRequest watch;
  watch.set_job(submitted.jobs(0).job());
  Call watch_call;
  auto watching = jobs->Watch(&watch_call, watch);
  v1::GetJobReply seen;
  ASSERT_TRUE(watching->Read(&seen));
  v1::ReadLogsRequest read;
  read.set_job(submitted.jobs(0).job());
  read.set_follow(true);
  Call read_call;
  auto following = logs->Read(&read_call, read);
  // One chunk shows that the call has arrived; one on its way gets CANCELLED from gRPC itself.
  const auto assigned = worker.NextAssign();
  ASSERT_TRUE(assigned.has_value());
  std::string frames;
  AppendFrame(frames, LogStream::kOut, 1, "x");
  ASSERT_TRUE(worker.SendLog(assigned->key(), 0, frames));
  v1::LogChunk chunk;
  ASSERT_TRUE(following->Read(&chunk));
  const auto begin = std::chrono::steady_clock::now();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  while (watching->Read(&seen)) {
  }
  EXPECT_EQ(watching->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  while (following->Read(&chunk)) {
  }
  EXPECT_EQ(following->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  const grpc::Status session = worker.Finish();
  EXPECT_EQ(session.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(session.error_message(), HasSubstr("server is stopping"));
}

TEST_F(WholeServerTest, ASubmitToAFullDiskIsRefusedAtOnce) {
  SmallDisk disk("32m");  // all of it is below the floor
  if (!disk.mounted()) GTEST_SKIP() << disk.SkipReason();
  auto server = Server::Start({disk / "d", "", false});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto jobs = v1::Jobs::NewStub(ConnectTo(**server, Transport::kUnix));
  v1::SubmitRequest request;
  v1::JobSpec* spec = request.add_jobs();
  spec->add_command("true");
  spec->mutable_requirements()->set_slots(1);
  spec->set_task_count(1);
  spec->set_request_id("r");
  v1::SubmitReply reply;
  Call call;
  const grpc::Status status = jobs->Submit(&call, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("server disk full"));
}

TEST_F(WholeServerTest, ALogStopsAtTheFloorAndGoesOnWhenThereIsRoom) {
  SmallDisk disk("80m");
  if (!disk.mounted()) GTEST_SKIP() << disk.SkipReason();
  auto server = Server::Start({disk / "d", "", false});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto channel = ConnectTo(**server, Transport::kUnix);
  auto jobs = v1::Jobs::NewStub(channel);
  FakeWorker worker(channel, "");
  ASSERT_TRUE(worker.Greet());
  const auto submit = [&](const std::string& request_id) {
    v1::SubmitRequest request;
    v1::JobSpec* spec = request.add_jobs();
    spec->add_command("true");
    spec->mutable_requirements()->set_slots(1);
    spec->set_task_count(1);
    spec->set_request_id(request_id);
    v1::SubmitReply reply;
    Call call;
    return jobs->Submit(&call, request, &reply).error_code();
  };
  ASSERT_EQ(submit("chatty"), grpc::StatusCode::OK);
  const auto assign = worker.NextAssign();
  ASSERT_TRUE(assign);
  ASSERT_EQ(submit("quiet"), grpc::StatusCode::OK);
  const auto quiet = worker.NextAssign();
  ASSERT_TRUE(quiet);
  ASSERT_TRUE(disk.Fill(std::int64_t{32} << 20).ok());
  // How much is free is asked from time to time; the same id again takes nothing.
  ASSERT_TRUE(Eventually([&] { return submit("chatty") == grpc::StatusCode::RESOURCE_EXHAUSTED; }));
  const std::string frame = FakeWorker::Frame(LogStream::kOut, "much\n");
  ASSERT_TRUE(worker.SendLog(assign->key(), 0, frame));
  const auto refused = worker.Next();
  ASSERT_TRUE(refused && refused->has_log_ack());
  EXPECT_TRUE(refused->log_ack().current());
  EXPECT_EQ(refused->log_ack().size(), 0);
  // It holds up nothing that other attempts have to say.
  ASSERT_TRUE(worker.SendEnded(quiet->key(), 0, 0));
  const auto ended = worker.Next();
  ASSERT_TRUE(ended && ended->has_end_ack());
  EXPECT_TRUE(ended->end_ack().current());
  ASSERT_TRUE(disk.MakeRoom().ok());
  EXPECT_TRUE(Eventually([&] {
    if (!worker.SendLog(assign->key(), 0, frame)) return false;
    const auto ack = worker.Next();
    return ack && ack->log_ack().size() == static_cast<std::int64_t>(frame.size());
  }));
}

TEST_F(WholeServerTest, APathTooLongForASocketIsMoved) {
  const std::string deep = dir_ / std::string(120, 'x');
  auto server = Server::Start({deep, "", false});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const std::string socket = (*server)->socket_path();
  EXPECT_NE(DirName(socket), deep);
  EXPECT_EQ(ModeOf(DirName(socket)), 0700);
  EXPECT_THAT(*ReadFile(deep + "/server/endpoint.json"), HasSubstr(socket));
  auto channel = ConnectTo(**server, Transport::kUnix);
  EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + kPatience));
  (*server)->Stop();
  EXPECT_FALSE(PathExists(DirName(socket)));
}

TEST(TlsTest, TheAuthorityStaysAndTheCertificateIsRenewed) {
  TempDir dir;
  const WallTime now = Clock::System().Now().wall;
  auto first = security::LoadOrMakeTls(dir / "tls", now, Durability::kNone);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  auto again =
      security::LoadOrMakeTls(dir / "tls", now + std::chrono::hours(24), Durability::kNone);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->chain_pem, first->chain_pem);
  auto later =
      security::LoadOrMakeTls(dir / "tls", now + std::chrono::hours(24 * 340), Durability::kNone);
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(later->ca_fingerprint, first->ca_fingerprint);
  EXPECT_NE(later->chain_pem, first->chain_pem);
  ASSERT_TRUE(WriteFileAtomic(dir / "tls/server.pem", "damaged").ok());
  EXPECT_TRUE(security::LoadOrMakeTls(dir / "tls", now, Durability::kNone).ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "tls/ca.pem", "damaged").ok());
  auto lost = security::LoadOrMakeTls(dir / "tls", now, Durability::kNone);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.status().code(), StatusCode::kDataLoss);
}

TEST(TokenTextTest, RoundTripsAndRefusesRubbish) {
  TokenText token{false, "client", "0011223344ff", std::string(64, 'a'), std::string(64, 'b')};
  EXPECT_EQ(*ParseToken(" " + FormatToken(token) + "\n"), token);
  TokenText credential{true, "worker", "0011223344ff", std::string(64, 'a'), ""};
  EXPECT_EQ(*ParseToken(FormatToken(credential)), credential);
  for (const char* bad :
       {"", ".", "gl1", "gl1.client.00.11.22", "glc1.king.0011223344ff.aa", "....", "gl1....."}) {
    EXPECT_FALSE(ParseToken(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace gpulayer::testing
