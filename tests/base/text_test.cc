#include "base/text.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

using namespace std::chrono_literals;

TEST(TextTest, SizesOfBothFamilies) {
  EXPECT_EQ(*ParseSize("512MiB"), 512ll << 20);
  EXPECT_EQ(*ParseSize("24GB"), 24'000'000'000);
  EXPECT_EQ(*ParseSize("1.5GiB"), 1610612736);
  EXPECT_EQ(*ParseSize("17"), 17);
  for (const char* bad : {"", "GiB", "-1", "1XB", "1 GiB", "1e99TiB", "99999999999TiB"}) {
    EXPECT_FALSE(ParseSize(bad).ok()) << bad;
  }
  EXPECT_EQ(FormatSize(24ll << 30), "24GiB");
  EXPECT_EQ(FormatSize(1610612736), "1.5GiB");
  EXPECT_EQ(FormatSize(17), "17B");
}

TEST(TextTest, Durations) {
  EXPECT_EQ(*ParseDuration("30s"), 30s);
  EXPECT_EQ(*ParseDuration("1h30m"), 90min);
  EXPECT_EQ(*ParseDuration("500ms"), 500ms);
  EXPECT_EQ(*ParseDuration("0"), 0s);
  EXPECT_EQ(*ParseDuration("1d"), 24h);
  for (const char* bad : {"", "s", "-1s", "5x", "1h-", "1h30", "99999999999d"}) {
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  }
  EXPECT_EQ(ParseDuration("5").status().message(), "\"5\" has no unit: write 5s, 5m, 5h or 5d");
  EXPECT_EQ(FormatDuration(90min), "1h30m");
  EXPECT_EQ(FormatDuration(1500ms), "1.5s");
  EXPECT_EQ(FormatDuration(0s), "0s");
}

TEST(TextTest, Utf8IsCheckedByTheStandard) {
  EXPECT_TRUE(IsValidUtf8("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80"));
  for (const char* bad : {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
  EXPECT_EQ(Printable("a\x80\n"), "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(TextTest, Globs) {
  EXPECT_TRUE(GlobMatch("*H200*", "NVIDIA H200 NVL"));
  EXPECT_TRUE(GlobMatch("a?c", "abc"));
  EXPECT_FALSE(GlobMatch("a?c", "ac"));
  EXPECT_TRUE(GlobMatch("*", ""));
}

TEST(TextTest, HexAndBase64) {
  EXPECT_EQ(HexEncode("\x01\xFF"), "01ff");
  EXPECT_EQ(*HexDecode("01FF"), "\x01\xFF");
  EXPECT_FALSE(HexDecode("0").ok());
  EXPECT_EQ(Base64Encode("a"), "YQ==");
  EXPECT_EQ(Base64Encode("abc"), "YWJj");
}

}  // namespace
}  // namespace gpulayer
