#include "base/daemon.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>

#include "base/fs.h"
#include "support/temp_dir.h"

namespace gpulayer {
namespace {

TEST(LockHolderTest, IsWhoHoldsItNow) {
  const testing::TempDir dir;
  const std::string path = dir / "lock";
  EXPECT_EQ(LockHolder(path), std::nullopt);
  std::string holder;
  {
    const Result<FileLock> lock = FileLock::AcquireWithPid(path, &holder);
    ASSERT_TRUE(lock.ok());
    EXPECT_EQ(LockHolder(path), getpid());
  }
  EXPECT_EQ(LockHolder(path), std::nullopt);  // what is written there is of one that is gone
}

TEST(FileLimitTest, JobsGetTheOneOfBefore) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(StartedFileLimit(), 64U);
  RaiseFileLimit();
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, before.rlim_max);
  EXPECT_EQ(StartedFileLimit(), 64U);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace gpulayer
