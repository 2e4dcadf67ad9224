#include "base/behind.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

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

// Ends the process: 0 if all was as it should be.
void UseWithoutAThread() {
  const rlimit nothing_more{1, 1};
  setrlimit(RLIMIT_AS, &nothing_more);
  int used = 0;
  bool more = true;
  {
    Behind<int> behind([&used](int& item) { return ++used, item < 2; });
    for (int i = 0; more; ++i) {
      int item = i;
      more = behind.Put(item);
      if (used != i + 1) _exit(1);
    }
    if (behind.Flush()) _exit(2);
  }
  _exit(used == 3 ? 0 : 3);
}

// First of all, and in a process of its own: a thread that ended leaves its stack to the next one.
TEST(BehindDeathTest, WithoutAThreadItIsDoneAtOnce) {
  EXPECT_EXIT(UseWithoutAThread(), ::testing::ExitedWithCode(0), "");
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
