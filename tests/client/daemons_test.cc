#include "client/daemons.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "client/fake_transport.h"
#include "gpulayer/v1/workers.pb.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace gpulayer::client {
namespace {

class DaemonsTest : public ::testing::Test {
 protected:
  DaemonsTest() { ::setenv("GPULAYER_BINDIR", dir_.path().c_str(), 1); }
  ~DaemonsTest() override { ::unsetenv("GPULAYER_BINDIR"); }

  void Program(const std::string& script) {
    const std::string path = dir_ / "gpulayer-server";
    ASSERT_TRUE(WriteFileAtomic(path, "#!/bin/sh\n" + script + "\n").ok());
    ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  }
  Status StartAndWait() {
    Result<DaemonDir> dir = DaemonDir::Lock(dir_ / "data");
    if (!dir.ok()) return dir.status();
    const Result<StartedDaemon> daemon = dir->Start("gpulayer-server", {}, kServerLog);
    if (!daemon.ok()) return daemon.status();
    return dir->WaitUntil(*daemon, "start the server", [] { return false; });
  }

  testing::TempDir dir_;
};

TEST_F(DaemonsTest, ItsPartingWordsAreSaid) {
  Program("echo 'gpulayer-server: listen on x: port in use' >&2");
  EXPECT_EQ(StartAndWait().message(), "start the server: listen on x: port in use");
}

TEST_F(DaemonsTest, WordsOfAnEarlierStartAreNot) {
  Program("echo 'gpulayer-server: listen on x: port in use' >&2");
  EXPECT_FALSE(StartAndWait().ok());
  Program("exit 1");
  EXPECT_NE(StartAndWait().message().find("it ended at its start"), std::string::npos);
}

TEST_F(DaemonsTest, JobsEndWithTheirWorkerAndNotWithTheServer) {
  const Result<DaemonDir> dir = DaemonDir::Lock(dir_ / "data");
  ASSERT_TRUE(dir.ok());
  Result<Pipe> input = MakePipe();
  ASSERT_TRUE(input.ok());
  // What a job's keeper looks like from outside: its name, and whose it is.
  ASSERT_EQ(::symlink("/bin/sh", (dir_ / "gpulayer-exec").c_str()), 0);
  SpawnOptions spawn;
  spawn.argv = {dir_ / "gpulayer-exec", "-c", "read line", "--data-dir", dir_ / "data/worker"};
  spawn.stdin_fd = input->read_end.get();
  const Result<pid_t> keeper = Spawn(spawn);
  ASSERT_TRUE(keeper.ok());
  const ProcessId process = Identify(*keeper);

  DaemonRecord server_only;
  dir->Stop(server_only);
  EXPECT_TRUE(IsAlive(process));
  DaemonRecord with_worker;
  with_worker.worker_process = ProcessId{};  // gone already
  dir->Stop(with_worker);
  EXPECT_FALSE(IsAlive(process));
  ::kill(*keeper, SIGKILL);
  ::waitpid(*keeper, nullptr, 0);
}

TEST(IsWorkerOnlineTest, LooksAtEveryPage) {
  FakeTransport server;
  server.answers[Method::kListWorkers] = [](const auto& request, auto* reply) {
    auto* page = static_cast<v1::ListWorkersReply*>(reply);
    const bool second = static_cast<const v1::ListWorkersRequest&>(request).after() == "a";
    v1::ListWorkersReply::Worker* worker = page->add_workers();
    worker->set_id(second ? "b" : "a");
    worker->set_state(second ? 1 : 2);
    if (!second) page->set_next("a");
    return OkStatus();
  };
  EXPECT_TRUE(IsWorkerOnline(server, "b"));
  EXPECT_FALSE(IsWorkerOnline(server, "a"));  // not heard of lately
  EXPECT_FALSE(IsWorkerOnline(server, "c"));
}

}  // namespace
}  // namespace gpulayer::client
