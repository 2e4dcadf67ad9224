#include "server/watches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace gpulayer {
namespace {

TEST(WatchesTest, EachWatchOfTheJobIsCalled) {
  Watches watches;
  int first = 0;
  int second = 0;
  int other = 0;
  const std::int64_t id = watches.Add(JobId(1), [&](JobId, bool) { ++first; });
  watches.Add(JobId(1), [&](JobId, bool) { ++second; });
  watches.Add(JobId(2), [&](JobId, bool) { ++other; });
  watches.Fire(JobId(1), false);
  watches.Remove(id);
  watches.Remove(id);
  watches.Fire(JobId(1), false);
  watches.Fire(JobId(3), false);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
  EXPECT_EQ(other, 0);
}

TEST(WatchesTest, ACallbackMayRemoveItselfAndOthers) {
  Watches watches;
  int calls = 0;
  std::int64_t one = 0;
  std::int64_t two = 0;
  const auto both = [&](JobId, bool) {
    ++calls;
    watches.Remove(one);
    watches.Remove(two);
  };
  one = watches.Add(JobId(1), both);
  two = watches.Add(JobId(1), both);
  watches.Fire(JobId(1), false);
  watches.Fire(JobId(1), false);
  EXPECT_EQ(calls, 1);
}

TEST(WatchesTest, RemoveWaitsForTheCallUnderWay) {
  Watches watches;
  std::promise<void> entered;
  std::promise<void> leave;
  std::atomic<bool> left{false};
  const std::int64_t id = watches.Add(JobId(1), [&](JobId, bool) {
    entered.set_value();
    leave.get_future().wait();
    left.store(true);
  });
  std::thread firing([&] { watches.Fire(JobId(1), false); });
  entered.get_future().wait();
  std::thread letting([&] { leave.set_value(); });
  watches.Remove(id);
  EXPECT_TRUE(left.load());
  letting.join();
  firing.join();
}

TEST(WatchesTest, NoCallAfterRemoveReturned) {
  Watches watches;
  std::atomic<bool> stop{false};
  std::thread firing([&] {
    while (!stop.load()) watches.Fire(JobId(1), false);
  });
  for (int i = 0; i < 500; ++i) {
    auto alive = std::make_unique<std::atomic<int>>(0);
    const std::int64_t id = watches.Add(JobId(1), [raw = alive.get()](JobId, bool) { ++*raw; });
    watches.Remove(id);
    alive.reset();  // a later call would touch freed memory
  }
  stop.store(true);
  firing.join();
}

}  // namespace
}  // namespace gpulayer
