#include "base/behind.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

namespace gpulayer {
namespace {

TEST(BehindTest, UsesAllInOrder) {
  std::vector<int> used;
  Behind<int> behind([&used](int& item) {
    used.push_back(item);
    return true;
  });
  std::vector<int> expected;
  for (int i = 0; i < 1000; ++i) {
    int item = i;
    ASSERT_TRUE(behind.Put(item));
    expected.push_back(i);
  }
  EXPECT_TRUE(behind.Flush());
  EXPECT_EQ(used, expected);
}

TEST(BehindTest, GivesUsedMemoryBack) {
  const std::string text(1000, 'x');
  std::vector<const char*> seen;
  Behind<std::string> behind([&seen](std::string& item) {
    seen.push_back(item.data());
    return true;
  });
  std::string item = text;
  const char* const first = item.data();
  ASSERT_TRUE(behind.Put(item));
  ASSERT_TRUE(behind.Flush());
  item = text;
  ASSERT_TRUE(behind.Put(item));  // leaves the first
  EXPECT_EQ(item.data(), first);
}

TEST(BehindTest, StopsWhenTheUserWantsNoMore) {
  std::atomic<int> used = 0;
  Behind<int> behind([&used](int& item) {
    ++used;
    return item < 3;
  });
  int put = 0;
  for (int item = put; behind.Put(item); item = put) ++put;
  EXPECT_FALSE(behind.Flush());
  EXPECT_EQ(used, 4);
  EXPECT_LE(put, 7);  // no more than it keeps
}

TEST(BehindTest, EndsWithItemsLeft) {
  for (int i = 0; i < 100; ++i) {
    Behind<int> behind([](int&) { return true; });
    int item = i;
    behind.Put(item);
    behind.Put(item);
  }
}

}  // namespace
}  // namespace gpulayer
