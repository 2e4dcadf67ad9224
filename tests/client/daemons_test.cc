#include "client/daemons.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fs.h"
#include "client/fake_transport.h"
#include "gpulayer/host.h"
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
  // What a job's keeper looks like from outside: its name, and where it works.
  ASSERT_EQ(::symlink("/bin/sh", (dir_ / "gpulayer-exec").c_str()), 0);
  SpawnOptions spawn;
  spawn.argv = {dir_ / "gpulayer-exec", "-c", "read line", "--data-dir", "/by/another/name"};
  ASSERT_TRUE(MakeDirs(dir_ / "data/worker").ok());
  spawn.directory = dir_ / "data/worker";
  spawn.stdin_fd = input->read_end.get();
  const Result<pid_t> keeper = Spawn(spawn);
  ASSERT_TRUE(keeper.ok());
  const ProcessId process = Identify(*keeper);
  // Whoever spawned it goes on a moment before the kernel shows its arguments.
  const std::string shown = "/proc/" + std::to_string(*keeper) + "/cmdline";
  ASSERT_TRUE(testing::Eventually([&] { return !ReadFile(shown).value_or("").empty(); }));

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

// What `up` leaves that was killed before it wrote down what it had started.
TEST_F(DaemonsTest, AServerThatNoRecordNamesIsFoundByItsLockAndStopped) {
  const std::string data = dir_ / "data";
  ASSERT_TRUE(MakeDirs(JoinPath(data, "server")).ok());
  Program("exec 9>>" + data + "/server/lock; flock 9; echo $$ > " + data +
          "/server/lock; while :; do sleep 0.01; done");
  SpawnOptions spawn;
  spawn.argv = {dir_ / "gpulayer-server", "--listen", "127.0.0.1:7"};
  const Result<pid_t> server = Spawn(spawn);
  ASSERT_TRUE(server.ok());
  const auto found = [&]() -> std::optional<DaemonRecord> {
    const Result<DaemonDir> dir = DaemonDir::Lock(data);
    const Result<std::optional<DaemonRecord>> record = dir.ok() ? dir->Load() : dir.status();
    return record.ok() ? *record : std::nullopt;
  };
  ASSERT_TRUE(testing::Eventually([&] { return found().has_value(); }));
  EXPECT_EQ(found()->server_process->pid, *server);
  EXPECT_EQ(found()->listen, "127.0.0.1:7");
  api::DownOptions options;
  options.data_dir = data;
  EXPECT_EQ(api::Down(options)->stopped, std::vector<std::string>{"server"});
  EXPECT_FALSE(IsAlive(Identify(*server)));
  EXPECT_TRUE(api::Down(options)->stopped.empty());
}

TEST_F(DaemonsTest, TheFolderIsTakenUntilWhatWasStartedHasItsOwnLock) {
  const std::string data = dir_ / "data";
  const std::string go = dir_ / "go";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  Program("read line < " + go + "; exec 3<&-; while :; do sleep 0.01; done");
  std::optional<StartedDaemon> started;
  {
    const Result<DaemonDir> dir = DaemonDir::Lock(data);
    ASSERT_TRUE(dir.ok());
    const Result<StartedDaemon> daemon = dir->Start("gpulayer-server", {}, kServerLog);
    ASSERT_TRUE(daemon.ok());
    started = *daemon;
  }
  EXPECT_EQ(DaemonDir::Lock(data, std::chrono::milliseconds(1)).status().code(),
            StatusCode::kFailedPrecondition);
  ASSERT_TRUE(WriteAll(OpenFile(go, O_WRONLY)->get(), "go\n").ok());
  const Result<DaemonDir> dir = DaemonDir::Lock(data);  // waits
  ASSERT_TRUE(dir.ok());
  DaemonRecord record;
  record.server_process = started->process;
  dir->Stop(record);
}

TEST(SpawnTest, WhatTheCallerHasOpenIsNotOpenInADaemon) {
  Result<Pipe> pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  const int inherited = ::dup(pipe->write_end.get());  // not close-on-exec
  ASSERT_GT(inherited, kKeptFd);
  pipe->write_end.Reset();
  SpawnOptions spawn;
  spawn.argv = {"/bin/sleep", "600"};
  const Result<pid_t> daemon = Spawn(spawn);
  ASSERT_TRUE(daemon.ok());
  ::close(inherited);
  char byte = 0;
  EXPECT_EQ(*ReadSome(pipe->read_end.get(), &byte, 1), 0U);  // the end, while the daemon lives
  EXPECT_TRUE(IsAlive(Identify(*daemon)));
  ::kill(*daemon, SIGKILL);
  ::waitpid(*daemon, nullptr, 0);
}

TEST_F(DaemonsTest, ARecordThatOthersCouldWriteIsNotReadBeforeTheFolderIsClosed) {
  const std::string data = dir_ / "data";
  ASSERT_TRUE(MakeDirs(data).ok());
  ASSERT_EQ(::chmod(data.c_str(), 0777), 0);
  EXPECT_TRUE(DaemonDir::Lock(data).ok());
  struct stat info{};
  ASSERT_EQ(::stat(data.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755U);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(data.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(data.c_str(), 0777), 0);
  const Status refused = DaemonDir::Lock(data).status();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_NE(refused.message().find("--data-dir"), std::string::npos);
}

TEST_F(DaemonsTest, DownSaysWhoseWorkerHadEndedByItself) {
  api::DownOptions options;
  options.data_dir = dir_ / "data";
  const auto joined = [&](const std::optional<ProcessId>& worker) {
    const Result<DaemonDir> dir = DaemonDir::Lock(options.data_dir);
    DaemonRecord record;
    record.kind = DaemonRecord::Kind::kJoin;
    record.address = "box:7461";
    record.worker_process = worker;
    EXPECT_TRUE(dir.ok() && dir->Save(record).ok());
  };
  joined(ProcessId{});  // gone
  EXPECT_EQ(api::Down(options)->ended_worker_of, "box:7461");
  EXPECT_EQ(api::Down(options)->ended_worker_of, "");  // and forgotten
  SpawnOptions spawn;
  spawn.argv = {"/bin/sleep", "600"};
  spawn.directory = options.data_dir;
  const Result<pid_t> worker = Spawn(spawn);
  ASSERT_TRUE(worker.ok());
  joined(Identify(*worker));
  for (const char* attempt : {"a", "b", ".spare"}) {
    ASSERT_TRUE(MakeDirs(dir_ / ("data/worker/attempts/v1/" + std::string(attempt))).ok());
  }
  const Result<api::DownReport> report = api::Down(options);
  EXPECT_EQ(report->interrupted_here, 2);
  EXPECT_EQ(report->interrupted_tasks, 2) << "no server is here to say it";
  EXPECT_EQ(report->ended_worker_of, "");
  EXPECT_EQ(report->stopped, std::vector<std::string>{"worker"});
}

// `cp -a` of a directory takes the record along, and with it the names of the other one's daemons.
TEST_F(DaemonsTest, ACopyOfADirectoryIsNotTheOneWhoseDaemonsRun) {
  DaemonRecord record;
  record.kind = DaemonRecord::Kind::kJoin;
  record.address = "box:7461";
  record.worker_args = {"--ca", dir_ / "data/join/ca.pem", "--name", "box"};
  Result<DaemonDir> dir = DaemonDir::Lock(dir_ / "data");
  ASSERT_TRUE(dir.ok());
  SpawnOptions spawn;
  spawn.argv = {"/bin/sleep", "600"};
  spawn.directory = dir_ / "data";
  const Result<pid_t> worker = Spawn(spawn);
  ASSERT_TRUE(worker.ok());
  record.worker_process = Identify(*worker);
  ASSERT_TRUE(dir->Save(record).ok());
  ASSERT_TRUE(MakeDirs(dir_ / "copy").ok());
  ASSERT_TRUE(
      WriteFileAtomic(dir_ / "copy/daemons.json", *ReadFile(dir_ / "data/daemons.json")).ok());

  const Result<DaemonDir> copy = DaemonDir::Lock(dir_ / "copy");
  ASSERT_TRUE(copy.ok());
  const std::optional<DaemonRecord> copied = *copy->Load();
  EXPECT_FALSE(IsAlive(*copied->worker_process));
  EXPECT_FALSE(copied->down());  // as after the machine's end
  EXPECT_EQ(copied->worker_args,
            (std::vector<std::string>{"--ca", copy->path() + "/join/ca.pem", "--name", "box"}));
  EXPECT_TRUE(copy->Stop(*copied).empty());
  EXPECT_TRUE(IsAlive(*record.worker_process));
  EXPECT_EQ((*dir->Load())->worker_process->pid, *worker);
  EXPECT_EQ((*dir->Load())->worker_args, record.worker_args);
  EXPECT_EQ(dir->Stop(record), std::vector<std::string>{"worker"});
}

TEST_F(DaemonsTest, ARecordOfBeforeIsReadWithoutItsDirectory) {
  ASSERT_TRUE(MakeDirs(dir_ / "data").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "data/daemons.json",
                              R"({"kind": "join", "listen": "", "address": "box:7461",
                                  "worker": true, "server_process": null, "worker_process": null,
                                  "worker_args": ["--data-dir", "/old", "--ca", "/old/join/ca.pem",
                                                  "--label", "a=/old/join"]})")
                  .ok());
  const Result<DaemonDir> dir = DaemonDir::Lock(dir_ / "data");
  EXPECT_EQ(
      (*dir->Load())->worker_args,
      (std::vector<std::string>{"--ca", dir_ / "data/join/ca.pem", "--label", "a=/old/join"}));
}

TEST(NameIfOnlineTest, LooksAtEveryPage) {
  FakeTransport server;
  server.answers[Method::kListWorkers] = [](const auto& request, auto* reply) {
    auto* page = static_cast<v1::ListWorkersReply*>(reply);
    const bool second = static_cast<const v1::ListWorkersRequest&>(request).after() == "a";
    v1::ListWorkersReply::Worker* worker = page->add_workers();
    worker->set_id(second ? "b" : "a");
    worker->set_name(second ? "box" : "other");
    worker->set_state(second ? 1 : 2);
    if (!second) page->set_next("a");
    return OkStatus();
  };
  EXPECT_EQ(NameIfOnline(server, "b"), "box");         // the server's word for it, whatever ours is
  EXPECT_EQ(NameIfOnline(server, "a"), std::nullopt);  // not heard of lately
  EXPECT_EQ(NameIfOnline(server, "c"), std::nullopt);
  EXPECT_TRUE(NameIsShared(server, "c", "box"));
  EXPECT_FALSE(NameIsShared(server, "b", "box"));    // that is itself
  EXPECT_FALSE(NameIsShared(server, "c", "other"));  // that one is not online
}

}  // namespace
}  // namespace gpulayer::client
