#include "cli/print.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace gpulayer::cli {
namespace {

std::string Through(bool terminal, const std::vector<std::string>& pieces) {
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  ByteSink sink(fds[1], terminal);
  for (const std::string& piece : pieces) EXPECT_TRUE(sink.Write(piece));
  EXPECT_TRUE(sink.Finish());
  ::close(fds[1]);
  std::string out;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(fds[0], buffer, sizeof buffer)) > 0;) {
    out.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fds[0]);
  return out;
}

TEST(ByteSinkTest, F34AFileGetsTheBytesAsTheyAre) {
  const std::string bytes("hi\n\x80\xff\n\0bye\x1b[1m\n", 15);
  EXPECT_EQ(Through(false, {bytes}), bytes);
}

TEST(ByteSinkTest, F34ATerminalGetsMarksAndAllOtherLinesWhole) {
  EXPECT_EQ(Through(true, {"hi\n\x80\xff\nbye\n"}), "hi\n\xEF\xBF\xBD\xEF\xBF\xBD\nbye\n");
  EXPECT_EQ(Through(true, {"\x1b[1mred\x1b[0m"}), "\x1b[1mred\x1b[0m");
}

TEST(ByteSinkTest, F34ACharacterCutBetweenPiecesIsWhole) {
  const std::string euro = "\xE2\x82\xAC";
  EXPECT_EQ(Through(true, {"a" + euro.substr(0, 1), euro.substr(1, 1), euro.substr(2) + "b"}),
            "a" + euro + "b");
  EXPECT_EQ(Through(true, {"a" + euro.substr(0, 2)}), "a\xEF\xBF\xBD");
  EXPECT_EQ(Through(true, {euro.substr(0, 2), "x"}), "\xEF\xBF\xBD\xEF\xBF\xBDx");
}

TEST(TableTest, ColumnsAreAsWideAsTheyNeedToBe) {
  Table table({"ID", "NAME", "STATE"});
  table.Add({"7", "tr\xC3\xA4in", "queued"});
  table.Add({"1234", "", "running"});
  table.Add({"8", "a\nb", "failed"});
  EXPECT_EQ(table.ToText(),
            "ID    NAME   STATE\n"
            "7     tr\xC3\xA4in  queued\n"
            "1234  -      running\n"
            "8     a\xEF\xBF\xBD"
            "b    failed\n");
}

}  // namespace
}  // namespace gpulayer::cli
