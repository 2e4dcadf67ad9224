#include "base/fs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/temp_dir.h"

namespace gpulayer {
namespace {

using testing::TempDir;

TEST(FsTest, AtomicWriteReplaces) {
  TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir / "f", "one").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "f", "two").ok());
  EXPECT_EQ(*ReadFile(dir / "f"), "two");
  EXPECT_EQ(ListDir(dir.path())->size(), 1u);  // no temporary file is left
}

TEST(FsTest, ErrorsNameThePath) {
  EXPECT_EQ(ReadFile("/nowhere/x").status().code(), StatusCode::kNotFound);
  EXPECT_NE(ReadFile("/nowhere/x").status().message().find("/nowhere/x"), std::string::npos);
}

TEST(FsTest, RemoveTreeTakesReadOnlyFoldersAndLeavesLinkTargets) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "keep").ok());
  ASSERT_TRUE(MakeDirs(dir / "tree/a/b").ok());
  ASSERT_EQ(symlink((dir / "keep").c_str(), (dir / "tree/link").c_str()), 0);
  ASSERT_TRUE(WriteFileAtomic(dir / "tree/a/b/f", "x").ok());
  ASSERT_EQ(chmod((dir / "tree/a/b").c_str(), 0), 0);
  EXPECT_TRUE(RemoveTree(dir / "tree").ok());
  EXPECT_FALSE(PathExists(dir / "tree"));
  EXPECT_TRUE(PathExists(dir / "keep"));
  EXPECT_TRUE(RemoveTree(dir / "tree").ok());
}

TEST(FsTest, LockIsExclusive) {
  TempDir dir;
  {
    Result<FileLock> first = FileLock::Acquire(dir / "lock");
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(FileLock::Acquire(dir / "lock").status().code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(FileLock::Acquire(dir / "lock").ok());
}

TEST(FsTest, ALockNamesWhoHoldsIt) {
  TempDir dir;
  std::string holder;
  Result<FileLock> first = FileLock::AcquireWithPid(dir / "lock", &holder);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(FileLock::AcquireWithPid(dir / "lock", &holder).ok());
  EXPECT_EQ(holder, std::to_string(getpid()));
}

TEST(FsTest, PathParts) {
  EXPECT_EQ(DirName("/a/b"), "/a");
  EXPECT_EQ(DirName("/a"), "/");
  EXPECT_EQ(DirName("a"), ".");
  EXPECT_EQ(BaseName("/a/b"), "b");
  EXPECT_EQ(JoinPath("/a/", "b"), "/a/b");
}

}  // namespace
}  // namespace gpulayer
