#include "base/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/fs.h"
#include "base/log.h"
#include "support/temp_dir.h"

namespace gpulayer {
namespace {

using ::testing::HasSubstr;

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

TEST(LockHolderTest, NobodyHoldsWhatIsNoFile) {
  const testing::TempDir dir;
  ASSERT_EQ(mkfifo((dir / "lock").c_str(), 0600), 0);
  EXPECT_EQ(LockHolder(dir / "lock"), std::nullopt);
}

// In a thread of a daemon whose log is `path`; empty: standard error.
template <typename What>
void ThrowUncaught(const std::string& path, const What& what) {
  IgnoreError(OpenLog("log", path, LogLevel::kInfo), "the test looks for it");
  SayWhatEndsUs("gpulayer-daemon");
  std::thread([&] { throw what; }).join();
}

TEST(UncaughtTest, IsSaidInTheLog) {
  const testing::TempDir dir;
  EXPECT_EXIT(ThrowUncaught(dir / "log", std::out_of_range("at 7")),
              ::testing::KilledBySignal(SIGABRT), "^gpulayer-daemon: uncaught exception: at 7\n$");
  EXPECT_THAT(ReadFile(dir / "log").value_or(""), HasSubstr("ends: uncaught exception: at 7\n"));
}

TEST(UncaughtTest, WantOfMemoryIsNoFaultOfTheProgram) {
  const testing::TempDir dir;
  const std::string said = "no memory. Raise the limits of this account";
  EXPECT_EXIT(ThrowUncaught(dir / "log", std::bad_alloc()), ::testing::ExitedWithCode(1), said);
  EXPECT_THAT(ReadFile(dir / "log").value_or(""), HasSubstr("ends: " + said));
  // Once, where the log is standard error.
  EXPECT_EXIT(ThrowUncaught("", std::bad_alloc()), ::testing::ExitedWithCode(1),
              "^gpulayer-daemon: " + said + "[^\n]*\n$");
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
