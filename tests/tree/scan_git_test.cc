// The source set against the real git.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/temp_dir.h"
#include "tree/git_tree.h"
#include "tree/scan.h"

namespace gpulayer::tree {
namespace {

using testing::GitList;
using ::testing::IsEmpty;
using testing::MakeRandomTree;
using testing::TempDir;

// The user's git settings come from HOME.
class Home {
 public:
  explicit Home(const std::string& home) {
    setenv("HOME", home.c_str(), 1);
    unsetenv("XDG_CONFIG_HOME");
  }
};

std::set<std::string> Shipped(const Listing& listing) {
  std::set<std::string> out;
  for (const ListedEntry& entry : listing.entries) {
    if (entry.type != EntryType::kFolder) out.insert(entry.path);
  }
  for (const Warning& warning : listing.warnings) {
    if (warning.path != ".") out.insert(warning.path);  // links that leave: git lists them
  }
  return out;
}

std::string Difference(const std::set<std::string>& ours, const std::set<std::string>& gits) {
  std::vector<std::string> more, less;
  std::set_difference(ours.begin(), ours.end(), gits.begin(), gits.end(), std::back_inserter(more));
  std::set_difference(gits.begin(), gits.end(), ours.begin(), ours.end(), std::back_inserter(less));
  std::string text;
  for (const std::string& path : more) text += " +" + Printable(path);
  for (const std::string& path : less) text += " -" + Printable(path);
  return text;
}

// GPULAYER_GIT_TREES=5000 tries more of them.
int TreesToTry() {
  const char* text = getenv("GPULAYER_GIT_TREES");
  return text != nullptr ? std::atoi(text) : 200;
}

// Ten parts, so that they run beside each other.
class GitTreesTest : public ::testing::TestWithParam<int> {};

TEST_P(GitTreesTest, ShipsWhatGitLists) {
  if (!testing::HaveGit()) GTEST_SKIP() << "git is not installed";
  std::size_t listed = 0, on_disk = 0;
  for (int seed = GetParam(); seed < TreesToTry(); seed += 10) {
    TempDir dir;
    const std::string root = dir / "repo", home = dir / "home";
    ASSERT_TRUE(MakeDirs(root, 0755).ok());
    ASSERT_TRUE(MakeDirs(home, 0755).ok());
    const Home set(home);
    for (const std::string& sub : MakeRandomTree(static_cast<std::uint64_t>(seed), root, home)) {
      const std::string at = sub.empty() ? root : root + "/" + sub;
      if (PathExists(at + "/pyvenv.cfg")) continue;  // named by the user: it ships
      Result<Listing> listing = Scan(at);
      ASSERT_TRUE(listing.ok()) << listing.status().ToString();
      const std::set<std::string> gits = GitList(at, home);
      listed += gits.size();
      on_disk += testing::FilesOnDisk(at);
      EXPECT_THAT(Difference(Shipped(*listing), gits), IsEmpty())
          << "seed " << seed << " folder \"" << Printable(sub) << "\"";
    }
  }
  // The trees are worth comparing: rules take out a good part and leave a good part.
  EXPECT_GT(listed, on_disk / 5) << on_disk;
  EXPECT_LT(listed, on_disk * 4 / 5) << on_disk;
}
INSTANTIATE_TEST_SUITE_P(Parts, GitTreesTest, ::testing::Range(0, 10));

// The same trees without their .git: rules of the folder and of the user hold all the same.
TEST(OutsideRepositoryTest, SameRulesWithoutARepository) {
  if (!testing::HaveGit()) GTEST_SKIP() << "git is not installed";
  for (int seed = 1000; seed < 1000 + TreesToTry() / 10; ++seed) {
    TempDir dir;
    const std::string root = dir / "repo", home = dir / "home";
    ASSERT_TRUE(MakeDirs(root, 0755).ok());
    ASSERT_TRUE(MakeDirs(home, 0755).ok());
    const Home set(home);
    MakeRandomTree(static_cast<std::uint64_t>(seed), root, home);
    ASSERT_TRUE(RemoveTree(root + "/.git").ok());
    Result<Listing> listing = Scan(root);
    ASSERT_TRUE(listing.ok()) << listing.status().ToString();
    // What git would list in a repository without any commit.
    testing::RunIn(root, home, {"git", "init", "-q"});
    testing::Put(root + "/.git/info/exclude", "");
    EXPECT_THAT(Difference(Shipped(*listing), GitList(root, home)), IsEmpty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gpulayer::tree
