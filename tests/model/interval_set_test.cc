#include "model/interval_set.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

namespace gpulayer {
namespace {

TEST(IntervalSetTest, TextForm) {
  IntervalSet set = IntervalSet::Range(0, 100);
  set.Remove(3);
  EXPECT_EQ(set.ToText(), "0-2,4-99");
  EXPECT_EQ(*IntervalSet::FromText("0-2,4-99"), set);
  EXPECT_TRUE(IntervalSet::FromText("")->empty());
  for (const char* bad : {"a", "1-", "5-3", "1,1", "3,2", ","}) {
    EXPECT_FALSE(IntervalSet::FromText(bad).ok()) << bad;
  }
}

TEST(IntervalSetTest, BehavesAsASet) {
  const bool ok = rc::check([](const std::vector<std::pair<bool, unsigned char>>& steps) {
    IntervalSet runs;
    std::set<std::int64_t> plain;
    for (const auto& [add, raw] : steps) {
      const std::int64_t n = raw % 32;
      if (add) {
        runs.Add(n);
        plain.insert(n);
      } else {
        runs.Remove(n);
        plain.erase(n);
      }
    }
    RC_ASSERT(runs.size() == static_cast<std::int64_t>(plain.size()));
    for (std::int64_t n = 0; n < 32; ++n) RC_ASSERT(runs.Contains(n) == plain.contains(n));
    if (!plain.empty()) RC_ASSERT(runs.First() == *plain.begin());
    std::int64_t previous_end = -1;
    for (const auto& [begin, end] : runs.runs()) {  // runs never touch
      RC_ASSERT(begin > previous_end);
      RC_ASSERT(begin < end);
      previous_end = end;
    }
    RC_ASSERT(*IntervalSet::FromText(runs.ToText()) == runs);
  });
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace gpulayer
