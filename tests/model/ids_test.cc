#include "model/ids.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

TEST(IdsTest, PrintAndParse) {
  const AttemptRef attempt{{JobId(42), TaskIndex(7)}, AttemptNo(2)};
  EXPECT_EQ(ToString(attempt), "42.7#2");
  EXPECT_EQ(ParseTaskRef("42.7")->ref, attempt.task);
  EXPECT_TRUE(ParseTaskRef("42.7")->has_task);
  EXPECT_FALSE(ParseTaskRef("42")->has_task);
  for (const char* bad : {"", "0", "-1", "x", "4.", ".4", "4.x", "99999999999999999999"}) {
    EXPECT_FALSE(ParseTaskRef(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace gpulayer
