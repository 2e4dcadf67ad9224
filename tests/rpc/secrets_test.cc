// Secrets on the server: sealed, handed to workers alone, erased at the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "rpc/fake_worker.h"
#include "rpc/fixture.h"
#include "server/security/secret_store.h"
#include "support/eventually.h"
#include "wire/version.h"

namespace gpulayer::testing {
namespace {

using security::SecretStore;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kValue[] = "hunter2-hunter2-hunter2";

// All bytes of all files below a folder.
std::string Everything(const std::string& dir) {
  std::string out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) out += ReadFile(entry.path().string()).value_or("");
  }
  return out;
}

std::vector<std::string> Names(const std::string& dir) {
  return ListDir(dir).value_or(std::vector<std::string>());
}

class SecretStoreTest : public ::testing::Test {
 protected:
  void Reopen() {
    store_.reset();
    store_ = *SecretStore::Open(dir_ / "sealed", dir_ / "key", Durability::kSync);
  }
  void SetUp() override { Reopen(); }

  const std::vector<EnvVar> values_ = {{"TOK", kValue}, {"B\xff", std::string("a\nb=\x80")}};
  TempDir dir_;
  std::unique_ptr<SecretStore> store_;
};

TEST_F(SecretStoreTest, SealedByAKeyOfItsOwnAndReadAfterARestart) {
  const std::string one = *store_->Put(values_);
  const std::string two = *store_->Put(values_);
  EXPECT_NE(one, two);
  Reopen();
  EXPECT_EQ(store_->Get(one).value_or(std::vector<EnvVar>()), values_);
  EXPECT_THAT(Everything(dir_.path()), Not(HasSubstr(kValue)));
  EXPECT_NE(*ReadFile(dir_ / "sealed/" + one), *ReadFile(dir_ / "sealed/" + two));
  for (const std::string& file : {dir_ / "key", dir_ / "sealed/" + one}) {
    struct stat st{};
    ASSERT_EQ(stat(file.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600U);
  }
}

TEST_F(SecretStoreTest, WhatWasChangedDoesNotOpen) {
  const std::string one = *store_->Put(values_);
  const std::string two = *store_->Put(values_);
  const std::string path = dir_ / "sealed/" + one;
  const std::string good = *ReadFile(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    ASSERT_TRUE(WriteFileAtomic(path, bad, 0600, Durability::kNone).ok());
    ASSERT_EQ(store_->Get(one).status().code(), StatusCode::kDataLoss) << i;
  }
  ASSERT_TRUE(WriteFileAtomic(path, good.substr(0, 20), 0600, Durability::kNone).ok());
  EXPECT_EQ(store_->Get(one).status().code(), StatusCode::kDataLoss);
  // Another job's in its place.
  ASSERT_TRUE(
      WriteFileAtomic(path, *ReadFile(dir_ / "sealed/" + two), 0600, Durability::kNone).ok());
  EXPECT_EQ(store_->Get(one).status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(store_->Get(two).ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "key", std::string(32, 'k'), 0600, Durability::kNone).ok());
  const Status other = store_->Get(two).status();
  EXPECT_EQ(other.code(), StatusCode::kDataLoss);
  EXPECT_THAT(other.message(), HasSubstr("another key"));
}

TEST_F(SecretStoreTest, ErasesWhatIsOverAndWhatNobodyNames) {
  const std::string one = *store_->Put(values_);
  const std::string two = *store_->Put(values_);
  const std::string three = *store_->Put(values_);
  store_->Erase(one);
  store_->Erase("");
  store_->Erase("../key");
  Reopen();
  EXPECT_EQ(store_->Get(one).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store_->Get(two).ok());
  store_->KeepOnly({"", three});
  EXPECT_THAT(Names(dir_ / "sealed"), ElementsAre(three));
  EXPECT_EQ(store_->Get("../key").status().code(), StatusCode::kNotFound);
}

class SecretsTest : public BothTransports {
 protected:
  std::unique_ptr<FakeWorker> Worker(bool knows_secrets = true) {
    const std::string bearer =
        GetParam() == Transport::kTls ? Credential(Role::kWorker, FakeWorker::kId) : "";
    auto worker = std::make_unique<FakeWorker>(ConnectTo(*server_, GetParam()), bearer);
    v1::WorkerMessage hello = FakeWorker::HelloMessage();
    if (knows_secrets) {
      hello.mutable_hello()->mutable_version()->add_features(wire::kSecretsFeature);
    }
    EXPECT_TRUE(worker->Send(hello));
    const auto welcome = worker->Next();
    EXPECT_TRUE(welcome && welcome->has_welcome());
    return worker;
  }

  static v1::SubmitRequest Request(const std::string& id, const std::string& value = kValue) {
    v1::SubmitRequest request;
    *request.add_jobs() = Spec({"true"}, id);
    request.mutable_jobs(0)->add_secrets("TOK");
    v1::EnvVar* var = request.add_secrets()->add_values();
    var->set_name("TOK");
    var->set_value(value);
    return request;
  }
  grpc::Status Try(const v1::SubmitRequest& request, v1::SubmitReply* reply) {
    Call call(client_);
    return jobs_->Submit(&call, request, reply);
  }
  std::int64_t SubmitSecret(const v1::SubmitRequest& request) {
    v1::SubmitReply reply;
    const grpc::Status status = Try(request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.jobs_size() == 1 ? reply.jobs(0).job() : 0;
  }
  std::vector<std::string> Sealed() { return Names(dir_ / "d/server/secrets/v1"); }
};

TEST_P(SecretsTest, OnlyTheAssignmentHasThemAndTheEndErasesThem) {
  auto worker = Worker();
  const std::int64_t job = SubmitSecret(Request("a"));
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  ASSERT_EQ(assign->secrets().values_size(), 1);
  EXPECT_EQ(assign->secrets().values(0).value(), kValue);
  EXPECT_THAT(assign->spec().SerializeAsString(), Not(HasSubstr(kValue)));
  const v1::GetJobReply shown = Get(job);
  EXPECT_THAT(shown.job().spec().secrets(), ElementsAre("TOK"));
  EXPECT_THAT(shown.SerializeAsString(), Not(HasSubstr(kValue)));
  EXPECT_THAT(Everything(dir_.path()), Not(HasSubstr(kValue)));
  ASSERT_THAT(Sealed(), SizeIs(1));
  EXPECT_THAT(shown.SerializeAsString(), Not(HasSubstr(Sealed().front())));
  ASSERT_TRUE(worker->SendEnded(assign->key(), 0, 0));
  EXPECT_TRUE(Eventually([&] { return Sealed().empty(); }));
}

TEST_P(SecretsTest, AQueuedJobHasThemAfterARestartAndACancelErasesThem) {
  const std::int64_t cancelled = SubmitSecret(Request("a", "other-value"));
  SubmitSecret(Request("b"));
  // As of a submit that the server did not survive.
  const std::string orphan(32, 'a');
  ASSERT_TRUE(
      WriteFileAtomic(dir_ / "d/server/secrets/v1/" + orphan, "x", 0600, Durability::kNone).ok());
  EXPECT_THAT(Sealed(), SizeIs(3));
  jobs_.reset();
  channel_.reset();
  server_.reset();
  StartServer();
  ASSERT_TRUE(server_);
  EXPECT_THAT(Sealed(), SizeIs(2));
  jobs_ = v1::Jobs::NewStub(ConnectTo(*server_, GetParam()));
  v1::CancelRequest cancel;
  cancel.add_tasks()->set_job(cancelled);
  v1::CancelReply done;
  Call call(client_);
  ASSERT_TRUE(jobs_->Cancel(&call, cancel, &done).ok());
  EXPECT_TRUE(Eventually([&] { return Sealed().size() == 1; }));
  const auto worker = Worker();
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  EXPECT_EQ(assign->secrets().values(0).value(), kValue);
}

TEST_P(SecretsTest, TheSameRequestIsTheSameJobWithTheFirstValues) {
  const std::int64_t job = SubmitSecret(Request("a"));
  EXPECT_EQ(SubmitSecret(Request("a", "another-value")), job);
  EXPECT_TRUE(Eventually([&] { return Sealed().size() == 1; }));
  const auto worker = Worker();
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  EXPECT_EQ(assign->secrets().values(0).value(), kValue);
}

TEST_P(SecretsTest, NamesAndValuesGoTogether) {
  v1::SubmitReply reply;
  v1::SubmitRequest request = Request("a");
  request.clear_secrets();
  grpc::Status status = Try(request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("--secret TOK"));
  request = Request("a");
  request.mutable_jobs(0)->clear_secrets();
  EXPECT_EQ(Try(request, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request = Request("a");
  request.add_secrets();
  EXPECT_EQ(Try(request, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request = Request("a");
  request.mutable_jobs(0)->add_env()->set_name("TOK");
  EXPECT_EQ(Try(request, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  for (const std::string& value : {std::string(65 << 10, 'x'), std::string("xx\0xx", 5)}) {
    status = Try(Request("a", value), &reply);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.error_message(), Not(HasSubstr("xx")));
  }
  EXPECT_THAT(Sealed(), IsEmpty());
}

TEST_P(SecretsTest, AWorkerThatKnowsNoneIsGivenNone) {
  auto worker = Worker(false);
  v1::SubmitRequest request = Request("a");
  request.mutable_jobs(0)->set_wait_for_worker(false);
  v1::SubmitReply reply;
  ASSERT_TRUE(Try(request, &reply).ok());
  EXPECT_THAT(reply.rejected(), HasSubstr("knows no secrets"));
  EXPECT_TRUE(Eventually([&] { return Sealed().empty(); }));
  SubmitSecret(Request("b"));
  Submit(Spec({"true"}, "c"));
  const auto assign = worker->NextAssign();
  ASSERT_TRUE(assign);
  EXPECT_EQ(assign->spec().request_id(), "c");
}

TEST_P(SecretsTest, AJobWhoseSecretsAreDamagedFailsAndIsNotStarted) {
  const std::int64_t job = SubmitSecret(Request("a"));
  ASSERT_THAT(Sealed(), SizeIs(1));
  ASSERT_TRUE(WriteFileAtomic(dir_ / "d/server/secrets/v1/" + Sealed().front(), "x", 0600,
                              Durability::kNone)
                  .ok());
  auto worker = Worker();
  ASSERT_TRUE(
      Eventually([&] { return Get(job).job().state() == static_cast<int>(TaskState::kFailed); }));
  EXPECT_THAT(Get(job).job().outcome().cause().text(), HasSubstr("cannot read its secrets"));
  Submit(Spec({"true"}, "c"));
  std::optional<v1::Assign> assign;
  while (!assign) {
    const auto message = worker->Next();
    ASSERT_TRUE(message);
    if (message->has_assign()) assign = message->assign();
  }
  EXPECT_EQ(assign->spec().request_id(), "c");
}

GPULAYER_BOTH_TRANSPORTS(SecretsTest);

}  // namespace
}  // namespace gpulayer::testing
