#include "tree/unpack.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "support/temp_dir.h"
#include "tree/files.h"

namespace gpulayer::tree {
namespace {

using testing::Folder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Link;
using testing::MemoryBlobs;
using testing::ModeOf;
using testing::TempDir;

class UnpackTest : public ::testing::Test {
 protected:
  UnpackTest() {
    EXPECT_TRUE(MakeDirs(to_, 0755).ok());
    EXPECT_TRUE(MakeDirs(dir_ / "blobs", 0755).ok());
  }
  static Tree Sorted(std::vector<TreeEntry> entries) {
    std::sort(entries.begin(), entries.end(),
              [](const TreeEntry& a, const TreeEntry& b) { return a.path < b.path; });
    Tree tree;
    tree.entries = std::move(entries);
    return tree;
  }
  Status Write(std::vector<TreeEntry> entries, const UnpackOptions& options = {}) {
    return Unpack(Sorted(std::move(entries)), to_, blobs_.Opener(), options);
  }

  TempDir dir_;
  const std::string to_ = dir_ / "to";
  MemoryBlobs blobs_{dir_ / "blobs"};
};

TEST_F(UnpackTest, WritesFilesLinksFoldersAndModes) {
  const std::string big(3 << 20, 'b');
  const mode_t old = umask(077);
  const Status status = Write({blobs_.File("a/run.sh", "#!", 0751), blobs_.File("a-b", "1"),
                               blobs_.File("a/b/c", "2"), blobs_.File("big", big),
                               blobs_.File("none", ""), Link("a/link", "../a-b"), Folder("empty"),
                               Folder("ro", 0555), blobs_.File("ro/x", "3", 0400)});
  umask(old);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(*ReadFile(to_ + "/a/run.sh"), "#!");
  EXPECT_EQ(*ReadFile(to_ + "/a/b/c"), "2");
  EXPECT_EQ(*ReadFile(to_ + "/a/link"), "1");
  EXPECT_EQ(*ReadFile(to_ + "/big"), big);
  EXPECT_EQ(*ReadFile(to_ + "/ro/x"), "3");
  EXPECT_EQ(ModeOf(to_ + "/a/run.sh"), 0751U);
  EXPECT_EQ(ModeOf(to_ + "/a"), 0755U);
  EXPECT_EQ(ModeOf(to_ + "/empty"), 0755U);
  EXPECT_EQ(ModeOf(to_ + "/ro"), 0555U);
  EXPECT_EQ(ModeOf(to_ + "/ro/x"), 0400U);
}

// What came from the network lies in an unnamed file; copying it once more would double the writing.
TEST_F(UnpackTest, AnUnnamedFileBecomesTheEntryItself) {
  const std::string data(1 << 20, 'u');
  const UniqueFd unnamed(open(to_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!unnamed.valid()) GTEST_SKIP() << "open with O_TMPFILE: " << strerror(errno);
  ASSERT_TRUE(WriteAll(unnamed.get(), data).ok());
  struct stat given = {};
  ASSERT_EQ(fstat(unnamed.get(), &given), 0);
  const BlobOpener opener = [&](const Hash&) -> Result<UniqueFd> {
    return UniqueFd(fcntl(unnamed.get(), F_DUPFD_CLOEXEC, 0));
  };
  const TreeEntry first = blobs_.File("first", data, 0640), second = blobs_.File("second", data);
  for (const bool replace : {false, true}) {
    UnpackOptions options;
    options.replace = replace;
    const Status status = Unpack(Sorted({first, second}), to_, opener, options);
    ASSERT_TRUE(status.ok()) << status.ToString();
    struct stat one = {}, two = {};
    ASSERT_EQ(stat((to_ + "/first").c_str(), &one), 0);
    ASSERT_EQ(stat((to_ + "/second").c_str(), &two), 0);
    EXPECT_EQ(*ReadFile(to_ + "/first"), data);
    EXPECT_EQ(*ReadFile(to_ + "/second"), data);
    if (!replace) EXPECT_EQ(one.st_ino, given.st_ino);
    EXPECT_NE(two.st_ino, given.st_ino) << "two entries must not share one file";
    EXPECT_EQ(one.st_nlink, 1U);
    EXPECT_EQ(ModeOf(to_ + "/first"), 0640U);
  }
}

TEST_F(UnpackTest, RefusesCraftedTreesAndWritesNothing) {
  const TreeEntry good = blobs_.File("ok", "1");
  const auto file = [this](const std::string& path) { return blobs_.File(path, "evil"); };
  TreeEntry unknown = file("u"), setuid = file("s"), bare = file("b"), negative = file("n");
  unknown.type = static_cast<EntryType>(9);
  setuid.mode = 04755;
  bare.hash = Hash();
  negative.size = -1;
  const std::vector<std::vector<TreeEntry>> kTrees = {
      {file("../../x")},
      {file("a/../../x")},
      {file("..")},
      {file("/etc/x")},
      {file("a//b")},
      {file("a/")},
      {file("./a")},
      {file("")},
      {file(std::string("a\0b", 3))},
      {file(std::string(256, 'n'))},
      {file("twice"), file("twice")},
      {Link("l", dir_.path())},
      {Link("l", "..")},
      {Link("a/l", "../..")},
      {Link("l", "here"), file("l/x")},  // a write through a link
      {Link("l", "."), Link("l/m", "x")},
      {file("f"), file("f/x")},
      {file("f"), file("f-"), file("f/x/y")},
      {Link("d/up", ".."), Link("sly", "d/up/../x")},  // each looks fine alone
      {Link("d/up", ".."), Link("e", "d/up"), Link("sly", "e/../x")},
      {Link("l", "")},
      {unknown},
      {setuid},
      {bare},
      {negative},
  };
  for (const std::vector<TreeEntry>& entries : kTrees) {
    std::vector<TreeEntry> all = entries;
    all.push_back(good);
    const Status status = Write(all);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << entries[0].path;
    EXPECT_THAT(status.message(), HasSubstr("tree entry \"")) << entries[0].path;
    EXPECT_THAT(*ListDir(to_), IsEmpty());
    EXPECT_EQ(ListDir(dir_.path())->size(), 2U);  // blobs and to
  }
  Tree unsorted;
  unsorted.entries = {file("b"), file("a")};
  EXPECT_EQ(CheckTree(unsorted).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Write({good, Link("l", "l"), Link("m/n", "../l/x"), Link("o", "ok/y")}).ok());
}

TEST_F(UnpackTest, NamesTheEntryInErrors) {
  EXPECT_THAT(Write({blobs_.File("a", "1"), Link("z", "..")}).message(),
              HasSubstr("\"z\": a link that leaves the folder (to ..)"));
  TreeEntry lost = blobs_.File("lost", "x");
  lost.hash = Hash::Of("y");
  EXPECT_THAT(Write({lost}).message(), HasSubstr("write \"lost\""));
  TreeEntry shorter = blobs_.File("shorter", "12345");
  shorter.size = 9;
  EXPECT_EQ(Write({shorter}).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(PathExists(to_ + "/shorter"));
}

TEST_F(UnpackTest, WritesThroughNoLinkThatIsThere) {
  ASSERT_TRUE(MakeDirs(dir_ / "outside", 0755).ok());
  ASSERT_EQ(symlink((dir_ / "outside").c_str(), (to_ + "/sub").c_str()), 0);
  testing::Put(dir_ / "victim", "mine");
  ASSERT_EQ(symlink((dir_ / "victim").c_str(), (to_ + "/file").c_str()), 0);
  UnpackOptions replace;
  replace.replace = true;
  EXPECT_THAT(Write({blobs_.File("sub/x", "1")}, replace).message(), HasSubstr("through a link"));
  EXPECT_THAT(*ListDir(dir_ / "outside"), IsEmpty());
  // A link in a file's place is replaced, not followed.
  ASSERT_TRUE(Write({blobs_.File("file", "new")}, replace).ok());
  EXPECT_EQ(*ReadFile(dir_ / "victim"), "mine");
  EXPECT_EQ(*ReadFile(to_ + "/file"), "new");
}

TEST_F(UnpackTest, ReplacesOnlyWhenAsked) {
  testing::Put(to_ + "/a", "old");
  EXPECT_EQ(Write({blobs_.File("a", "new")}).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*ReadFile(to_ + "/a"), "old");
  UnpackOptions replace;
  replace.replace = true;
  replace.skip = {"kept"};
  testing::Put(to_ + "/kept", "old");
  for (int twice = 0; twice < 2; ++twice) {
    ASSERT_TRUE(Write({blobs_.File("a", "new"), blobs_.File("kept", "new"), Folder("ro", 0555),
                       blobs_.File("ro/x", "1", 0444), Link("l", "a")},
                      replace)
                    .ok());
  }
  EXPECT_EQ(*ReadFile(to_ + "/a"), "new");
  EXPECT_EQ(*ReadFile(to_ + "/kept"), "old");
  testing::Put(to_ + "/folder/x");
  EXPECT_THAT(Write({blobs_.File("folder", "1")}, replace).message(),
              HasSubstr("a folder of that"));
  EXPECT_THAT(*ListDir(to_), ::testing::ElementsAre("a", "folder", "kept", "l", "ro"));
}

TEST_F(UnpackTest, WhatAnEarlierOneShutIsOpenedAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  constexpr uid_t kNobody = 65534;
  UnpackOptions replace;
  replace.replace = true;
  const TreeEntry file = blobs_.File("shut/x", "1", 0);
  ASSERT_EQ(chown(to_.c_str(), kNobody, kNobody), 0);
  chmod(dir_.path().c_str(), 0755);
  ASSERT_EQ(seteuid(kNobody), 0);
  for (const std::uint32_t mode : {0U, 0300U, 0400U}) {
    for (int twice = 0; twice < 2; ++twice) {
      const Status written = Write({Folder("shut", mode), file}, replace);
      EXPECT_TRUE(written.ok()) << std::oct << mode << ": " << written.ToString();
    }
  }
  ASSERT_EQ(seteuid(0), 0);
}

TEST_F(UnpackTest, GivesFilesTheTimeAsked) {
  UnpackOptions options;
  options.mtime_ns = 1'600'000'000'123'456'789;
  ASSERT_TRUE(Write({blobs_.File("a", "1")}, options).ok());
  struct stat info = {};
  ASSERT_EQ(stat((to_ + "/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mtim.tv_sec, 1'600'000'000);
}

// A chain that doubles must not cost the checker minutes.
TEST(CheckTreeTest, CraftedLinksAreQuick) {
  Tree tree;
  for (int i = 0; i < 30; ++i) {
    char name[8];
    snprintf(name, sizeof(name), "l%02d", i);
    char next[8];
    snprintf(next, sizeof(next), "l%02d", i + 1);
    std::string target;
    for (int k = 0; k < 900; ++k) target += std::string(next) + "/";
    tree.entries.push_back(Link(name, target + "x"));
  }
  EXPECT_EQ(CheckTree(tree).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpulayer::tree
