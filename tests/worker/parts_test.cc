// The worker's small parts: configuration file, identity, job environment, Python folder.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/fs.h"
#include "model/variables.h"
#include "support/temp_dir.h"
#include "tree/hash_one.h"
#include "worker/config.h"
#include "worker/handed_over.h"
#include "worker/identity.h"
#include "worker/job_env.h"
#include "worker/session/grpc_log.h"

namespace gpulayer::worker {
namespace {

using gpulayer::testing::TempDir;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

TEST(LineLimitTest, OneOfAKindAMinute) {
  using std::chrono::seconds;
  const TimePoint begin{};
  LineLimit limit;
  EXPECT_EQ(limit.Admit({"a.cc", 1}, begin), 0);
  EXPECT_EQ(limit.Admit({"a.cc", 2}, begin), 0);
  EXPECT_EQ(limit.Admit({"a.cc", 1}, begin + seconds(1)), std::nullopt);
  EXPECT_EQ(limit.Admit({"a.cc", 1}, begin + seconds(59)), std::nullopt);
  EXPECT_EQ(limit.Admit({"a.cc", 1}, begin + seconds(60)), 2);
  EXPECT_EQ(limit.Admit({"a.cc", 1}, begin + seconds(61)), std::nullopt);
  EXPECT_EQ(limit.Admit({"a.cc", 1}, begin + seconds(200)), 1);
  EXPECT_EQ(limit.Admit({"a.cc", 1}, begin + seconds(300)), 0);
}

TEST(WorkerFileTest, ReadsEverySection) {
  const Result<WorkerFile> file = ParseWorkerFile(R"(
[worker]
name = "box"
slots = 3
zone = "z"
region = "r"
cache_size = "2GiB"
[labels]
tier = "fast"
[env]
HTTP_PROXY = "http://p"
)",
                                                  "worker.toml");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->name, "box");
  EXPECT_EQ(file->slots, 3);
  EXPECT_EQ(file->zone, "z");
  EXPECT_EQ(file->region, "r");
  EXPECT_EQ(file->cache_bytes, std::int64_t{2} << 30);
  EXPECT_THAT(file->labels, ElementsAre(Pair("tier", "fast")));
  EXPECT_THAT(file->env, ElementsAre(EnvVar{"HTTP_PROXY", "http://p"}));
}

TEST(WorkerFileTest, BadFilesNameThePlace) {
  const struct {
    const char* text;
    const char* error;
  } rows[] = {
      {"[worker]\nslotz = 3\n", "worker.toml:2: unknown key 'slotz'"},
      {"[wrker]\n", "worker.toml:1: unknown key 'wrker'"},
      {"\n\n[worker]\nslots = \"3\"\n", "worker.toml:4: slots"},
      {"[worker]\nslots = -1\n", "slots must be"},
      {"[worker]\nslots = 1000000000\n", "slots must be"},
      {"[env]\nGPULAYER_JOB_ID = \"7\"\n", "GPULAYER_JOB_ID: GPUlayer sets it itself"},
      {"[worker]\ncache_size = \"much\"\n", "cache_size"},
      {"[labels]\na = 1\n", "worker.toml:2: a must be text"},
      {"[env]\n\"A=B\" = \"x\"\n", "no name of a variable"},
      {"worker = 3\n", "worker must be a table"},
      {"[worker\n", "worker.toml:1"},
      {"[worker]\nname = \"a\\nb\"\n", "worker.toml:2: name: 1 to 200 bytes"},
      {"[worker]\nname = \"\"\n", "worker.toml:2: name: 1 to 200 bytes"},
      {"[labels]\ntier = \"a\\nb\"\n", "worker.toml:2: label tier: 0 to 200 bytes"},
  };
  for (const auto& row : rows) {
    const Result<WorkerFile> file = ParseWorkerFile(row.text, "worker.toml");
    ASSERT_FALSE(file.ok()) << row.text;
    EXPECT_THAT(file.status().message(), HasSubstr(row.error));
  }
}

TEST(IdentityTest, IsDrawnOnceAndKept) {
  const TempDir dir;
  const Result<WorkerId> first = LoadIdentity(dir.path());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->value().size(), 32U);
  EXPECT_EQ(*LoadIdentity(dir.path()), *first);
  const TempDir other;
  EXPECT_NE(*LoadIdentity(other.path()), *first);
}

TEST(IdentityTest, DamagedFileIsSaidAndKept) {
  const TempDir dir;
  for (const char* text : {"", "{", "[]", "{\"worker_id\":7}", "{\"worker_id\":\"zz\"}"}) {
    ASSERT_TRUE(WriteFileAtomic(dir / "worker.json", text).ok());
    const Result<WorkerId> id = LoadIdentity(dir.path());
    ASSERT_FALSE(id.ok()) << text;
    EXPECT_EQ(id.status().code(), StatusCode::kDataLoss);
    EXPECT_EQ(*ReadFile(dir / "worker.json"), text);
  }
}

Assignment Work(std::vector<EnvVar> env, std::vector<std::string> devices = {}) {
  auto spec = std::make_shared<JobSpec>();
  spec->env = std::move(env);
  Assignment work;
  work.key.id = AttemptId("a");
  work.spec = spec;
  work.allocation.slots = 3;
  work.allocation.device_ids = std::move(devices);
  return work;
}

JobEnvInput Input() {
  JobEnvInput input;
  input.bin_dir = "/bin-dir";
  input.daemon = [](const char* name) -> std::optional<std::string> {
    if (std::string(name) == "PATH") return "/usr/bin";
    if (std::string(name) == "HOME") return "/root";
    return std::nullopt;
  };
  return input;
}

TEST(JobEnvTest, UserWinsButNotOverIds) {
  const auto env = BuildJobEnv(
      Work({{"OMP_NUM_THREADS", "9"}, {"PYTHONUNBUFFERED", ""}, {"GPULAYER_ATTEMPT_ID", "x"}}),
      Input());
  EXPECT_THAT(env, Contains("OMP_NUM_THREADS=9"));
  EXPECT_THAT(env, Contains("PYTHONUNBUFFERED="));
  EXPECT_THAT(env, Contains("GPULAYER_ATTEMPT_ID=a"));
  EXPECT_THAT(env, Not(Contains("OMP_NUM_THREADS=3")));
}

TEST(JobEnvTest, WhatItSetsItselfIsWhatUsersMayNotSet) {
  for (const std::string& var : BuildJobEnv(Work({}), Input())) {
    const std::string name = var.substr(0, var.find('='));
    if (name.starts_with("GPULAYER_")) {
      EXPECT_TRUE(IsSetByGpulayer(name)) << name;
    }
  }
}

TEST(JobEnvTest, PathLeadsToThePythonAndDevicesAreByUuid) {
  const auto env = BuildJobEnv(Work({}, {"GPU-1", "GPU-2"}), Input());
  EXPECT_THAT(env, Contains("PATH=/bin-dir:/usr/bin"));
  EXPECT_THAT(env, Contains("HOME=/root"));
  EXPECT_THAT(env, Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(env, Contains("CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"));
}

TEST(JobEnvTest, WithoutAPathThereIsStillOne) {
  JobEnvInput input = Input();
  input.daemon = [](const char*) { return std::nullopt; };
  EXPECT_THAT(BuildJobEnv(Work({}), input), Contains("PATH=/bin-dir:/usr/local/bin:/usr/bin:/bin"));
}

TEST(PythonDirTest, LinksWhatPathLeadsTo) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "real/bin").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "real/bin/python3",
                              "\x7f"
                              "ELF",
                              0755)
                  .ok());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(MakePythonDir(dir / "bin", "relative:/nonexistent:" + (dir / "real/bin")).ok());
    for (const char* name : {"python", "python3"}) {
      char target[4096] = {};
      ASSERT_GT(readlink((dir / "bin/" + name).c_str(), target, sizeof(target) - 1), 0);
      EXPECT_EQ(std::string(target), dir / "real/bin/python3");
    }
  }
  ASSERT_TRUE(MakePythonDir(dir / "bin", "/nonexistent").ok());
  EXPECT_FALSE(PathExists(dir / "bin/python"));
}

TEST(PythonDirTest, VirtualEnvironmentsAreRunByTheirOwnName) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "venv/bin").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "venv/pyvenv.cfg", "").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "venv/bin/python3",
                              "\x7f"
                              "ELF",
                              0755)
                  .ok());
  ASSERT_TRUE(MakePythonDir(dir / "bin", dir / "venv/bin").ok());
  EXPECT_THAT(*ReadFile(dir / "bin/python"),
              HasSubstr("exec '" + (dir / "venv/bin/python3") + "'"));
}

TEST(HandedOverTest, ALaterWorkerKnowsWhatIsNoLongerThere) {
  const testing::TempDir dir;
  const std::string out = dir / "attempt/out";
  ASSERT_TRUE(MakeDirs(out + "/sub").ok());
  ASSERT_TRUE(WriteFileAtomic(out + "/sub/big", "content", 0640).ok());
  ASSERT_EQ(link((out + "/sub/big").c_str(), (dir / "blob").c_str()), 0);  // the server's
  const Result<UniqueFd> root = OpenFile(out, O_RDONLY | O_DIRECTORY);
  const Result<tree::HashedFile> file = tree::HashOne(root->get(), "sub/big");
  ASSERT_TRUE(file.ok());
  {
    worker::HandedOver handed(dir / "record", dir / "attempt");
    ASSERT_TRUE(handed.Load().ok());
    ASSERT_TRUE(handed.TakeAway(root->get(), out, "sub/big", *file).ok());
    EXPECT_FALSE(PathExists(out + "/sub/big"));
    // What has come there since is not the server's.
    ASSERT_TRUE(WriteFileAtomic(out + "/sub/big", "another").ok());
    EXPECT_FALSE(handed.TakeAway(root->get(), out, "sub/big", *file).ok());
    EXPECT_TRUE(PathExists(out + "/sub/big"));
  }
  worker::HandedOver again(dir / "record", dir / "attempt");
  ASSERT_TRUE(again.Load().ok());
  const std::map<std::string, TreeEntry> files = again.files();
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files.begin()->first, out + "/sub/big");
  EXPECT_EQ(files.begin()->second.hash, Hash::Of("content"));
  EXPECT_EQ(files.begin()->second.size, 7);
  EXPECT_EQ(files.begin()->second.mode, 0640U);
}

}  // namespace
}  // namespace gpulayer::worker
