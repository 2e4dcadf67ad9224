#include <gtest/gtest.h>
#include <sched.h>

#include "support/fake_probe.h"
#include "support/temp_dir.h"
#include "worker/probe/probe.h"

namespace gpulayer::testing {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// A /proc and /sys of the test's own; CPUs are those of this machine.
class CpuProbeTest : public ::testing::Test {
 protected:
  CpuProbeTest() {
    Write("proc/meminfo", "MemTotal:       4194304 kB\nMemFree: 1 kB\n");
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    cpus_ = CPU_COUNT(&set);
  }
  void Write(const std::string& name, const std::string& text) {
    const std::string path = root_ / name;
    ASSERT_TRUE(MakeDirs(DirName(path)).ok());
    ASSERT_TRUE(WriteFileAtomic(path, text, 0600, Durability::kNone).ok());
  }
  Resources Detect() {
    CpuProbeOptions options;
    options.root = root_.path();
    Result<Resources> r = CpuProbe(options).Detect();
    EXPECT_TRUE(r.ok()) << r.status().ToString();
    return r.value_or(Resources{});
  }
  TempDir root_;
  int cpus_ = 0;
};

TEST_F(CpuProbeTest, WithoutCgroupsTheMachineItself) {
  EXPECT_EQ(Detect().slots, cpus_);
  EXPECT_EQ(Detect().memory_bytes, 4096 * kMiB);
  EXPECT_TRUE(Detect().devices.empty());
}

TEST_F(CpuProbeTest, TheAffinityMaskCounts) {
  cpu_set_t before;
  cpu_set_t one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &before)) {
      CPU_SET(i, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(Detect().slots, 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST_F(CpuProbeTest, Version2LimitsOfAllLevelsCount) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/a/memory.max", "max\n");
  Write("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
  EXPECT_EQ(Detect().slots, 1);  // half a CPU, rounded up
  EXPECT_EQ(Detect().memory_bytes, 1024 * kMiB);
}

TEST_F(CpuProbeTest, Version1LimitsBesideVersion2Count) {
  Write("proc/self/cgroup", "4:memory:/a\n2:cpuacct,cpu:/a\n0::/\n");
  Write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(Detect().slots, 1);
  EXPECT_EQ(Detect().memory_bytes, 2048 * kMiB);
}

TEST_F(CpuProbeTest, InAContainerTheRootOfTheMountCounts) {
  Write("proc/self/cgroup", "0::/../../not/here\n");
  Write("sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(Detect().memory_bytes, 512 * kMiB);
}

TEST_F(CpuProbeTest, GivenNumbersWin) {
  CpuProbeOptions options;
  options.root = root_ / "missing";
  options.slots = 7;
  options.memory_bytes = 5;
  const Resources r = *CpuProbe(options).Detect();
  EXPECT_EQ(r.slots, 7);
  EXPECT_EQ(r.memory_bytes, 5);
}

TEST_F(CpuProbeTest, UnreadableMemoryIsAnError) {
  CpuProbeOptions options;
  options.root = root_ / "missing";
  EXPECT_FALSE(CpuProbe(options).Detect().ok());
}

TEST_F(CpuProbeTest, ThisMachine) {
  const Result<Resources> r = CpuProbe().Detect();
  ASSERT_TRUE(r.ok()) << r.status().ToString();
  EXPECT_GE(r->slots, 1);
  EXPECT_GT(r->memory_bytes, 64 * kMiB);
}

TEST(FakeProbeTest, DevicesAreKnownById) {
  FakeProbe probe(FakeProbe::Machine(4, 1024 * kMiB, 2));
  EXPECT_EQ(probe.Detect()->devices.size(), 2u);
  probe.Lose("GPU-0");
  ASSERT_EQ(probe.Detect()->devices.size(), 1u);
  EXPECT_EQ(probe.Detect()->devices[0].id, "GPU-1");
}

}  // namespace
}  // namespace gpulayer::testing
