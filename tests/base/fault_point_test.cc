#include "base/fault_point.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

TEST(FaultPointTest, FailsOnlyWhereArmed) {
  ArmFaultPointsForTest("a=fail;b=fail:2");
  EXPECT_TRUE(FaultPointFails("a"));
  EXPECT_TRUE(FaultPointFails("a"));
  EXPECT_FALSE(FaultPointFails("b"));
  EXPECT_TRUE(FaultPointFails("b"));
  EXPECT_FALSE(FaultPointFails("b"));
  EXPECT_FALSE(FaultPointFails("c"));
  ArmFaultPointsForTest("");
  EXPECT_FALSE(FaultPointFails("a"));
}

TEST(FaultPointDeathTest, LeavesWithItsOwnCode) {
  EXPECT_EXIT(
      {
        ArmFaultPointsForTest("x=exit");
        FaultPoint("x");
      },
      ::testing::ExitedWithCode(kFaultExitCode), "");
  EXPECT_DEATH(ArmFaultPointsForTest("x=explode"), "kill\\|exit\\|stop\\|fail");
}

}  // namespace
}  // namespace gpulayer
