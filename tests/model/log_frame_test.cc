#include "model/log_frame.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

TEST(LogFrameTest, RoundTripsAndLeavesATornTail) {
  std::string bytes;
  AppendFrame(bytes, LogStream::kOut, 5, std::string("a\0b\x80", 4));
  AppendFrame(bytes, LogStream::kErr, 6, "oops");
  const std::size_t whole = bytes.size();
  AppendFrame(bytes, LogStream::kOut, 7, "cut");
  for (std::size_t size = whole; size < bytes.size(); ++size) {
    const auto frames = ParseFrames(std::string_view(bytes).substr(0, size));
    ASSERT_TRUE(frames.ok());
    ASSERT_EQ(frames->size(), 2u);
    EXPECT_EQ((*frames)[0].data, std::string_view("a\0b\x80", 4));
    EXPECT_EQ((*frames)[1].stream, LogStream::kErr);
    EXPECT_EQ((*frames)[1].wall_us, 6);
  }
}

TEST(LogFrameTest, LongDataIsCutIntoFrames) {
  std::string bytes;
  AppendFrame(bytes, LogStream::kOut, 1, std::string(3 * kMaxFrameData + 1, 'x'));
  EXPECT_EQ(ParseFrames(bytes)->size(), 4u);
}

TEST(LogFrameTest, DamageIsSaid) {
  EXPECT_EQ(ParseFrames(std::string(32, '\xFF')).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace gpulayer
