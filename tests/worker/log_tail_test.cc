#include "worker/logs/log_tail.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "model/limits.h"
#include "model/log_frame.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace gpulayer::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LogTailTest : public ::testing::Test {
 protected:
  void Append(const std::string& bytes) {
    const UniqueFd fd = *OpenFile(dir_ / "log", O_WRONLY | O_CREAT | O_APPEND);
    ASSERT_TRUE(WriteAll(fd.get(), bytes).ok());
  }
  std::string Frame(const std::string& data) {
    std::string out;
    AppendFrame(out, LogStream::kOut, 1, data);
    return out;
  }
  void End() { ASSERT_TRUE(WriteFileAtomic(dir_ / "status", "x", 0600, Durability::kNone).ok()); }
  TempDir dir_;
};

TEST_F(LogTailTest, GivesWhatIsThereAndFinalOnlyAfterTheStatus) {
  LogTail tail(dir_.path());
  LogPiece piece = *tail.Read();
  EXPECT_EQ(piece.data, "");
  EXPECT_FALSE(piece.final);
  const std::string one = Frame("one");
  const std::string two = Frame("two");
  Append(one);
  EXPECT_EQ(tail.Read()->data, one);
  EXPECT_EQ(tail.Read()->data, "");
  Append(two.substr(0, 18));
  EXPECT_EQ(tail.Read()->data, "");
  Append(two.substr(18));
  End();
  piece = *tail.Read();
  EXPECT_EQ(piece.offset, static_cast<std::int64_t>(one.size()));
  EXPECT_EQ(piece.data, two);
  EXPECT_TRUE(piece.final);
  piece = *tail.Read();
  EXPECT_EQ(piece.data, "");
  EXPECT_TRUE(piece.final);
}

TEST_F(LogTailTest, PiecesAreBoundedAndJoinToTheWholeLogFromAnyPiecesEnd) {
  std::string all;
  for (int i = 0; i < 20; ++i) {
    AppendFrame(all, LogStream::kOut, i, std::string(60'000 + static_cast<std::size_t>(i), 'x'));
    AppendFrame(all, LogStream::kErr, i, std::string(static_cast<std::size_t>(i % 3 + 1), 'e'));
  }
  Append(all);
  End();
  std::string joined;
  bool final = false;
  while (!final) {
    LogTail tail(dir_.path(), static_cast<std::int64_t>(joined.size()));
    const LogPiece piece = *tail.Read();
    ASSERT_EQ(piece.offset, static_cast<std::int64_t>(joined.size()));
    ASSERT_FALSE(piece.data.empty());
    ASSERT_LE(piece.data.size(), limits::kLogChunkBytes);
    ASSERT_TRUE(ParseFrames(piece.data).ok());
    joined += piece.data;
    final = piece.final;
  }
  EXPECT_EQ(joined, all);
}

TEST_F(LogTailTest, ATornEndOfAnEndedLogIsNotWaitedFor) {
  Append(Frame("whole") + Frame("torn").substr(0, 17));
  End();
  LogTail tail(dir_.path());
  const LogPiece piece = *tail.Read();
  EXPECT_EQ(piece.data, Frame("whole"));
  EXPECT_TRUE(piece.final);
}

TEST_F(LogTailTest, AnEndedAttemptWithoutALogHasAnEmptyOne) {
  End();
  EXPECT_TRUE(LogTail(dir_.path()).Read()->final);
}

TEST_F(LogTailTest, DamageIsSaid) {
  Append(std::string(32, '\xFF'));
  EXPECT_EQ(LogTail(dir_.path()).Read().status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(LogTail(dir_.path(), 1000).Read().status().code(), StatusCode::kDataLoss);
}

class LogWatchTest : public LogTailTest {
 protected:
  void SetUp() override {
    watch_->Add(id_, dir_.path());
    EXPECT_THAT(*watch_->Wait(10s), ElementsAre(id_));
    EXPECT_THAT(*watch_->Wait(0s), IsEmpty());
  }
  const AttemptId id_{"a"};
  std::unique_ptr<LogWatch> watch_ = LogWatch::Create();
};

TEST_F(LogWatchTest, NamesAnAttemptWhenItsLogGrowsOrItEnds) {
  Append(Frame("one"));
  EXPECT_THAT(*watch_->Wait(10s), ElementsAre(id_));
  Append(Frame("two"));
  EXPECT_THAT(*watch_->Wait(10s), ElementsAre(id_));
  EXPECT_THAT(*watch_->Wait(0s), IsEmpty());
  End();
  EXPECT_THAT(*watch_->Wait(10s), ElementsAre(id_));
}

TEST_F(LogWatchTest, OtherFilesAreNoNews) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "key", "x", 0600, Durability::kNone).ok());
  EXPECT_THAT(*watch_->Wait(20ms), IsEmpty());
}

TEST_F(LogWatchTest, WhatIsRemovedIsNotNamed) {
  watch_->Remove(id_);
  watch_->Remove(id_);
  Append(Frame("one"));
  EXPECT_THAT(*watch_->Wait(20ms), IsEmpty());
}

TEST_F(LogWatchTest, WithoutAWatchItLooksByItself) {
  const AttemptId other("b");
  watch_->Add(other, dir_ / "missing");  // a folder that inotify cannot watch
  EXPECT_THAT(*watch_->Wait(10s), ElementsAre(other));
  EXPECT_THAT(*watch_->Wait(10s), ElementsAre(other));
}

TEST_F(LogWatchTest, AWaiterIsWokenByOtherThreads) {
  TempDir second;
  const AttemptId other("b");
  std::thread adder([&] { watch_->Add(other, second.path()); });
  EXPECT_THAT(*watch_->Wait(10s), ElementsAre(other));
  adder.join();
  std::thread closer([&] { watch_->Close(); });
  EXPECT_EQ(watch_->Wait(10s).status().code(), StatusCode::kCancelled);
  closer.join();
}

}  // namespace
}  // namespace gpulayer::testing
