// What is left when one of the processes dies: the worker, gpulayer-exec, a monitor, or several.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "exec/exec_fixture.h"
#include "worker/exec/exec_link.h"
#include "worker/exec/monitor.h"

namespace gpulayer::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Life = ExecClientOptions::Life;

class SurviveTest : public ExecTest {
 protected:
  void SetUp() override { Reopen(Life::kOutlivesWorker); }
  void TearDown() override {
    if (client_) {
      EXPECT_TRUE(client_->Shutdown(0s, 10s).ok());
    }
    ExecTest::TearDown();
  }
  // To gpulayer-exec the same as a killed worker and its successor.
  void RestartWorker() {
    client_.reset();
    ear_.Forget();
    Reopen(Life::kOutlivesWorker);
  }
  pid_t KillExec() {
    pid_t pid = 0;  // never given to kill(): it would mean this process's own group
    EXPECT_TRUE(Eventually([&] { return (pid = ExecPid()) > 0; }));
    if (pid > 0) kill(pid, SIGKILL);
    return pid;
  }
  pid_t MonitorOf(const AttemptId& id) {
    const Result<std::string> stat = ReadFile("/proc/" + std::to_string(ear_.Pid(id)) + "/stat");
    return stat.ok() ? static_cast<pid_t>(std::stol(stat->substr(stat->rfind(')') + 4))) : 0;
  }
  // Notes its runs, so that one can be told from two; has a child that left the session and ignores
  // everything but SIGKILL; goes on when told.
  AttemptId StartWaiting() {
    const AttemptId id =
        Start(Shell("echo run >>$D/count; setsid -f bash -c 'trap \"\" TERM HUP; sleep 9999';"
                    " echo up; while ! [ -e $D/go ]; do sleep 0.02; done; echo last; exit 7"));
    EXPECT_TRUE(Prints(id, "up"));
    EXPECT_TRUE(Eventually([&] { return ear_.Started(id); }));
    return id;
  }
};

TEST_F(SurviveTest, F09_AJobThatRunsWhileTheWorkerIsGoneIsAdopted) {
  const AttemptId id = StartWaiting();
  const AttemptStarted started = *store_.ReadStarted(id);
  client_.reset();
  EXPECT_FALSE(Census(id.value()).empty());
  ear_.Forget();
  Reopen(Life::kOutlivesWorker);
  EXPECT_THAT(*client_->List(), ElementsAre(id));
  ASSERT_TRUE(client_->Adopt(id).ok());
  ASSERT_TRUE(Eventually([&] { return ear_.Started(id); }));
  EXPECT_EQ(ear_.Pid(id), started.pid);
  WriteScript("go", "");
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.exit_code, 7);
  EXPECT_EQ(s.started, started);
  EXPECT_EQ(Output(id), "up\nlast\n");
  EXPECT_EQ(*ReadFile(dir_ / "count"), "run\n");
}

TEST_F(SurviveTest, F09_AJobThatEndedWhileTheWorkerWasGoneHasItsOutcome) {
  const AttemptId id = StartWaiting();
  client_.reset();
  WriteScript("go", "");
  ASSERT_TRUE(Eventually([&] { return store_.ReadStatus(id).ok(); }));
  RestartWorker();
  // The keeper writes the status first and then tells gpulayer-exec.
  EXPECT_TRUE(Eventually([&] { return client_->List()->empty(); }));
  ASSERT_TRUE(client_->Adopt(id).ok());
  EXPECT_EQ(Await(id).exit_code, 7);
  EXPECT_EQ(Output(id), "up\nlast\n");
}

TEST_F(SurviveTest, TheTimeLimitNeedsNoWorker) {
  AttemptSpec spec = Shell("trap '' TERM; echo up; while :; do sleep 0.02; done");
  spec.time_limit = 300ms;
  spec.grace = 100ms;
  const AttemptId id = Start(spec);
  client_.reset();
  ASSERT_TRUE(Eventually([&] { return store_.ReadStatus(id).ok(); }));
  EXPECT_EQ(store_.ReadStatus(id)->order, StopOrder::kTimeLimit);
  Reopen(Life::kOutlivesWorker);
}

TEST_F(SurviveTest, AnAttemptThatNeverBeganIsSaidToBe) {
  const AttemptId id = Prepare(Spec({"true"}));
  ASSERT_TRUE(client_->Adopt(id).ok());
  ASSERT_TRUE(Eventually([&] { return ear_.Ends(id) == 1; }));
  EXPECT_EQ(ear_.End(id).failed_step, StartStep::kNever);
  EXPECT_EQ(OutcomeOf(ear_.End(id)).cause.kind, CauseKind::kWorkerLost);  // not the job's fault
}

TEST_F(SurviveTest, AStartBetweenTwoExecsWaitsForTheNext) {
  ExecClientOptions options = Options(Life::kOutlivesWorker);
  ASSERT_TRUE(MakeDirs(dir_ / "bin").ok());
  options.program = dir_ / "bin/gpulayer-exec";
  ASSERT_EQ(symlink(GPULAYER_EXEC_PROGRAM, options.program.c_str()), 0);
  ASSERT_TRUE(client_->Shutdown(0s, 10s).ok());
  client_.reset();
  Result<std::unique_ptr<ExecClient>> client = ExecClient::Open(options, ear_.sink());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  client_ = *std::move(client);
  ASSERT_EQ(unlink(options.program.c_str()), 0);  // none can be started for now
  KillExec();
  ASSERT_TRUE(
      Eventually([&] { return client_->List(1s).status().code() == StatusCode::kUnavailable; }));
  const AttemptId id = Start(Spec({"true"}));
  const AttemptId stopped = Start(Spec({"sleep", "9999"}));
  EXPECT_TRUE(client_->Stop(stopped, 0s).ok());
  AttemptSpec asks = Shell("exit ${#TOK}");
  asks.secrets = 1;
  const AttemptId secret = Prepare(asks);
  EXPECT_TRUE(client_->Start(secret, {"TOK=1234567"}).ok());
  ASSERT_EQ(symlink(GPULAYER_EXEC_PROGRAM, options.program.c_str()), 0);
  EXPECT_EQ(Await(id).exit_code, 0);
  EXPECT_EQ(Await(stopped).order, StopOrder::kStop);
  EXPECT_EQ(Await(secret).exit_code, 7);
}

TEST_F(SurviveTest, JobsDieWithTheKilledExecAndTheClientHears) {
  const AttemptId id = StartWaiting();
  const pid_t first = KillExec();
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.order, StopOrder::kShutdown);
  EXPECT_EQ(s.signal, SIGKILL);
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kWorkerLost);
  EXPECT_EQ(Run(Spec({"true"})).exit_code, 0);
  EXPECT_NE(ExecPid(), first);
}

TEST_F(SurviveTest, StartsGivenWhileExecDiesAreNotLostNorDoubled) {
  std::vector<AttemptId> ids;
  for (int i = 0; i < 60; ++i) {
    const AttemptId id = Prepare(Shell("echo x >>$D/count-$GPULAYER_ATTEMPT_ID; sleep 0.02"));
    if (i % 20 == 10) KillExec();
    ASSERT_TRUE(Eventually([&] { return client_->Start(id).ok(); }));
    ids.push_back(id);
  }
  for (const AttemptId& id : ids) {
    Await(id);
    const Result<std::string> count = ReadFile(dir_ / ("count-" + id.value()));
    EXPECT_THAT(count.value_or(""), AnyOf("", "x\n"));  // killed before, or after it wrote
  }
}

TEST_F(SurviveTest, AKilledMonitorTakesItsTreeAlong) {
  const AttemptId id = StartWaiting();
  const AttemptId other = Start(Shell("echo up; sleep 9999"));
  ASSERT_TRUE(Prints(other, "up"));
  const pid_t monitor = MonitorOf(id);
  ASSERT_GT(monitor, 1);
  ASSERT_EQ(kill(monitor, SIGKILL), 0);
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.failed_step, StartStep::kMonitor);
  EXPECT_EQ(s.started->pid, ear_.Pid(id));
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kWorkerLost);
  EXPECT_FALSE(Census(other.value()).empty());
}

TEST_F(SurviveTest, WhatOutlivedAllItsKeepersIsFoundByItsEnvironment) {
  const AttemptId id = StartWaiting();
  const pid_t exec = ExecPid();
  const pid_t monitor = MonitorOf(id);
  ASSERT_GT(exec, 1);
  ASSERT_GT(monitor, 1);
  client_.reset();
  // Stopped first, so that neither can act on the other's death.
  for (const pid_t pid : {monitor, exec}) kill(pid, SIGSTOP);
  for (const pid_t pid : {monitor, exec}) kill(pid, SIGKILL);
  ASSERT_TRUE(Eventually([&] { return !IsAlive(monitor) && !IsAlive(exec); }));
  EXPECT_FALSE(Census(id.value()).empty());
  RestartWorker();
  ASSERT_TRUE(client_->Adopt(id).ok());
  EXPECT_EQ(Await(id).failed_step, StartStep::kMonitor);
}

TEST_F(SurviveTest, ShutdownGivesTheGrace) {
  const AttemptId id =
      Start(Shell("trap 'echo saved; exit 4' TERM; echo up; while :; do sleep 0.02; done"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Shutdown(15s, 20s).ok());
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.exit_code, 4);
  EXPECT_EQ(s.order, StopOrder::kShutdown);
  EXPECT_EQ(client_->Start(Prepare(Spec({"true"}))).code(), StatusCode::kUnavailable);
}

TEST_F(SurviveTest, AJobOfALocalRunDiesWithItsClient) {
  ASSERT_TRUE(client_->Shutdown(0s, 10s).ok());
  Reopen(Life::kDiesWithWorker);
  const AttemptId id = StartWaiting();
  client_.reset();
  EXPECT_TRUE(Eventually([&] { return Census(id.value()).empty() && ExecPid() == 0; }));
}

TEST_F(SurviveTest, ALocalRunDoesNotShareTheDirectory) {
  const auto second = ExecClient::Open(Options(Life::kDiesWithWorker), Ear().sink());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(SurviveTest, ASecondClientHearsOnlyItsOwn) {
  Ear ear;
  const auto second = ExecClient::Open(Options(Life::kOutlivesWorker), ear.sink());
  ASSERT_TRUE(second.ok());
  const AttemptId id = Start(Spec({"true"}));
  Await(id);
  ASSERT_TRUE((*second)->Adopt(id).ok());
  EXPECT_TRUE(Eventually([&] { return ear.Ends(id) == 1; }));
}

TEST_F(SurviveTest, NonsenseOnTheSocketHarmsNobody) {
  for (const std::string& bytes :
       {std::string("x"), std::string(24, '\0'), std::string(4000, 'x'),
        exec_wire::Pack({exec_wire::Type::kStart, 0, 0, "early", ""}),
        exec_wire::Pack({static_cast<exec_wire::Type>(99), 0, 0, "", ""})}) {
    for (const bool greeted : {false, true}) {
      Result<UniqueFd> fd = greeted ? ConnectExec(dir_.path(), 10s) : [&]() -> Result<UniqueFd> {
        UniqueFd raw(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string path = dir_ / "exec/v1/sock";
        path.copy(address.sun_path, sizeof(address.sun_path) - 1);
        EXPECT_EQ(connect(raw.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        return raw;
      }();
      ASSERT_TRUE(fd.ok());
      EXPECT_GT(send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
      if (greeted && bytes.size() > 24 && bytes[24] == 'e') continue;  // a good message by then
      char byte = 0;
      EXPECT_TRUE(Eventually([&] { return recv(fd->get(), &byte, 1, MSG_DONTWAIT) == 0; }));
    }
  }
  EXPECT_EQ(Run(Spec({"true"})).exit_code, 0);
}

TEST(ExecLinkTest, ALongDataDirectoryWorks) {
  TempDir dir;
  std::string path = dir.path();
  while (path.size() < 300) path += "/" + std::string(90, 'd');
  ASSERT_TRUE(MakeDirs(path).ok());
  ExecClientOptions options;
  options.data_dir = path;
  options.program = GPULAYER_EXEC_PROGRAM;
  options.life = Life::kDiesWithWorker;
  Ear ear;
  const auto client = ExecClient::Open(options, ear.sink());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  const AttemptStore store = *AttemptStore::Open(path);
  const AttemptId id("long");
  ASSERT_TRUE(store.Create(id).ok());
  AttemptSpec spec;
  spec.argv = {"/bin/pwd"};
  spec.env = {"GPULAYER_ATTEMPT_ID=long"};
  spec.cwd = store.PathOf(id);
  ASSERT_TRUE(store.WriteSpec(id, spec).ok());
  ASSERT_TRUE((*client)->Start(id).ok());
  EXPECT_TRUE(Eventually([&] { return ear.Ends(id) == 1; }));
  EXPECT_EQ(ear.End(id).exit_code, 0);
  EXPECT_TRUE((*client)->Shutdown(0s, 10s).ok());
}

TEST(ExecLinkTest, AMissingProgramIsSaid) {
  TempDir dir;
  ExecClientOptions options;
  options.data_dir = dir.path();
  options.program = dir / "gpulayer-exec";
  const auto client = ExecClient::Open(options, [](ExecEvent) {});
  EXPECT_EQ(client.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(client.status().message(), HasSubstr(options.program));
}

// gpulayer-exec under a limit of open files.
class FewFilesTest : public ExecTest {
 protected:
  void SetUp() override {}
  void Open(int files) {
    ExecClientOptions options = Options(Life::kDiesWithWorker);
    options.program =
        WriteScript("exec-with-few-files", "#!/bin/sh\nulimit -n " + std::to_string(files) +
                                               "\nexec " + GPULAYER_EXEC_PROGRAM + " \"$@\"\n");
    auto client = ExecClient::Open(options, ear_.sink());
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_ = *std::move(client);
  }
};

TEST_F(FewFilesTest, F22_AttemptsCostTheKeeperNoDescriptors) {
  Open(32);
  std::vector<AttemptId> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(Start(Shell("echo up; sleep 9999")));
  for (const AttemptId& id : ids) ASSERT_TRUE(Prints(id, "up"));
  for (const AttemptId& id : ids) ASSERT_TRUE(client_->Stop(id, 0s).ok());
  for (const AttemptId& id : ids) EXPECT_EQ(Await(id).signal, SIGKILL);
}

TEST_F(FewFilesTest, F22_AStartWithoutDescriptorsIsTheWorkersFault) {
  Open(11);
  const AttemptStatus s = Run(Spec({"true"}));
  EXPECT_EQ(s.error, EMFILE);
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kSpawnFailed);
  EXPECT_THAT(OutcomeOf(s).cause.text, HasSubstr("Too many open files"));
}

// A keeper that stands still after it has opened its folder and before it has a log there: it waits
// for the other end of a pipe that has the name of the free file for the log.
class StalledKeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AttemptSpec spec;
    spec.argv = {"/bin/sh", "-c", "echo ran >" + dir_ / "ran"};
    spec.env = {std::string(kAttemptIdVariable) + "=first"};
    spec.cwd = "/";
    ASSERT_TRUE(store_.Create(first_).ok());
    ASSERT_TRUE(store_.WriteSpec(first_, spec).ok());
    ASSERT_EQ(mkfifo((store_.PathOf(first_) + "/log.tmp").c_str(), 0600), 0);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    report_ = UniqueFd(ends[0]);
    const UniqueFd write_end(ends[1]);
    // Its parent stands for gpulayer-exec: it waits for its keeper and ends as that does.
    exec_ = fork();
    if (exec_ == 0) {
      MonitorPlan plan;
      plan.attempt_dir = store_.PathOf(first_);
      plan.exec_pid = getpid();
      plan.report_fd = write_end.get();
      plan.oom_score_adj = "0";
      sigset_t all;
      sigfillset(&all);
      sigprocmask(SIG_SETMASK, &all, nullptr);
      const pid_t keeper = fork();
      if (keeper == 0) RunMonitor(plan);
      close(write_end.get());
      int status = 0;
      while (waitpid(keeper, &status, 0) < 0 && errno == EINTR) {
      }
      _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    }
    ASSERT_GT(exec_, 0);
    ASSERT_TRUE(Eventually([&] { return IsWaiting(); }));
  }
  void TearDown() override {
    Release();
    if (exec_ > 0) {
      EXPECT_EQ(waitpid(exec_, nullptr, 0), exec_);
    }
  }

  // The keeper has opened its folder; what it opens next is the pipe.
  bool IsWaiting() {
    const std::string self = std::to_string(exec_);
    const Result<std::string> children = ReadFile("/proc/" + self + "/task/" + self + "/children");
    if (!children.ok() || children->empty()) return false;
    const std::string keeper = "/proc/" + std::to_string(std::stol(*children));
    const Result<std::vector<std::string>> fds = ListDir(keeper + "/fd");
    if (!fds.ok()) return false;
    for (const std::string& fd : *fds) {
      char to[4096] = "";
      if (readlink((keeper + "/fd/" + fd).c_str(), to, sizeof to - 1) > 0 &&
          to == store_.PathOf(first_)) {
        return true;
      }
    }
    return false;
  }
  void Release() {
    if (pipe_.valid()) return;
    for (const AttemptId& id : {first_, second_}) {
      const std::string path = store_.PathOf(id) + "/log.tmp";
      if (PathExists(path)) pipe_ = UniqueFd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    }
  }
  // Until nobody holds the other end of its reports.
  void AwaitEnd() {
    char buffer[4096];
    while (ReadSome(report_.get(), buffer, sizeof buffer).value_or(0) > 0) {
    }
  }
  std::vector<std::string> NamesIn(const AttemptId& id) {
    return ListDir(store_.PathOf(id)).value_or(std::vector<std::string>{"no folder"});
  }

  TempDir dir_;
  AttemptStore store_ = *AttemptStore::Open(dir_.path());
  const AttemptId first_{"first"};
  const AttemptId second_{"second"};
  UniqueFd report_;
  UniqueFd pipe_;
  pid_t exec_ = -1;
};

TEST_F(StalledKeeperTest, InItsOwnFolderItBegins) {
  Release();
  AwaitEnd();
  EXPECT_EQ(store_.ReadStatus(first_)->exit_code, 0);
  EXPECT_TRUE(PathExists(dir_ / "ran"));
}

TEST_F(StalledKeeperTest, WritesNothingInAFolderThatServesAnother) {
  ASSERT_EQ(rename(store_.PathOf(first_).c_str(), store_.PathOf(second_).c_str()), 0);
  const std::vector<std::string> before = NamesIn(second_);
  Release();
  AwaitEnd();
  EXPECT_EQ(NamesIn(second_), before);
  EXPECT_FALSE(PathExists(dir_ / "ran"));
}

TEST_F(StalledKeeperTest, WritesNothingOnceItsParentIsDead) {
  kill(exec_, SIGKILL);
  ASSERT_TRUE(Eventually([&] { return !IsAlive(exec_); }));
  const std::vector<std::string> before = NamesIn(first_);
  Release();
  AwaitEnd();
  EXPECT_EQ(NamesIn(first_), before);
  EXPECT_FALSE(PathExists(dir_ / "ran"));
}

class SpareAttemptTest : public ::testing::Test {
 protected:
  // The path of an attempt's folder that has been set aside.
  std::string SetAside() {
    const AttemptId id("first");
    const std::string path = store_.Create(id).value_or("");
    EXPECT_TRUE(WriteFileAtomic(JoinPath(path, kLogFile), "", 0600, Durability::kNone).ok());
    EXPECT_TRUE(store_.Remove(id).ok());
    const std::string spares = JoinPath(store_.root(), ".spare");
    return JoinPath(spares, ListDir(spares)->at(0));
  }
  std::vector<std::string> NamesInNext() {
    const Result<std::string> path = store_.Create(AttemptId("second"));
    EXPECT_TRUE(path.ok()) << path.status().ToString();
    return ListDir(path.value_or("")).value_or(std::vector<std::string>{"no folder"});
  }
  TempDir dir_;
  AttemptStore store_ = *AttemptStore::Open(dir_.path());
};

TEST_F(SpareAttemptTest, ServesWithFreeNames) {
  SetAside();
  EXPECT_THAT(NamesInNext(), ElementsAre("log.tmp"));
}

TEST_F(SpareAttemptTest, DoesNotServeWithAnotherName) {
  const std::string spare = SetAside();
  ASSERT_EQ(rename((spare + "/log.tmp").c_str(), (spare + "/log").c_str()), 0);
  EXPECT_THAT(NamesInNext(), IsEmpty());
}

TEST_F(SpareAttemptTest, ServesWithoutTheFileThatAKeeperHolds) {
  const std::string spare = SetAside();
  const UniqueFd held = *OpenFile(spare + "/log.tmp", O_WRONLY);
  ASSERT_EQ(flock(held.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(NamesInNext(), IsEmpty());
}

}  // namespace
}  // namespace gpulayer::testing
