#include "server/blob/log_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/fs.h"
#include "support/temp_dir.h"

namespace gpulayer {
namespace {

using ::testing::HasSubstr;

AttemptRef Attempt(std::int64_t job, std::int64_t task = 0, std::int32_t number = 1) {
  return {{JobId(job), TaskIndex(task)}, AttemptNo(number)};
}

class LogStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<LogStore> Open() { return *LogStore::Open(dir_ / "logs", true); }
  testing::TempDir dir_;
};

TEST_F(LogStoreTest, BytesComeBackByOffset) {
  const auto logs = Open();
  EXPECT_EQ(*logs->Append(Attempt(1), 0, "hello "), 6);
  EXPECT_EQ(*logs->Append(Attempt(1), 6, "world"), 11);
  EXPECT_EQ(*logs->Append(Attempt(1, 0, 2), 0, "another attempt"), 15);
  EXPECT_EQ(*logs->Read(Attempt(1), 0, 100), "hello world");
  EXPECT_EQ(*logs->Read(Attempt(1), 6, 3), "wor");
  EXPECT_EQ(*logs->Read(Attempt(1), 11, 3), "");
  EXPECT_EQ(*logs->Read(Attempt(1), 99, 3), "");
  EXPECT_EQ(*logs->Read(Attempt(7), 0, 3), "");
  EXPECT_EQ(logs->Size(Attempt(1)), 11);
  EXPECT_EQ(logs->Size(Attempt(7)), 0);
  EXPECT_EQ(logs->Read(Attempt(1), -1, 3).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(LogStoreTest, ARepeatIsHarmlessAndAGapIsRefused) {
  const auto logs = Open();
  ASSERT_TRUE(logs->Append(Attempt(1), 0, "abcdef").ok());
  EXPECT_EQ(*logs->Append(Attempt(1), 0, "abcdef"), 6);
  EXPECT_EQ(*logs->Append(Attempt(1), 2, "cd"), 6);
  EXPECT_EQ(*logs->Append(Attempt(1), 4, "efgh"), 8);
  EXPECT_EQ(*logs->Read(Attempt(1), 0, 100), "abcdefgh");
  const Status gap = logs->Append(Attempt(1), 9, "x").status();
  EXPECT_EQ(gap.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(gap.message(), HasSubstr("Send from 8"));
  EXPECT_EQ(logs->Append(Attempt(1), -1, "x").status().code(), StatusCode::kInvalidArgument);
}

TEST_F(LogStoreTest, AnotherStoreGoesOnWhereTheFirstEnded) {
  ASSERT_TRUE(Open()->Append(Attempt(3, 5), 0, "first").ok());
  const auto logs = Open();
  EXPECT_EQ(*logs->Append(Attempt(3, 5), 5, " second"), 12);
  EXPECT_EQ(*logs->Read(Attempt(3, 5), 0, 100), "first second");
}

TEST_F(LogStoreTest, SealWantsEveryByte) {
  const auto logs = Open();
  EXPECT_TRUE(logs->Seal(Attempt(1), 0).ok());
  EXPECT_EQ(logs->Seal(Attempt(1), 3).code(), StatusCode::kDataLoss);
  ASSERT_TRUE(logs->Append(Attempt(1), 0, "abc").ok());
  EXPECT_TRUE(logs->Seal(Attempt(1), 3).ok());
  EXPECT_TRUE(logs->Seal(Attempt(1), 3).ok());
  const Status lost = logs->Seal(Attempt(1), 4);
  EXPECT_EQ(lost.code(), StatusCode::kDataLoss);
  EXPECT_THAT(lost.message(), HasSubstr("1.0#1"));
  EXPECT_EQ(*logs->Append(Attempt(1), 0, "abc"), 3) << "a repeat after the end is harmless, too";
}

TEST_F(LogStoreTest, AFileThatAnotherProgramChangedIsMended) {
  const auto logs = Open();
  const std::string path = dir_ / "logs/v1/1/0.1.log";
  EXPECT_EQ(*logs->Append(Attempt(1), 0, "hello "), 6);
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  EXPECT_EQ(logs->Size(Attempt(1)), 6);
  EXPECT_EQ(*logs->Append(Attempt(1), 6, "world"), 11);
  EXPECT_EQ(*logs->Read(Attempt(1), 0, 100), "hello world");
  ASSERT_EQ(truncate(path.c_str(), 3), 0);
  EXPECT_EQ(logs->Size(Attempt(1)), 3);
  EXPECT_EQ(logs->Append(Attempt(1), 11, "!").status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(*logs->Append(Attempt(1), 3, "lo world!"), 12);
  EXPECT_EQ(*logs->Read(Attempt(1), 0, 100), "hello world!");
  ASSERT_TRUE(RemoveTree(dir_ / "logs/v1/1").ok());
  EXPECT_EQ(logs->Size(Attempt(1)), 0);
  EXPECT_EQ(logs->Append(Attempt(1), 12, "!").status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(*logs->Append(Attempt(1), 0, "hello world!"), 12);
  EXPECT_TRUE(logs->Seal(Attempt(1), 12).ok());
  EXPECT_EQ(*logs->Read(Attempt(1), 0, 100), "hello world!");
}

TEST_F(LogStoreTest, MoreLogsThanDescriptorsAreKept) {
  const auto logs = Open();
  for (int round = 0; round < 3; ++round) {
    for (int job = 1; job <= 200; ++job) {
      ASSERT_EQ(*logs->Append(Attempt(job), round * 4, "line"), round * 4 + 4);
    }
  }
  EXPECT_LE(ListDir("/proc/self/fd")->size(), 64U + 20U);
  for (int job = 1; job <= 200; ++job) EXPECT_EQ(logs->Size(Attempt(job)), 12);
}

TEST_F(LogStoreTest, ThreadsOnTheSameAndOnOtherLogs) {
  const auto logs = Open();
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done.load()) {
      for (int job = 1; job <= 100; ++job) {
        const std::string data = *logs->Read(Attempt(job), 0, 1 << 20);
        ASSERT_EQ(data, std::string(data.size(), 'x'));
      }
    }
  });
  std::vector<std::thread> writers;
  for (int t = 0; t < 3; ++t) {
    writers.emplace_back([&] {
      // Every writer sends every byte of every log: what the others stored is skipped.
      for (int piece = 0; piece < 20; ++piece) {
        for (int job = 1; job <= 100; ++job) {
          ASSERT_TRUE(logs->Append(Attempt(job), piece * 10, "xxxxxxxxxx").ok());
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  done.store(true);
  reader.join();
  for (int job = 1; job <= 100; ++job) EXPECT_EQ(logs->Size(Attempt(job)), 200);
}

}  // namespace
}  // namespace gpulayer
