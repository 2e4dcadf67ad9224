#include "client/local_server.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/hash.h"
#include "client/fake_transport.h"
#include "support/temp_dir.h"

namespace gpulayer::client {
namespace {

// A server that says it is ready and serves nobody.
class LocalServerTest : public ::testing::Test {
 protected:
  LocalServerTest() {
    EXPECT_TRUE(MakeDirs(data_dir()).ok());
    const std::string script = "#!/bin/sh\necho $$ > " + dir_.path() +
                               "/pid\necho '{\"socket\":\"/none\",\"data_dir\":\"" + data_dir() +
                               "\"}'\nread line || exit 0\n";
    EXPECT_TRUE(WriteFileAtomic(dir_.path() + "/gpulayer-server", script, 0700).ok());
    ::setenv("GPULAYER_BINDIR", dir_.path().c_str(), 1);
  }
  ~LocalServerTest() override { ::unsetenv("GPULAYER_BINDIR"); }

  std::string data_dir() const { return dir_.path() + "/gpulayer-local-x"; }
  pid_t pid() const { return std::stoi(ReadFile(dir_.path() + "/pid").value_or("0")); }

  testing::TempDir dir_;
};

TEST_F(LocalServerTest, AConnectionLostWithItsServerIsNotTriedAgain) {
  Result<std::unique_ptr<LocalServer>> server = LocalServer::Start(nullptr);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto fake = std::make_unique<FakeTransport>();
  FakeTransport& asked = *fake;
  const std::unique_ptr<Transport> transport = MakeLocalTransport(std::move(fake), **server);
  const auto call = [&] {
    asked.failures[Method::kStatus] = {Status(StatusCode::kUnavailable, "lost")};
    v1::SubmitReply reply;
    return transport->Call(Method::kStatus, v1::SubmitRequest(), &reply, {});
  };
  EXPECT_EQ(call().code(), StatusCode::kUnavailable);  // it lives: lost by chance
  ASSERT_EQ(::kill(pid(), SIGKILL), 0);
  const Status ended = call();
  EXPECT_EQ(ended.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ended.message(),
            "the private server of this run was ended (signal 9): the job ended with it");
  asked.upload_status = Status(StatusCode::kUnavailable, "lost");
  EXPECT_EQ(transport->Upload(nullptr)->Finish().status(), ended);
  const Hash blob = Hash::Of("a longer blob");
  asked.blobs[std::string(blob.bytes())] = "a longer blob";
  asked.break_after = 1;
  v1::DownloadRequest request;
  request.add_hashes(std::string(blob.bytes()));
  const auto stream = transport->Download(request, nullptr);
  EXPECT_TRUE(stream->Read().ok());
  EXPECT_EQ(stream->Read().status(), ended);

  EXPECT_TRUE(PathExists(data_dir()));
  server->reset();
  EXPECT_FALSE(PathExists(data_dir()));
}

TEST_F(LocalServerTest, WhatAServerThatDiedEarlyLeftIsRemovedAndNobodyElsesFolder) {
  // Of three processes of one number, in containers of their own.
  const std::string script = "#!/bin/sh\nd=" + dir_.path() + "/gpulayer-local-$$-\n" +
                             "mkdir -p ${d}dead/server ${d}served/server ${d}early\n"
                             "echo $$ > ${d}dead/server/lock\nln " +
                             dir_.path() + "/held ${d}served/server/lock\n";
  ASSERT_TRUE(WriteFileAtomic(dir_.path() + "/gpulayer-server", script, 0700).ok());
  const Result<FileLock> held = FileLock::Acquire(dir_.path() + "/held");
  ASSERT_TRUE(held.ok());
  const char* before = std::getenv("TMPDIR");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("TMPDIR", dir_.path().c_str(), 1);
  EXPECT_FALSE(LocalServer::Start(nullptr).ok());
  if (before == nullptr) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", saved.c_str(), 1);
  }
  const Result<std::vector<std::string>> names = ListDir(dir_.path());
  ASSERT_TRUE(names.ok());
  std::vector<std::string> left;
  for (const std::string& name : *names) {
    if (name.rfind("gpulayer-local-", 0) == 0 && name != "gpulayer-local-x") {
      left.push_back(name.substr(name.rfind('-') + 1));
    }
  }
  EXPECT_EQ(left, std::vector<std::string>{"served"});
}

}  // namespace
}  // namespace gpulayer::client
