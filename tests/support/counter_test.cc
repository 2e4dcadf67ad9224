#include "support/counter.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/temp_dir.h"

namespace gpulayer::testing {
namespace {

TEST(CounterTest, CountsRunsOfItsCommandAndOfAppend) {
  const TempDir dir;
  const Counter counter(dir / "runs");
  EXPECT_EQ(counter.runs(), 0U);
  const std::string run =
      "GPULAYER_JOB_ID=4; GPULAYER_TASK=2; GPULAYER_ATTEMPT=1; " + counter.command();
  ASSERT_EQ(std::system(run.c_str()), 0);  // NOLINT(cert-env33-c): a test's own text
  EXPECT_EQ(counter.lines(), std::vector<std::string>{"4 2 1"});
  ASSERT_TRUE(counter.Append("again").ok());
  EXPECT_EQ(counter.runs(), 2U);
}

}  // namespace
}  // namespace gpulayer::testing
