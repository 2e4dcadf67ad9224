#include "base/queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpulayer {
namespace {

using namespace std::chrono_literals;

TEST(QueueTest, BoundedByCostButOneAlwaysFits) {
  BoundedQueue<int> queue(10);
  EXPECT_TRUE(queue.TryPush(1, 100).ok());
  EXPECT_EQ(queue.TryPush(2, 1).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(queue.TakeUpTo(5, 0s), std::vector<int>{1});
  EXPECT_TRUE(queue.TryPush(2, 1).ok());
}

TEST(QueueTest, WhatCostsNothingIsNeverRefused) {
  BoundedQueue<int> queue(10);
  EXPECT_TRUE(queue.TryPush(1, 100).ok());
  EXPECT_TRUE(queue.TryPush(2, 0).ok());
  EXPECT_EQ(queue.TakeUpTo(5, 0s), (std::vector<int>{1, 2}));
}

TEST(QueueTest, CloseWakesAndDrains) {
  BoundedQueue<int> queue(10);
  ASSERT_TRUE(queue.TryPush(7).ok());
  queue.Close();
  EXPECT_EQ(queue.TryPush(8).code(), StatusCode::kCancelled);
  EXPECT_EQ(queue.TakeUpTo(5, 1h), std::vector<int>{7});
  EXPECT_TRUE(queue.TakeUpTo(5, 1h).empty());
}

TEST(QueueTest, HandsOverBetweenThreads) {
  BoundedQueue<int> queue(1000);
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(queue.TryPush(i).ok());
  });
  int next = 0;
  while (next < 100) {
    for (const int i : queue.TakeUpTo(16, 10s)) EXPECT_EQ(i, next++);
  }
  producer.join();
}

}  // namespace
}  // namespace gpulayer
