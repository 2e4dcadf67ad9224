// What a verb exits with when it cannot reach a server.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cli/args.h"

namespace gpulayer::cli {
namespace {

class ExitTest : public ::testing::Test {
 protected:
  ExitTest() {
    ::setenv("GPULAYER_DATA_DIR", "/nonexistent/data", 1);
    ::setenv("GPULAYER_CONFIG_DIR", "/nonexistent/config", 1);
    ::unsetenv("GPULAYER_TARGET");
    testing::internal::CaptureStderr();
  }
  ~ExitTest() override {
    EXPECT_EQ(testing::internal::GetCapturedStderr().rfind("gpulayer: no server to talk to", 0),
              0U);
  }
};

TEST_F(ExitTest, LogsIsAVerbOfItsOwn) {
  LogsArgs args;
  args.job = 7;
  args.options.follow = false;
  EXPECT_EQ(RunJobLogs(args), kFailed);
}

TEST_F(ExitTest, LogsThatFollowStandForTheProgram) {
  LogsArgs args;
  args.job = 7;
  args.options.follow = true;
  EXPECT_EQ(RunJobLogs(args), kCouldNot);
}

TEST_F(ExitTest, AttachStandsForTheProgram) {
  JobArgs args;
  args.job = 7;
  EXPECT_EQ(RunJobAttach(args), kCouldNot);
}

TEST_F(ExitTest, ListDoesNot) { EXPECT_EQ(RunJobList({}), kFailed); }

}  // namespace
}  // namespace gpulayer::cli
