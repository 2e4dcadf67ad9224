#include "base/host.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "support/temp_dir.h"

namespace gpulayer {
namespace {

TEST(DataDirTest, TheArgumentBeatsTheEnvironment) {
  setenv("GPULAYER_DATA_DIR", "/from/env", 1);
  EXPECT_EQ(*DataDir("/given"), "/given");
  EXPECT_EQ(*DataDir(""), "/from/env");
  unsetenv("GPULAYER_DATA_DIR");
  EXPECT_EQ(DataDir("below")->front(), '/');
  EXPECT_TRUE(DataDir("below")->ends_with("/below"));
  EXPECT_EQ(DataDir("caf\xe9").status().code(), StatusCode::kInvalidArgument);
  if (geteuid() == 0) EXPECT_EQ(*DataDir(""), "/var/lib/gpulayer");
}

TEST(DataDirTest, OneDirectoryHasOneName) {
  const testing::TempDir dir;
  const std::string real = *DataDir(dir.path());
  ASSERT_TRUE(MakeDirs(dir / "data").ok());
  ASSERT_EQ(symlink("data", (dir / "link").c_str()), 0);
  EXPECT_EQ(*DataDir(dir / "link"), real + "/data");
  EXPECT_EQ(*DataDir(dir / "./link/../data/"), real + "/data");
  EXPECT_EQ(*DataDir(dir / "link/not/yet/"), real + "/data/not/yet");
  ASSERT_EQ(symlink("nowhere", (dir / "dangling").c_str()), 0);
  EXPECT_EQ(*DataDir(dir / "dangling"), real + "/dangling");
}

TEST(XdgDirTest, OnlyAnAbsoluteVariableCounts) {
  setenv("GPULAYER_TEST_XDG", "/x", 1);
  EXPECT_EQ(XdgDir("GPULAYER_TEST_XDG", ".some"), "/x/gpulayer");
  const std::string own = Env("HOME");
  setenv("HOME", "/h", 1);
  for (const char* other : {"", "relative"}) {
    setenv("GPULAYER_TEST_XDG", other, 1);
    EXPECT_EQ(XdgDir("GPULAYER_TEST_XDG", ".some"), "/h/.some/gpulayer");
  }
  for (const char* home : {"", "relative"}) {  // it would be another place in each folder
    setenv("HOME", home, 1);
    EXPECT_EQ(XdgDir("GPULAYER_TEST_XDG", ".some"), "");
  }
  unsetenv("HOME");
  EXPECT_EQ(XdgDir("GPULAYER_TEST_XDG", ".some"), "");
  unsetenv("GPULAYER_TEST_XDG");
  if (!own.empty()) setenv("HOME", own.c_str(), 1);
}

TEST(HostTest, IsKnown) {
  EXPECT_FALSE(HostName().empty());
  EXPECT_EQ(BootId(), BootId());
}

}  // namespace
}  // namespace gpulayer
