#include "base/fs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/mount.h>
#endif

#include <cerrno>
#include <cstring>

#include "base/own_file.h"
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

TEST(ReadOwnFileTest, WhateverHasItsPlaceItNeitherWaitsNorReadsForEver) {
  TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir / "file", "text").ok());
  ASSERT_EQ(symlink("file", (dir / "link").c_str()), 0);
  EXPECT_EQ(*ReadOwnFile(dir / "link"), "text");
  EXPECT_EQ(ReadOwnFile(dir / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadOwnFile(dir / "file", 3).status().code(), StatusCode::kResourceExhausted);
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  ASSERT_EQ(mkdir((dir / "folder").c_str(), 0700), 0);
  ASSERT_EQ(symlink("/dev/zero", (dir / "endless").c_str()), 0);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_LT((dir / "socket").size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, (dir / "socket").c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);
  const struct {
    const char* name;
    const char* kind;
  } rows[] = {
      {"fifo", "a FIFO"}, {"folder", "a folder"}, {"endless", "a device"}, {"socket", "a socket"}};
  for (const auto& row : rows) {
    const Status status = ReadOwnFile(dir / row.name).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << row.name;
    EXPECT_EQ(status.message(),
              dir / row.name + ": " + row.kind + " has the place of a file. Move it away.");
  }
  EXPECT_EQ(FileLock::Acquire(dir / "fifo").status().code(), StatusCode::kDataLoss);
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

TEST(FsTest, RemoveTreeTakesADeepTreeWithFewDescriptors) {
  TempDir dir;
  constexpr int kDeep = 3000;
  ASSERT_TRUE(MakeDirs(dir / "top/beside").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "top/beside/f", "x").ok());
  UniqueFd at = *OpenFile(dir / "top", O_RDONLY | O_DIRECTORY);
  for (int i = 0; i < kDeep; ++i) {
    ASSERT_EQ(mkdirat(at.get(), "d", 0700), 0);
    at = UniqueFd(openat(at.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at.valid());
  }
  UniqueFd(openat(at.get(), "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  at.Reset();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{16, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const Status removed = RemoveTree(dir / "top");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(removed.ok()) << removed.ToString().substr(0, 200);
  EXPECT_FALSE(PathExists(dir / "top"));
}

TEST(FsTest, PrivateFoldersAreMadeOrTightened) {
  TempDir dir;
  const auto mode = [&] {
    struct stat st{};
    EXPECT_EQ(stat((dir / "p").c_str(), &st), 0);
    return st.st_mode & 0777;
  };
  ASSERT_TRUE(MakePrivateDir(dir / "p").ok());
  EXPECT_EQ(mode(), 0700U);
  ASSERT_EQ(chmod((dir / "p").c_str(), 0755), 0);
  ASSERT_TRUE(MakePrivateDir(dir / "p").ok());
  EXPECT_EQ(mode(), 0700U);
  ASSERT_EQ(symlink((dir / "p").c_str(), (dir / "moved").c_str()), 0);
  EXPECT_TRUE(MakePrivateDir(dir / "moved").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "f", "x").ok());
  EXPECT_FALSE(MakePrivateDir(dir / "f").ok());
  if (geteuid() != 0) return;
  ASSERT_EQ(chown((dir / "p").c_str(), 65534, 65534), 0);
  EXPECT_EQ(MakePrivateDir(dir / "p").code(), StatusCode::kPermissionDenied);
}

TEST(FsTest, ADataDirectoryIsClosedToOtherWriters) {
  TempDir dir;
  const std::string data = dir / "d";
  const auto mode_after = [&](mode_t before) {
    EXPECT_EQ(chmod(data.c_str(), before), 0);
    EXPECT_TRUE(CloseToWriters(data).ok());
    struct stat st{};
    EXPECT_EQ(stat(data.c_str(), &st), 0);
    return st.st_mode & 07777;
  };
  EXPECT_TRUE(CloseToWriters(data).ok());
  EXPECT_FALSE(PathExists(data));
  ASSERT_TRUE(MakeDirs(data).ok());
  EXPECT_EQ(mode_after(0700), 0700U);
  EXPECT_EQ(mode_after(0755), 0755U);  // looking is no harm
  EXPECT_EQ(mode_after(0777), 0755U);
  EXPECT_EQ(mode_after(0770), 0750U);
  EXPECT_EQ(mode_after(01777), 01777U);
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(data.c_str(), 65534, 65534), 0);
  EXPECT_EQ(chmod(data.c_str(), 0757), 0);
  EXPECT_EQ(CloseToWriters(data).code(), StatusCode::kPermissionDenied);
}

TEST(FsTest, RemoveTreeNamesWhatItCannotRemove) {
  const Status status = RemoveTree("/proc/self/fdinfo");
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/proc/self/fdinfo"), std::string::npos);
}

#if defined(__linux__)
TEST(FsTest, RemoveTreeLeavesWhatIsMountedAlone) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "data").ok());
  ASSERT_TRUE(MakeDirs(dir / "tree/a/m").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "data/f", "x").ok());
  if (mount((dir / "data").c_str(), (dir / "tree/a/m").c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "mount: " << std::strerror(errno);
  }
  const Status status = RemoveTree(dir / "tree");
  EXPECT_NE(status.message().find(dir / "tree/a/m"), std::string::npos) << status.ToString();
  EXPECT_FALSE(RemoveTree(dir / "tree/a/m").ok());
  EXPECT_TRUE(PathExists(dir / "data/f"));
  ASSERT_EQ(umount((dir / "tree/a/m").c_str()), 0);
  EXPECT_TRUE(RemoveTree(dir / "tree").ok());
}
#endif

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
