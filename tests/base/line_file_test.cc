#include "base/line_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

namespace gpulayer {
namespace {

LineFile Of(const std::string& text) {
  UniqueFd fd(memfd_create("lines", MFD_CLOEXEC));
  EXPECT_TRUE(WriteAll(fd.get(), text).ok());
  Result<LineFile> file = LineFile::Open(std::move(fd));
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return *std::move(file);
}

TEST(LineFileTest, LinesAsTheyStand) {
  const LineFile file = Of("one\n\n \x80\xFF\r\nlast");
  ASSERT_EQ(file.count(), 4);
  EXPECT_EQ(*file.Line(0), "one");
  EXPECT_EQ(*file.Line(1), "");
  EXPECT_EQ(*file.Line(2), " \x80\xFF\r");
  EXPECT_EQ(*file.Line(3), "last");
  EXPECT_EQ(file.longest(), 4);
  EXPECT_FALSE(file.has_nul());
  EXPECT_EQ(file.Line(4).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(file.Line(-1).status().code(), StatusCode::kOutOfRange);
}

TEST(LineFileTest, NothingIsNoLineAndAnEndIsOne) {
  EXPECT_EQ(Of("").count(), 0);
  EXPECT_EQ(Of("\n").count(), 1);
  EXPECT_EQ(Of("a\n").count(), 1);
  EXPECT_TRUE(Of(std::string("a\0b", 3)).has_nul());
}

TEST(LineFileTest, AnyOfManyLongerThanABlock) {
  std::string text;
  const auto line = [](int i) {
    return std::to_string(i) + std::string(static_cast<std::size_t>(i % 97), 'x');
  };
  for (int i = 0; i < 5000; ++i) text += line(i) + "\n";
  text += std::string(300'000, 'y') + "\nend";
  const LineFile file = Of(text);
  ASSERT_EQ(file.count(), 5002);
  for (const int i : {0, 1, 1023, 1024, 1025, 4095, 4999}) EXPECT_EQ(*file.Line(i), line(i));
  const std::vector<std::int64_t> some = {0, 1, 2, 700, 1023, 1024, 3000, 3001, 5000, 5001};
  const Result<std::vector<std::string>> lines = file.Lines(some, 1'000'000);
  ASSERT_TRUE(lines.ok());
  ASSERT_EQ(lines->size(), some.size());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ((*lines)[i], line(static_cast<int>(some[i])));
  EXPECT_EQ((*lines)[9], "end");
  EXPECT_EQ(file.Lines(some, 1000)->size(), 8u) << "as far as there is room";
  EXPECT_EQ(file.Line(5000)->size(), 300'000u);
  EXPECT_EQ(*file.Line(5001), "end");
}

// Reads of this thread so far; -1: this system does not tell.
std::int64_t ReadCalls() {
  std::ifstream io("/proc/thread-self/io");
  std::string name;
  std::int64_t value = 0;
  while (io >> name >> value) {
    if (name == "syscr:") return value;
  }
  return -1;
}

TEST(LineFileTest, ShortLinesAreReadManyAtATime) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += std::to_string(100'000 + i) + "\n";
  const LineFile file = Of(text);
  std::vector<std::int64_t> all(10'000);
  std::iota(all.begin(), all.end(), 0);
  const std::int64_t before = ReadCalls();
  const Result<std::vector<std::string>> lines = file.Lines(all, 1'000'000);
  const std::int64_t after = ReadCalls();
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ(lines->back(), "109999");
  if (before < 0) GTEST_SKIP() << "no /proc/thread-self/io";
  EXPECT_LT(after - before, 50);
}

}  // namespace
}  // namespace gpulayer
