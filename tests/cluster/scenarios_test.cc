// What a user can rely on, each scenario once inside one process and once with the real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "base/fs.h"
#include "base/hash.h"
#include "support/census.h"
#include "support/cluster.h"
#include "support/eventually.h"

namespace gpulayer::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class ScenarioTest : public ::testing::TestWithParam<Cluster::Kind> {
 protected:
  void SetUp() override {
    auto cluster = Cluster::Start(GetParam());
    ASSERT_TRUE(cluster.ok()) << cluster.status().ToString();
    cluster_ = *std::move(cluster);
    ASSERT_EQ(cluster_->AddWorker({.name = "one"}).ToString(), "OK");
    auto client = cluster_->Connect();
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_.emplace(*std::move(client));
  }

  JobSpec Shell(const std::string& line) {
    JobSpec spec;
    spec.shell = line;
    spec.env = {{"SHARED", cluster_->Scratch("")}};
    return spec;
  }

  // Submits; the test ends here if that fails.
  Job Submit(const JobSpec& spec) {
    Result<Job> job = client_->Submit(spec);
    if (!job.ok()) throw std::runtime_error(job.status().ToString());
    return *std::move(job);
  }

  static std::string Output(Job& job, LogStream stream = LogStream::kOut) {
    std::string all;
    const Status status = job.StreamLogs([&](const LogChunk& chunk) {
      if (chunk.stream == stream) all += chunk.data;
      return true;
    });
    EXPECT_EQ(status.ToString(), "OK");
    return all;
  }

  static JobResult Wait(Job& job) {
    Result<JobResult> result = job.Wait(60s);
    if (!result.ok()) throw std::runtime_error(result.status().ToString());
    return *result;
  }

  bool RunningSoon(Job& job) {
    return Eventually([&] {
      const Result<JobInfo> info = job.Info();
      return info.ok() && info->state == JobState::kRunning;
    });
  }

  std::unique_ptr<Cluster> cluster_;
  std::optional<Client> client_;
};

TEST_P(ScenarioTest, OutputArrivesByteForByteWithTheExitCode) {
  Job job = Submit(Shell("printf 'a\\200\\nlast'; printf err >&2; exit 7"));
  EXPECT_EQ(Output(job), "a\x80\nlast");
  EXPECT_EQ(Output(job, LogStream::kErr), "err");
  const JobResult result = Wait(job);
  EXPECT_EQ(result.state, JobState::kFailed);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.shell_exit_code, 7);
}

TEST_P(ScenarioTest, SourceShipsAndOutputsComeHome) {
  const std::string source = cluster_->Scratch("source");
  ASSERT_TRUE(MakeDirs(source + "/sub").ok());
  ASSERT_TRUE(WriteFileAtomic(source + "/run.sh",
                              "#!/bin/sh\ncat sub/in; echo made > made.txt\n"
                              "echo best > \"$GPULAYER_OUTPUT_DIR/best.txt\"\n",
                              0755)
                  .ok());
  ASSERT_TRUE(WriteFileAtomic(source + "/sub/in", "shipped").ok());
  JobSpec spec;
  spec.command = {"./run.sh"};
  spec.source_dir = source;
  Job job = Submit(spec);
  EXPECT_EQ(Output(job), "shipped");
  EXPECT_EQ(Wait(job).state, JobState::kSucceeded);
  const Result<DownloadReport> report = job.Download({.to = cluster_->Scratch("home")});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(ReadFile(cluster_->Scratch("home/best.txt")).value_or(""), "best\n");
  EXPECT_EQ(ReadFile(cluster_->Scratch("home/made.txt")).value_or(""), "made\n");
  EXPECT_FALSE(PathExists(cluster_->Scratch("home/run.sh")));  // unchanged: it is here already
}

// The file itself becomes the server's: a process left behind that could still write to it would
// change what is stored under the hash of something else.
TEST_P(ScenarioTest, ABigOutputIsHandedOverOnceNobodyCanWriteToIt) {
  Job job =
      Submit(Shell("cd \"$GPULAYER_OUTPUT_DIR\" && head -c 20000000 /dev/urandom > big && "
                   "{ setsid sleep 9999 3<>big & } && sha256sum < big | cut -c 1-64"));
  const std::string sum = Output(job).substr(0, 64);
  EXPECT_EQ(Wait(job).state, JobState::kSucceeded);
  const Result<ServerInfo> status = client_->ServerStatus();
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_LT(status->blob_bytes_received, 1'000'000);
  const Result<DownloadReport> report = job.Download({.to = cluster_->Scratch("home")});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const Result<std::string> big = ReadFile(cluster_->Scratch("home/big"));
  ASSERT_TRUE(big.ok());
  EXPECT_EQ(Hash::Of(*big).hex(), sum);
}

TEST_P(ScenarioTest, WhatWasSubmittedRunsWhateverHappensToTheFileLater) {
  const std::string source = cluster_->Scratch("source");
  ASSERT_TRUE(MakeDirs(source).ok());
  ASSERT_TRUE(WriteFileAtomic(source + "/f", "then").ok());
  JobSpec blocker = Shell("while [ ! -e \"$SHARED/go\" ]; do sleep 0.02; done");
  blocker.resources.slots = 2;
  Job first = Submit(blocker);
  JobSpec spec;
  spec.command = {"cat", "f"};
  spec.source_dir = source;
  Job second = Submit(spec);
  ASSERT_TRUE(WriteFileAtomic(source + "/f", "now").ok());
  ASSERT_TRUE(WriteFileAtomic(cluster_->Scratch("go"), "").ok());
  EXPECT_EQ(Output(second), "then");
  EXPECT_EQ(Wait(first).state, JobState::kSucceeded);
}

TEST_P(ScenarioTest, CancelEndsQueuedAndRunningJobs) {
  JobSpec wide = Shell("exec sleep 9999");
  wide.resources.slots = 2;
  Job running = Submit(wide);
  Job queued = Submit(wide);
  ASSERT_TRUE(RunningSoon(running));
  ASSERT_TRUE(queued.Cancel().ok());
  EXPECT_EQ(Wait(queued).shell_exit_code, 130);
  ASSERT_TRUE(running.Cancel().ok());
  const JobResult result = Wait(running);
  EXPECT_EQ(result.state, JobState::kCancelled);
  EXPECT_EQ(result.shell_exit_code, 130);
  EXPECT_EQ(running.Cancel()->already_ended, 1);
}

TEST_P(ScenarioTest, TheTimeLimitEndsWhatIgnoresTerm) {
  JobSpec spec = Shell("trap '' TERM; while :; do sleep 0.05; done");
  spec.time_limit = 200ms;
  spec.grace = 200ms;
  Job job = Submit(spec);
  const JobResult result = Wait(job);
  EXPECT_EQ(result.state, JobState::kTimedOut);
  EXPECT_EQ(result.shell_exit_code, 124);
}

TEST_P(ScenarioTest, TheImpossibleIsRefusedWithTheNearestMiss) {
  JobSpec spec = Shell("true");
  spec.resources.memory_bytes = std::int64_t{900} << 40;
  const Result<Job> job = client_->Submit(spec);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().code(), StatusCode::kRejected);
  EXPECT_THAT(job.status().message(),
              HasSubstr("no worker can run this: needs 1 slot, 900TiB of memory"));
  EXPECT_THAT(job.status().message(), HasSubstr("one: "));
}

TEST_P(ScenarioTest, ARequestIdMeansOneJob) {
  JobSpec spec = Shell("echo run >> \"$SHARED/count\"");
  spec.request_id = "the-same";
  Job first = Submit(spec);
  Job second = Submit(spec);
  EXPECT_EQ(first.id(), second.id());
  EXPECT_TRUE(second.existed());
  Wait(second);
  EXPECT_EQ(ReadFile(cluster_->Scratch("count")).value_or(""), "run\n");
}

TEST_P(ScenarioTest, WorkGoesToTheWorkerThatWasNamed) {
  ASSERT_EQ(
      cluster_->AddWorker({.name = "two", .zone = "eu", .labels = {{"disk", "ssd"}}}).ToString(),
      "OK");
  JobSpec spec = Shell("echo $GPULAYER_WORKER");
  spec.resources.workers = {"two"};
  Job named = Submit(spec);
  EXPECT_EQ(Output(named), "two\n");
  spec.resources.workers = {};
  spec.resources.labels = {{"disk", "ssd"}};
  spec.resources.zone = "eu";
  Job labelled = Submit(spec);
  EXPECT_EQ(Output(labelled), "two\n");
}

TEST_P(ScenarioTest, AServerRestartTouchesNoRunningJobAndLosesNoByte) {
  Job job =
      Submit(Shell("echo run >> \"$SHARED/count\"; echo before; "
                   "while [ ! -e \"$SHARED/go\" ]; do sleep 0.02; done; echo after; exit 3"));
  ASSERT_TRUE(RunningSoon(job));
  ASSERT_EQ(cluster_->RestartServer().ToString(), "OK");
  ASSERT_TRUE(WriteFileAtomic(cluster_->Scratch("go"), "").ok());
  Result<Client> client = cluster_->Connect();
  ASSERT_TRUE(client.ok());
  Job again = client->Attach(job.id());
  EXPECT_EQ(Output(again), "before\nafter\n");
  EXPECT_EQ(Wait(again).exit_code, 3);
  EXPECT_EQ(ReadFile(cluster_->Scratch("count")).value_or(""), "run\n");
}

TEST_P(ScenarioTest, AWorkerThatComesBackAdoptsItsJobs) {
  Job alive =
      Submit(Shell("while [ ! -e \"$SHARED/go\" ]; do sleep 0.02; done; echo last; exit 7"));
  Job over =
      Submit(Shell("while [ ! -e \"$SHARED/down\" ]; do sleep 0.02; done; echo gone; "
                   "touch \"$SHARED/over\"; exit 8"));
  ASSERT_TRUE(RunningSoon(alive));
  ASSERT_TRUE(RunningSoon(over));
  ASSERT_TRUE(cluster_->KillWorker("one").ok());
  ASSERT_TRUE(WriteFileAtomic(cluster_->Scratch("down"), "").ok());
  ASSERT_TRUE(Eventually([&] { return PathExists(cluster_->Scratch("over")); }));
  ASSERT_EQ(cluster_->RestartWorker("one").ToString(), "OK");
  ASSERT_TRUE(WriteFileAtomic(cluster_->Scratch("go"), "").ok());
  EXPECT_EQ(Output(alive), "last\n");
  EXPECT_EQ(Output(over), "gone\n");
  EXPECT_EQ(Wait(alive).exit_code, 7);
  EXPECT_EQ(Wait(over).exit_code, 8);
  EXPECT_EQ(alive.Info()->tasks.at(0).attempts.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Cluster, ScenarioTest,
                         ::testing::Values(Cluster::Kind::kInProcess, Cluster::Kind::kRealPrograms),
                         [](const auto& param_info) {
                           return param_info.param == Cluster::Kind::kInProcess ? "InProcess"
                                                                                : "RealPrograms";
                         });

}  // namespace
}  // namespace gpulayer::testing
