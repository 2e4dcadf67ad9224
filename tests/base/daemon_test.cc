#include "base/daemon.h"

#include <gtest/gtest.h>
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

}  // namespace
}  // namespace gpulayer
