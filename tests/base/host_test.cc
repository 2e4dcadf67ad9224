#include "base/host.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

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

TEST(XdgDirTest, OnlyAnAbsoluteVariableCounts) {
  setenv("GPULAYER_TEST_XDG", "/x", 1);
  EXPECT_EQ(XdgDir("GPULAYER_TEST_XDG", ".some"), "/x/gpulayer");
  const std::string home = Env("HOME");
  setenv("HOME", "/h", 1);
  for (const char* other : {"", "relative"}) {
    setenv("GPULAYER_TEST_XDG", other, 1);
    EXPECT_EQ(XdgDir("GPULAYER_TEST_XDG", ".some"), "/h/.some/gpulayer");
  }
  unsetenv("HOME");
  EXPECT_EQ(XdgDir("GPULAYER_TEST_XDG", ".some"), "");
  unsetenv("GPULAYER_TEST_XDG");
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
}

TEST(HostTest, IsKnown) {
  EXPECT_FALSE(HostName().empty());
  EXPECT_EQ(BootId(), BootId());
}

}  // namespace
}  // namespace gpulayer
