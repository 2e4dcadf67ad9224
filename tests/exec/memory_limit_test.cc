// --memory as a limit, where a memory cgroup can be made.
#include <sys/stat.h>

#include "exec/exec_fixture.h"
#include "worker/exec/memory_cgroup.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kLimit = 64 << 20;
constexpr char kHog[] = "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null";

class MemoryLimitTest : public ExecTest {
 protected:
  void SetUp() override {
    ExecTest::SetUp();
    place_ = FindCgroupPlace();
    if (place_.dir.empty()) GTEST_SKIP() << "no memory cgroup can be made: " << place_.why_not;
    if (place_.unified) GTEST_SKIP() << "gpulayer-exec shares its cgroup with this test";
    MemoryCgroup trial(place_.dir + "/gpulayer-test-" + std::to_string(getpid()), false);
    const int fd = trial.Make(kLimit);
    if (fd < 0) GTEST_SKIP() << "no memory cgroup can be made in " << place_.dir;
    close(fd);
    trial.Remove();
  }
  AttemptSpec Limited(const std::string& script) {
    AttemptSpec spec = Shell(script);
    spec.memory_limit = kLimit;
    return spec;
  }
  // The groups of this test's attempts that are there.
  std::vector<std::string> Groups() {
    std::vector<std::string> out;
    for (const std::string& name : ListDir(place_.dir).value_or({})) {
      if (name.find(Prefix()) != std::string::npos) out.push_back(name);
    }
    return out;
  }
  pid_t MonitorOf(const AttemptId& id) {
    const Result<std::string> stat = ReadFile("/proc/" + std::to_string(ear_.Pid(id)) + "/stat");
    return stat.ok() ? static_cast<pid_t>(std::stol(stat->substr(stat->rfind(')') + 4))) : 0;
  }

  CgroupPlace place_;
};

TEST_F(MemoryLimitTest, F04_AProgramOverItsLimitIsOutOfMemory) {
  AttemptSpec spec = Spec({"dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"});
  spec.memory_limit = kLimit;
  const AttemptStatus s = Run(spec);
  EXPECT_EQ(s.signal, SIGKILL);
  EXPECT_EQ(s.memory_limit, kLimit);
  EXPECT_GE(s.oom_kills, 1);
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kOutOfMemory);
  EXPECT_EQ(OutcomeOf(s).cause.text, "out of memory: it reached the limit of --memory 64MiB");
  EXPECT_THAT(Groups(), IsEmpty());
}

TEST_F(MemoryLimitTest, AShellThatPassesItOnToo) {
  const AttemptStatus s = Run(Limited(std::string(kHog) + "; exit $?"));
  EXPECT_EQ(s.exit_code, 137);
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kOutOfMemory);
}

TEST_F(MemoryLimitTest, F04_OneThatGoesOnEndsByItself) {
  const AttemptStatus s = Run(Limited(std::string(kHog) + "; exit 3"));
  EXPECT_EQ(s.exit_code, 3);
  EXPECT_GE(s.oom_kills, 1);
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kProgram);
  EXPECT_THAT(OutcomeOf(s).cause.text, HasSubstr("at the limit of --memory 64MiB"));
  EXPECT_EQ(OutcomeOf(Run(Limited(std::string(kHog) + "; exit 0"))).cause.text, "");
}

TEST_F(MemoryLimitTest, WithinTheLimitNothingIsSaid) {
  const AttemptStatus s = Run(Limited("cat /proc/self/cgroup; kill -9 $$"));
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kSignal);
  EXPECT_EQ(s.oom_kills, 0);
  EXPECT_EQ(s.memory_limit, kLimit);
  EXPECT_THAT(LastOutput(), HasSubstr(last_.value() + "\n")) << "it joined its group";
  EXPECT_EQ(Run(Shell("true")).memory_limit, 0);
}

TEST_F(MemoryLimitTest, ABadProgramLeavesNoGroup) {
  AttemptSpec spec = Spec({"no-such-program"});
  spec.memory_limit = kLimit;
  EXPECT_EQ(Run(spec).exit_code, 127);
  EXPECT_THAT(Groups(), IsEmpty());
}

TEST_F(MemoryLimitTest, WhatKilledKeepersLeaveIsRemoved) {
  client_.reset();
  ASSERT_TRUE(Eventually([&] { return ExecPid() == 0; }));
  Reopen(ExecClientOptions::Life::kOutlivesWorker);
  const AttemptId first = Start(Limited("echo up; sleep 1000"));
  const AttemptId second = Start(Limited("echo up; sleep 1000"));
  ASSERT_TRUE(Prints(first, "up") && Prints(second, "up"));
  ASSERT_TRUE(Eventually([&] { return ear_.Started(first) && ear_.Started(second); }));
  EXPECT_EQ(Groups().size(), 2U);
  kill(MonitorOf(first), SIGKILL);
  EXPECT_EQ(Await(first).failed_step, StartStep::kMonitor);
  EXPECT_EQ(Groups().size(), 1U);
  const pid_t exec = ExecPid();
  const pid_t monitor = MonitorOf(second);
  ASSERT_GT(exec, 1);
  ASSERT_GT(monitor, 1);
  for (const pid_t pid : {monitor, exec}) kill(pid, SIGSTOP);
  for (const pid_t pid : {monitor, exec}) kill(pid, SIGKILL);
  EXPECT_EQ(Await(second).failed_step, StartStep::kMonitor);  // the next gpulayer-exec says it
  EXPECT_THAT(Groups(), IsEmpty());
  ASSERT_TRUE(client_->Shutdown(0s, 10s).ok());
}

// A machine's files below a folder.
class CgroupPlaceTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) {
    ASSERT_TRUE(MakeDirs(DirName(dir_ / path)).ok());
    ASSERT_TRUE(WriteFileAtomic(dir_ / path, text, 0600, Durability::kNone).ok());
  }
  TempDir dir_;
};

TEST_F(CgroupPlaceTest, Version1IsPreferredAndItsMountMayBeAPart) {
  Put("proc/self/cgroup", "5:cpu:/\n4:memory,hugetlb:/box/job\n0::/user\n");
  Put("proc/self/mountinfo",
      "30 20 0:1 / /cg rw - tmpfs tmpfs rw\n"
      "31 30 0:2 /box /cg/memory rw,nosuid shared:1 - cgroup cgroup rw,memory,hugetlb\n"
      "32 30 0:3 / /cg/unified rw - cgroup2 cgroup2 rw\n");
  ASSERT_TRUE(MakeDirs(dir_ / "cg/memory/job").ok());
  const CgroupPlace place = FindCgroupPlace(dir_.path());
  EXPECT_EQ(place.dir, dir_ / "cg/memory/job");
  EXPECT_FALSE(place.unified);
}

TEST_F(CgroupPlaceTest, Version2NeedsTheController) {
  Put("proc/self/cgroup", "0::/user.slice/x.scope\n");
  Put("proc/self/mountinfo", "32 30 0:3 / /cg rw - cgroup2 cgroup2 rw\n");
  Put("cg/user.slice/x.scope/cgroup.controllers", "cpu pids\n");
  EXPECT_EQ(FindCgroupPlace(dir_.path()).dir, "");
  EXPECT_EQ(FindCgroupPlace(dir_.path()).why_not, "there is no memory cgroup");
  Put("cg/user.slice/x.scope/cgroup.controllers", "cpu memory pids\n");
  CgroupPlace place = FindCgroupPlace(dir_.path());
  EXPECT_EQ(place.dir, dir_ / "cg/user.slice/x.scope");
  EXPECT_TRUE(place.unified);
  EXPECT_THAT(WhyNoMemoryLimit(place), HasSubstr("holds other processes"));
  Put("cg/user.slice/x.scope/cgroup.subtree_control", "memory\n");
  EXPECT_EQ(WhyNoMemoryLimit(place), "");
  MoveAside(place);  // nothing to do
  EXPECT_FALSE(PathExists(dir_ / "cg/user.slice/x.scope/gpulayer-exec"));
  EXPECT_NE(place.dir, "");
}

// The kernel's files are not in a folder that a file system makes: it cannot be done.
TEST_F(CgroupPlaceTest, WhereItCannotMoveAsideThereIsNoPlaceAndNothingIsLeft) {
  Put("proc/self/cgroup", "0::/x\n");
  Put("proc/self/mountinfo", "32 30 0:3 / /cg rw - cgroup2 cgroup2 rw\n");
  Put("cg/x/cgroup.controllers", "memory\n");
  Put("cg/x/cgroup.subtree_control", "\n");
  CgroupPlace place = FindCgroupPlace(dir_.path());
  MoveAside(place);
  EXPECT_EQ(place.dir, "");
  EXPECT_THAT(place.why_not, HasSubstr("cgroup.subtree_control"));
  EXPECT_FALSE(PathExists(dir_ / "cg/x/gpulayer-exec"));
}

}  // namespace
}  // namespace gpulayer::testing
