// A whole worker with real processes, against a server that the test plays.
#include "worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/census.h"
#include "support/eventually.h"
#include "support/small_disk.h"
#include "support/temp_dir.h"
#include "worker/fake_server.h"

namespace gpulayer {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::Census;
using testing::CensusMatch;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::Eventually;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::SmallDisk;
using testing::TempDir;
using ::testing::UnorderedElementsAre;

JobSpec Shell(const std::string& script) {
  JobSpec spec;
  spec.command = {"/bin/sh", "-c", script};
  spec.grace = 10s;
  return spec;
}

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    // Unique, so that the census sees this test's processes alone.
    server_.attempt_prefix =
        "wt" + std::to_string(getpid()) + "-" + std::to_string(counter_.fetch_add(1)) + "-";
  }
  ~WorkerTest() override {
    worker_.reset();
    EXPECT_TRUE(
        Eventually([&] { return Census(server_.attempt_prefix, CensusMatch::kPrefix).empty(); }));
  }

  WorkerOptions Options() {
    WorkerOptions options;
    options.server = server_.address();
    options.data_dir = dir_ / "worker";
    options.name = "w1";
    options.slots = 4;
    options.exec_program = GPULAYER_EXEC_PROGRAM;
    return options;
  }
  void StartWorker() { StartWorker(Options()); }
  void StartWorker(WorkerOptions options) {
    Result<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
    ASSERT_TRUE(worker.ok()) << worker.status().ToString();
    worker_ = *std::move(worker);
    ASSERT_TRUE(Eventually([&] { return server_.connected() && worker_->connected(); }));
  }
  v1::Ended WaitEnded(const AttemptKey& key) {
    EXPECT_TRUE(Eventually([&] { return server_.ended(key).has_value(); }, 30s));
    return server_.ended(key).value_or(v1::Ended());
  }
  // Where attempts' work folders lie.
  std::string WorkRoot() const { return JoinPath(dir_ / "worker", "work/v1"); }
  // Folders of attempts on disk.
  std::vector<std::string> Left() {
    std::vector<std::string> left;
    for (std::string& name : ListDir(dir_ / "worker/attempts/v1").value_or({})) {
      if (!name.starts_with(".")) left.push_back(std::move(name));  // not the spare folders
    }
    for (std::string& name : ListDir(WorkRoot()).value_or({})) {
      if (name.starts_with(server_.attempt_prefix)) left.push_back(std::move(name));
    }
    return left;
  }

  static inline std::atomic<int> counter_{0};
  TempDir dir_;
  FakeServer server_{dir_ / "s.sock"};
  std::unique_ptr<Worker> worker_;
};

TEST_F(WorkerTest, RunsAProgramAndReportsItWhole) {
  StartWorker();
  const AttemptKey key = server_.Assign(1, Shell("echo hi; echo err >&2; exit 7"));
  const v1::Ended end = WaitEnded(key);
  EXPECT_TRUE(end.started());
  EXPECT_EQ(end.outcome().exit_code(), 7);
  EXPECT_EQ(end.outcome().cause().kind(), static_cast<int>(CauseKind::kProgram));
  EXPECT_EQ(server_.Output(key), "hi\n");
  EXPECT_EQ(server_.Output(key, LogStream::kErr), "err\n");
  EXPECT_EQ(end.log_bytes(), server_.log_bytes(key));
  EXPECT_TRUE(Eventually([&] { return Left().empty(); }));
}

TEST_F(WorkerTest, F35_OutputIsThereWhileTheProgramRuns) {
  StartWorker();
  JobSpec spec;
  spec.command = {"python3", "-c",
                  "import os, sys, time\n"
                  "print('one')\n"
                  "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
                  "print('two')\n",
                  dir_ / "go"};
  const AttemptKey key = server_.Assign(1, spec);
  ASSERT_TRUE(Eventually([&] { return server_.Output(key) == "one\n"; }));
  EXPECT_TRUE(Eventually([&] { return server_.progressed(key, AttemptState::kRunning); }));
  ASSERT_TRUE(WriteFileAtomic(dir_ / "go", "").ok());
  EXPECT_EQ(WaitEnded(key).outcome().exit_code(), 0);
  EXPECT_EQ(server_.Output(key), "one\ntwo\n");
}

TEST_F(WorkerTest, SourceGoesThereAndOutputsComeHome) {
  StartWorker();
  JobSpec spec = Shell("cat sub/a.txt > made.txt; echo o > \"$GPULAYER_OUTPUT_DIR/o.txt\"; cat");
  spec.source_tree = server_.PutSource({{"b.txt", "untouched"}, {"sub/a.txt", "content"}});
  server_.PutBlob("from stdin");
  spec.stdin_blob = Hash::Of("from stdin");
  const AttemptKey key = server_.Assign(1, spec);
  const v1::Ended end = WaitEnded(key);
  EXPECT_EQ(end.outcome().exit_code(), 0);
  EXPECT_EQ(server_.Output(key), "from stdin");
  EXPECT_THAT(server_.Outputs(key),
              UnorderedElementsAre(Pair("made.txt", "content"), Pair("o.txt", "o\n")));
  EXPECT_TRUE(Eventually([&] { return Left().empty(); }));
}

class HandOverTest : public WorkerTest {
 protected:
  // A drop folder as a server makes it.
  std::string MakeDrop(const std::string& path, mode_t mode = 0700) {
    EXPECT_TRUE(MakeDirs(path, mode).ok());
    EXPECT_TRUE(WriteFileAtomic(JoinPath(path, "proof-1"), "").ok());
    return path;
  }
  // Whether what `script` leaves in "big" came home, 9,000,000 bytes of x; how many files were
  // handed over for it.
  int Run(const std::string& script = "") {
    StartWorker();
    const AttemptKey key =
        server_.Assign(1, Shell("cd \"$GPULAYER_OUTPUT_DIR\"; head -c 9000000 /dev/zero | tr '\\0' "
                                "x > big; echo s > small; " +
                                script));
    EXPECT_EQ(WaitEnded(key).outcome().exit_code(), 0);
    const std::map<std::string, std::string> home = server_.Outputs(key);
    const auto big = home.find("big");
    EXPECT_TRUE(big != home.end() && big->second == std::string(9'000'000, 'x'));
    EXPECT_EQ(home.count("small"), 1U);
    EXPECT_TRUE(Eventually([&] { return Left().empty(); }));
    return server_.handed_over();
  }
};

TEST_F(HandOverTest, ABigOutputIsHandedOverByALink) {
  server_.set_drop(MakeDrop(dir_ / "drop"), "proof-1");
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(*ListDir(dir_ / "drop"), ElementsAre("proof-1"));
}

// Another name for a blob would be a way to change it.
TEST_F(HandOverTest, TheServerIsTheOnlyOneWithANameForItAndACollectAgainIsComplete) {
  server_.set_drop(MakeDrop(dir_ / "drop"), "proof-1");
  int asked = 0;
  server_.on_missing = [&] {
    if (++asked > 1) return;
    const std::string out(TrimmedEnd(ReadFile(dir_ / "where").value_or("")));
    EXPECT_FALSE(PathExists(JoinPath(out, "big")));
    // Costs one more collect, which finds that file no longer.
    EXPECT_TRUE(WriteFileAtomic(JoinPath(out, "small"), "t", 0600, Durability::kNone).ok());
  };
  EXPECT_EQ(Run("pwd > " + (dir_ / "where")), 1);
  EXPECT_EQ(asked, 2);
}

TEST_F(HandOverTest, ARefusalMeansBytesAndLeavesNothing) {
  server_.set_drop(MakeDrop(dir_ / "drop"), "proof-1");
  server_.refuse_dropped = true;
  EXPECT_EQ(Run(), 0);
  EXPECT_THAT(*ListDir(dir_ / "drop"), ElementsAre("proof-1"));
}

TEST_F(HandOverTest, AServerThatIsNotHereGetsBytes) {
  server_.set_drop(MakeDrop(dir_ / "drop"), "proof-2");
  EXPECT_EQ(Run(), 0);
}

TEST_F(HandOverTest, AFolderThatOthersMayLookIntoGetsNothing) {
  server_.set_drop(MakeDrop(dir_ / "drop", 0755), "proof-1");
  EXPECT_EQ(Run(), 0);
}

TEST_F(HandOverTest, WhatTheProgramLinkedElsewhereIsSent) {
  server_.set_drop(MakeDrop(dir_ / "drop"), "proof-1");
  EXPECT_EQ(Run("ln big " + (dir_ / "elsewhere")), 0);
}

TEST_F(HandOverTest, AnotherFileSystemGetsBytes) {
  const SmallDisk disk("1m");
  if (!disk.mounted()) GTEST_SKIP() << disk.SkipReason();
  server_.set_drop(MakeDrop(disk / "drop"), "proof-1");
  EXPECT_EQ(Run(), 0);
}

// One that another program writes to between its hash and its bytes.
TEST_F(WorkerTest, AnOutputThatChangesCostsItselfAloneAndOnlyIfItGoesOn) {
  int changes = 0;
  int most = 1;
  server_.on_missing = [&] {
    const std::string out(TrimmedEnd(ReadFile(dir_ / "where").value_or("")));
    if (changes < most) {
      const std::string text = "changed " + std::to_string(++changes);
      EXPECT_TRUE(WriteFileAtomic(JoinPath(out, "log"), text, 0600, Durability::kNone).ok());
    }
  };
  StartWorker();
  const JobSpec spec = Shell("cd \"$GPULAYER_OUTPUT_DIR\"; pwd > " + (dir_ / "where") +
                             "; echo a > a; echo b > log");
  const AttemptKey once = server_.Assign(1, spec);
  EXPECT_EQ(WaitEnded(once).outcome().exit_code(), 0);
  EXPECT_THAT(server_.Outputs(once),
              UnorderedElementsAre(Pair("a", "a\n"), Pair("log", "changed 1")));
  most = 1000;
  const AttemptKey on = server_.Assign(2, spec);
  const v1::Ended end = WaitEnded(on);
  EXPECT_EQ(end.outcome().exit_code(), 0);
  EXPECT_THAT(server_.Outputs(on), ElementsAre(Pair("a", "a\n")));
  ASSERT_EQ(end.outputs().left_out_size(), 1);
  EXPECT_EQ(end.outputs().left_out(0).reason(), "it changes while it is read");
}

TEST_F(WorkerTest, FailedProgramBringsItsOutputsHomeToo) {
  StartWorker();
  const AttemptKey key = server_.Assign(1, Shell("echo x > part.txt; kill -SEGV $$"));
  const v1::Ended end = WaitEnded(key);
  EXPECT_EQ(end.outcome().signal(), SIGSEGV);
  EXPECT_EQ(end.outcome().cause().kind(), static_cast<int>(CauseKind::kSignal));
  EXPECT_THAT(server_.Outputs(key), ElementsAre(Pair("part.txt", "x\n")));
}

TEST_F(WorkerTest, MissingSourceIsChargedToTheJob) {
  StartWorker();
  JobSpec spec = Shell("true");
  spec.source_tree = Hash::Of("never stored");
  const v1::Ended end = WaitEnded(server_.Assign(1, spec));
  EXPECT_FALSE(end.started());
  EXPECT_EQ(end.outcome().cause().kind(), static_cast<int>(CauseKind::kPreparation));
}

TEST_F(WorkerTest, MachineWithoutItsFoldersIsChargedItself) {
  StartWorker();
  JobSpec spec = Shell("true");
  spec.source_tree = server_.PutSource({{"a", "a"}});
  const std::string data = DirName(DirName(WorkRoot()));
  std::int32_t task = 0;
  for (const char* folder : {"cache", "work", "attempts"}) {
    ASSERT_TRUE(RemoveTree(JoinPath(data, folder)).ok());
    const v1::Ended end = WaitEnded(server_.Assign(++task, spec));
    EXPECT_FALSE(end.started()) << folder;
    EXPECT_EQ(end.outcome().cause().kind(), static_cast<int>(CauseKind::kSpawnFailed)) << folder;
  }
}

TEST_F(WorkerTest, ProgramThatRemovesItsWorkFolderKeepsItsOutputs) {
  StartWorker();
  JobSpec spec = Shell("echo precious > \"$GPULAYER_OUTPUT_DIR/p\"; rm -rf \"$PWD\"");
  spec.source_tree = server_.PutSource({{"a", "a"}});
  const AttemptKey key = server_.Assign(1, spec);
  EXPECT_EQ(WaitEnded(key).outcome().exit_code(), 0);
  EXPECT_THAT(server_.Outputs(key), ElementsAre(Pair("p", "precious\n")));
}

TEST_F(WorkerTest, ProgramThatRemovesTheWholeAttemptKeepsItsOwnEnd) {
  StartWorker();
  JobSpec spec = Shell("echo lost > \"$GPULAYER_OUTPUT_DIR/p\"; rm -rf \"${PWD%/*}\"; exit 7");
  spec.source_tree = server_.PutSource({{"a", "a"}});
  const AttemptKey key = server_.Assign(1, spec);
  const v1::Ended end = WaitEnded(key);
  EXPECT_EQ(end.outcome().exit_code(), 7);
  EXPECT_EQ(end.outcome().cause().kind(), static_cast<int>(CauseKind::kProgram));
  EXPECT_TRUE(end.outputs().tree().empty());
  ASSERT_EQ(end.outputs().left_out_size(), 1);
  EXPECT_THAT(end.outputs().left_out(0).reason(), HasSubstr("the program removed"));
  EXPECT_TRUE(Eventually([&] { return Left().empty(); }));
}

TEST_F(WorkerTest, LinkWhoseTargetIsNoTextIsReported) {
  StartWorker();
  const AttemptKey key = server_.Assign(1, Shell("ln -s \"$(printf '/\\377')\" l; echo x > f"));
  const v1::Ended end = WaitEnded(key);
  EXPECT_EQ(end.outputs().left_out_count(), 1);
  EXPECT_THAT(server_.Outputs(key), ElementsAre(Pair("f", "x\n")));
}

TEST_F(WorkerTest, ProgramThatIsNotThereIs127) {
  StartWorker();
  JobSpec spec;
  spec.command = {"no-such-program"};
  const v1::Ended end = WaitEnded(server_.Assign(1, spec));
  EXPECT_FALSE(end.started());
  EXPECT_EQ(end.outcome().cause().kind(), static_cast<int>(CauseKind::kNotFound));
}

TEST_F(WorkerTest, CancelWhilePreparing) {
  StartWorker();
  server_.set_hold_downloads(true);
  JobSpec spec = Shell("true");
  spec.source_tree = server_.PutSource({{"a", "a"}});
  const AttemptKey key = server_.Assign(1, spec);
  ASSERT_TRUE(Eventually([&] { return server_.downloading(); }));
  server_.StopAttempt(key, 15s);
  const v1::Ended end = WaitEnded(key);
  EXPECT_FALSE(end.started());
  EXPECT_EQ(end.outcome().cause().text(), "cancelled by ann");
  EXPECT_TRUE(Eventually([&] { return Left().empty(); }));  // broken off, not waited for
}

TEST_F(WorkerTest, CancelWhileRunning) {
  StartWorker();
  const AttemptKey key = server_.Assign(
      1, Shell("trap 'echo saved > s.txt; exit 3' TERM; echo up; while :; do sleep 0.05; done"));
  ASSERT_TRUE(Eventually([&] { return server_.Output(key) == "up\n"; }));
  server_.StopAttempt(key, 10s);
  const v1::Ended end = WaitEnded(key);
  EXPECT_EQ(end.outcome().cause().kind(), static_cast<int>(CauseKind::kCancelled));
  EXPECT_EQ(end.outcome().cause().text(), "cancelled by ann");
  EXPECT_EQ(end.outcome().exit_code(), 3);
  EXPECT_THAT(server_.Outputs(key), ElementsAre(Pair("s.txt", "saved\n")));
}

TEST_F(WorkerTest, CancelNowDoesNotAsk) {
  StartWorker();
  const AttemptKey key =
      server_.Assign(1, Shell("trap '' TERM; echo up; while :; do sleep 0.05; done"));
  ASSERT_TRUE(Eventually([&] { return server_.Output(key) == "up\n"; }));
  server_.StopAttempt(key, 600s);
  server_.StopAttempt(key, 0s);
  EXPECT_EQ(WaitEnded(key).outcome().signal(), SIGKILL);
}

TEST_F(WorkerTest, CancelAfterTheEndChangesNothing) {
  StartWorker();
  server_.set_hold_end_acks(true);
  const AttemptKey key = server_.Assign(1, Shell("exit 0"));
  WaitEnded(key);
  server_.StopAttempt(key, 0s);
  server_.set_hold_end_acks(false);
  server_.Stop();
  server_.Start();
  ASSERT_TRUE(Eventually([&] { return server_.ends(key) == 2; }));
  EXPECT_EQ(server_.ended(key)->outcome().cause().kind(), static_cast<int>(CauseKind::kProgram));
}

TEST_F(WorkerTest, TimeLimitEndsIt) {
  StartWorker();
  JobSpec spec = Shell("sleep 60");
  spec.time_limit = 100ms;
  const v1::Ended end = WaitEnded(server_.Assign(1, spec));
  EXPECT_EQ(end.outcome().cause().kind(), static_cast<int>(CauseKind::kTimeLimit));
}

TEST_F(WorkerTest, ServerAwayJobsGoOnAndNothingIsLost) {
  StartWorker();
  const AttemptKey key =
      server_.Assign(1, Shell("echo before; while [ ! -e " + (dir_ / "go") +
                              " ]; do sleep 0.02; done; echo after; echo out > o.txt"));
  ASSERT_TRUE(Eventually([&] { return server_.Output(key) == "before\n"; }));
  server_.Stop();
  ASSERT_TRUE(Eventually([&] { return !worker_->connected(); }));
  ASSERT_TRUE(WriteFileAtomic(dir_ / "go", "").ok());
  ASSERT_TRUE(Eventually([&] { return Census(key.id.value()).empty(); }));
  server_.Start();
  const v1::Ended end = WaitEnded(key);
  EXPECT_EQ(end.outcome().exit_code(), 0);
  EXPECT_EQ(server_.Output(key), "before\nafter\n");
  EXPECT_THAT(server_.Outputs(key), ElementsAre(Pair("o.txt", "out\n")));
  EXPECT_TRUE(Eventually([&] { return Left().empty(); }));
}

TEST_F(WorkerTest, AttemptTheServerDoesNotWantAnyMoreIsEnded) {
  StartWorker();
  const AttemptKey key = server_.Assign(1, Shell("echo up; sleep 600"));
  ASSERT_TRUE(Eventually([&] { return server_.Output(key) == "up\n"; }));
  server_.Stop();
  server_.set_kill_all(true);
  server_.Start();
  EXPECT_TRUE(Eventually([&] { return Census(key.id.value()).empty(); }));
  EXPECT_TRUE(Eventually([&] { return Left().empty(); }));
  EXPECT_FALSE(server_.ended(key).has_value());
}

TEST_F(WorkerTest, NextWorkerAdoptsWhatRuns) {
  StartWorker();
  const WorkerId id = worker_->id();
  const AttemptKey key = server_.Assign(1, Shell("echo one; while [ ! -e " + (dir_ / "go") +
                                                 " ]; do sleep 0.02; done; echo two; exit 7"));
  const AttemptKey over = server_.Assign(
      2, Shell("echo up; while [ ! -e " + (dir_ / "go2") + " ]; do sleep 0.02; done; exit 9"));
  ASSERT_TRUE(
      Eventually([&] { return server_.Output(key) == "one\n" && server_.Output(over) == "up\n"; }));
  worker_->Stop(Worker::StopMode::kKeepJobs);
  worker_.reset();
  ASSERT_TRUE(WriteFileAtomic(dir_ / "go2", "").ok());
  ASSERT_TRUE(Eventually([&] { return Census(over.id.value()).empty(); }));
  EXPECT_FALSE(Census(key.id.value()).empty());
  StartWorker();
  EXPECT_EQ(worker_->id(), id);
  EXPECT_EQ(server_.last_hello().held_size(), 2);
  EXPECT_EQ(WaitEnded(over).outcome().exit_code(), 9);
  EXPECT_FALSE(server_.ended(key).has_value());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "go", "").ok());
  EXPECT_EQ(WaitEnded(key).outcome().exit_code(), 7);
  EXPECT_EQ(server_.Output(key), "one\ntwo\n");
  EXPECT_TRUE(Eventually([&] { return Left().empty(); }));
}

TEST_F(WorkerTest, PlannedStopEndsJobsAndHandsThemBack) {
  StartWorker();
  const AttemptKey key = server_.Assign(1, Shell("echo up; sleep 600"));
  ASSERT_TRUE(Eventually([&] { return server_.Output(key) == "up\n"; }));
  worker_->Stop();
  EXPECT_THAT(Census(server_.attempt_prefix, CensusMatch::kPrefix), IsEmpty());
  ASSERT_TRUE(server_.ended(key).has_value());
  EXPECT_EQ(server_.ended(key)->outcome().cause().kind(),
            static_cast<int>(CauseKind::kServerStopped));
}

TEST_F(WorkerTest, EnvironmentIsExactlyWhatIsPromised) {
  WorkerOptions options = Options();
  options.env = {{"FROM_WORKER", "w"}, {"BOTH", "worker"}};
  StartWorker(std::move(options));
  JobSpec spec;
  spec.command = {"/usr/bin/env"};
  spec.env = {{"MINE", "a=b c"}, {"BOTH", "user"}, {"GPULAYER_JOB_ID", "999"}};
  const AttemptKey key = server_.Assign(5, spec);
  WaitEnded(key);
  std::map<std::string, std::string> env;
  for (const std::string& line : Split(server_.Output(key), '\n')) {
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    env[line.substr(0, equals)] = line.substr(equals + 1);
  }
  const std::string work = JoinPath(WorkRoot(), key.id.value());
  EXPECT_EQ(env["GPULAYER_JOB_ID"], "5");
  EXPECT_EQ(env["GPULAYER_TASK"], "0");
  EXPECT_EQ(env["GPULAYER_ATTEMPT"], "1");
  EXPECT_EQ(env["GPULAYER_ATTEMPT_ID"], key.id.value());
  EXPECT_EQ(env["GPULAYER_OUTPUT_DIR"], work + "/out");
  EXPECT_EQ(env["GPULAYER_INPUT_DIR"], work + "/input");
  EXPECT_EQ(env["TMPDIR"], work + "/tmp");
  EXPECT_EQ(env["GPULAYER_CACHE_DIR"], dir_ / "worker/job-cache");
  EXPECT_EQ(env["GPULAYER_WORKER"], "w1");
  EXPECT_EQ(env["PYTHONUNBUFFERED"], "1");
  EXPECT_EQ(env["OMP_NUM_THREADS"], "1");
  EXPECT_EQ(env["CUDA_VISIBLE_DEVICES"], "");
  EXPECT_EQ(env["HIP_VISIBLE_DEVICES"], "");
  EXPECT_EQ(env["MINE"], "a=b c");
  EXPECT_EQ(env["FROM_WORKER"], "w");
  EXPECT_EQ(env["BOTH"], "user");
  EXPECT_TRUE(env["PATH"].starts_with(dir_ / "worker/bin:")) << env["PATH"];
  for (const char* name : {"GPULAYER_JOB_ID",
                           "GPULAYER_TASK",
                           "GPULAYER_ATTEMPT",
                           "GPULAYER_ATTEMPT_ID",
                           "GPULAYER_OUTPUT_DIR",
                           "GPULAYER_INPUT_DIR",
                           "TMPDIR",
                           "GPULAYER_CACHE_DIR",
                           "GPULAYER_WORKER",
                           "PYTHONUNBUFFERED",
                           "OMP_NUM_THREADS",
                           "CUDA_VISIBLE_DEVICES",
                           "HIP_VISIBLE_DEVICES",
                           "MINE",
                           "FROM_WORKER",
                           "BOTH",
                           "PATH",
                           "HOME",
                           "USER",
                           "LANG",
                           "TZ"}) {
    env.erase(name);
  }
  EXPECT_THAT(env, IsEmpty());
}

TEST_F(WorkerTest, HeartbeatsComeWhileNothingElseDoes) {
  StartWorker();
  EXPECT_TRUE(Eventually([&] { return server_.heartbeats() >= 5; }));
}

TEST_F(WorkerTest, SecondWorkerOnTheSameDirectoryIsRefused) {
  StartWorker();
  const Result<std::unique_ptr<Worker>> second = Worker::Start(Options());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr(std::to_string(getpid())));
}

TEST_F(WorkerTest, RefusedCredentialIsSaidOnceAndNotRepeated) {
  server_.set_refuse({grpc::StatusCode::UNAUTHENTICATED, "revoked"});
  WorkerOptions options = Options();
  std::atomic<int> refusals{0};
  options.on_refused = [&](const Status& why, Worker::StopMode mode) {
    EXPECT_THAT(why.message(), AllOf(HasSubstr("credential"), HasSubstr("revoked"),
                                     HasSubstr("`gpulayer join ADDRESS --token TOKEN`")));
    EXPECT_EQ(mode, Worker::StopMode::kKeepJobs);  // it may be let in yet
    ++refusals;
  };
  Result<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
  ASSERT_TRUE(worker.ok());
  EXPECT_TRUE(Eventually([&] { return refusals == 1; }));
  EXPECT_FALSE((*worker)->connected());
}

TEST_F(WorkerTest, WhatTheServerCannotMakeSenseOfIsSaidOnceAndNotRepeated) {
  WorkerOptions options = Options();
  options.name = "a\nb";
  EXPECT_EQ(Worker::Start(options).status().code(), StatusCode::kInvalidArgument);
  options = Options();
  server_.set_refuse({grpc::StatusCode::INVALID_ARGUMENT, "hello: name: too odd"});
  std::atomic<int> refusals{0};
  options.on_refused = [&](const Status& why, Worker::StopMode mode) {
    EXPECT_THAT(why.message(), HasSubstr("refused this worker: hello: name: too odd"));
    EXPECT_EQ(mode, Worker::StopMode::kKeepJobs);
    ++refusals;
  };
  Result<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
  ASSERT_TRUE(worker.ok());
  EXPECT_TRUE(Eventually([&] { return refusals == 1; }));
}

// The server starts its jobs elsewhere, so they must not go on here.
TEST_F(WorkerTest, ARevokedCredentialEndsTheJobs) {
  std::atomic<int> refusals{0};
  std::atomic<Worker::StopMode> mode{Worker::StopMode::kKeepJobs};
  WorkerOptions options = Options();
  options.on_refused = [&](const Status&, Worker::StopMode how) {
    mode = how;
    ++refusals;
  };
  StartWorker(std::move(options));
  const AttemptKey key = server_.Assign(1, Shell("echo up; sleep 600"));
  ASSERT_TRUE(Eventually([&] { return server_.Output(key) == "up\n"; }));
  server_.set_refuse({grpc::StatusCode::UNAUTHENTICATED, "token was revoked"});
  server_.Stop();
  server_.Start();
  ASSERT_TRUE(Eventually([&] { return refusals == 1; }));
  EXPECT_EQ(mode, Worker::StopMode::kEndJobs);
  worker_->Stop(mode);
  EXPECT_THAT(Census(server_.attempt_prefix, CensusMatch::kPrefix), IsEmpty());
}

TEST_F(WorkerTest, ManyShortProgramsAllComeHome) {
  StartWorker();
  std::vector<AttemptKey> keys;
  for (int i = 1; i <= 100; ++i) {
    keys.push_back(server_.Assign(i, Shell("echo " + std::to_string(i))));
  }
  for (int i = 1; i <= 100; ++i) {
    WaitEnded(keys[static_cast<std::size_t>(i - 1)]);
    EXPECT_EQ(server_.Output(keys[static_cast<std::size_t>(i - 1)]), std::to_string(i) + "\n");
  }
  EXPECT_TRUE(Eventually([&] { return Left().empty(); }, 30s));
}

TEST_F(WorkerTest, LongLogsArriveByteForByte) {
  StartWorker();
  const AttemptKey key = server_.Assign(1, Shell("seq 1 400000"));
  WaitEnded(key);
  std::string want;
  for (int i = 1; i <= 400000; ++i) want += std::to_string(i) + "\n";
  EXPECT_TRUE(server_.Output(key) == want);
}

}  // namespace
}  // namespace gpulayer
