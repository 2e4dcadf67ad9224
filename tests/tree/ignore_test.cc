#include "tree/ignore.h"

#include <gtest/gtest.h>

#include <string>

namespace gpulayer::tree {
namespace {

struct Row {
  const char* pattern;
  const char* text;
  bool matches;
};

TEST(WildcardTest, MatchesAsGitDoes) {
  const Row kRows[] = {
      {"*", "a", true},
      {"*", "a/b", false},
      {"a*b", "aXXb", true},
      {"**", "a/b", true},
      {"**/a", "a", true},
      {"**/a", "x/y/a", true},
      {"**/a", "xa", false},
      {"a/**", "a/b/c", true},
      {"a/**", "a", false},
      {"a/**/b", "a/b", true},
      {"a/**/b", "a/x/y/b", true},
      {"a/**/b", "ab", false},
      {"x**y", "x/y", false},
      {"?", "/", false},
      {"[!a]", "/", false},
      {"[a-c]", "b", true},
      {"[]a]", "]", true},
      {"[!]]", "]", false},
      {"[[:digit:]x]", "7", true},
      {"[[:bad:]]", "b", false},
      {"[a", "a", false},
      {"a\\", "a", false},
      {"\\*", "*", true},
      {"\\*", "a", false},
      {"", "", true},
      {"***", "a/b", true},
      {"*/*", "a/b", true},
      {"[a-", "a", false},
      {"[-a]", "-", true},
      {"[\\]]", "]", true},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(Wildcard(row.pattern, Case::kKeep).Matches(row.text), row.matches)
        << row.pattern << " on " << row.text;
  }
}

TEST(WildcardTest, FoldsCase) {
  EXPECT_TRUE(Wildcard("A*[b-c]", Case::kFold).Matches("axC"));
  EXPECT_FALSE(Wildcard("A*", Case::kKeep).Matches("ax"));
}

// Backtracking matchers take for ever here.
TEST(WildcardTest, NoPatternIsSlow) {
  std::string pattern, text(3000, 'a');
  for (int i = 0; i < 500; ++i) pattern += "**/a*a*";
  EXPECT_FALSE(Wildcard(pattern + "b", Case::kKeep).Matches(text));
}

TEST(IgnoreListTest, LastMatchDecides) {
  const IgnoreList list("*.pt\n!keep.pt\n", Case::kKeep);
  EXPECT_EQ(list.Match("a/x.pt", false), Verdict::kIgnored);
  EXPECT_EQ(list.Match("a/keep.pt", false), Verdict::kIncluded);
  EXPECT_EQ(list.Match("a/x.txt", false), Verdict::kNone);
}

TEST(IgnoreListTest, ReachesIntoWhatANegatedPathNames) {
  const IgnoreList list("!data/keep/x\n!*.pt\n!/logs/*/last\nbuild/x\n", Case::kKeep);
  EXPECT_TRUE(list.ReachesInto("data"));
  EXPECT_TRUE(list.ReachesInto("data/keep"));
  EXPECT_FALSE(list.ReachesInto("data/other"));
  EXPECT_FALSE(list.ReachesInto("dat"));
  EXPECT_TRUE(list.ReachesInto("logs/monday"));
  EXPECT_FALSE(list.ReachesInto("build"));
  EXPECT_FALSE(list.ReachesInto("other"));
}

}  // namespace
}  // namespace gpulayer::tree
