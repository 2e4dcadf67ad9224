#include "base/status.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgument("odd");
  return n / 2;
}

Status Quarter(int n, int& out) {
  GPULAYER_ASSIGN_OR_RETURN(const int half, Half(n));
  GPULAYER_ASSIGN_OR_RETURN(out, Half(half));
  return OkStatus();
}

TEST(StatusTest, TravelsThroughTheMacros) {
  int out = 0;
  EXPECT_TRUE(Quarter(8, out).ok());
  EXPECT_EQ(out, 2);
  EXPECT_EQ(Quarter(6, out), InvalidArgument("odd"));
}

TEST(StatusTest, PrefixKeepsTheCode) {
  EXPECT_EQ(NotFound("no such job").Prefixed("job 7").ToString(), "NOT_FOUND: job 7: no such job");
  EXPECT_TRUE(OkStatus().Prefixed("x").ok());
}

TEST(StatusTest, ErrnoBecomesTheFittingCode) {
  EXPECT_EQ(ErrnoStatus("open x", ENOENT).code(), StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus("write", ENOSPC).code(), StatusCode::kResourceExhausted);
}

TEST(ResultDeathTest, ValueOfAFailureAbortsWithTheReason) {
  EXPECT_DEATH((void)Half(3).value(), "odd");
}

}  // namespace
}  // namespace gpulayer
