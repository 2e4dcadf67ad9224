#include "tree/scan.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "support/temp_dir.h"
#include "tree/files.h"
#include "tree/hash_files.h"

namespace gpulayer::tree {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PathsOf;
using testing::Put;
using testing::TempDir;

class ScanTest : public ::testing::Test {
 protected:
  ScanTest() {
    setenv("HOME", (dir_ / "home").c_str(), 1);
    unsetenv("XDG_CONFIG_HOME");
    EXPECT_TRUE(MakeDirs(root_, 0755).ok());
  }
  Listing ScanOk(const ScanOptions& options = {}) {
    Result<Listing> listing = Scan(root_, options);
    EXPECT_TRUE(listing.ok()) << listing.status().ToString();
    return listing.ok() ? *listing : Listing();
  }
  std::string At(const std::string& path) const { return root_ + "/" + path; }

  TempDir dir_;
  const std::string root_ = dir_ / "root";
};

MATCHER_P2(Warns, path, reason, "") {
  return arg.path == path && arg.reason.find(reason) != std::string::npos;
}

TEST_F(ScanTest, LinesThatAreSuggestedLetAFileShip) {
  Put(At(".gitignore"), "*.csv\nbuild/*\ndeep/\n__pycache__/\n");
  Put(At(".gpulayerignore"), "own/\n/single\n");
  Put(At("venv/pyvenv.cfg"));
  const std::vector<std::string> files = {"a.csv",         "build/x",    "deep/er/y",
                                          "own/in/z.csv",  "single",     "we[i]rd *.csv",
                                          "__pycache__/p", "venv/bin/q", "!a.csv"};
  std::string own = "own/\n/single\n";
  for (const std::string& file : files) Put(At(file));
  const Listing before = ScanOk();
  EXPECT_EQ(LinesToShip(before, ".gitignore"), "");
  for (const std::string& file : files) {
    std::string lines = LinesToShip(before, file);
    EXPECT_NE(lines, "") << file;
    for (std::size_t at = 0; (at = lines.find("` and `")) != std::string::npos;)
      lines.replace(at, 7, "\n");
    own += lines.substr(1, lines.size() - 2) + "\n";
  }
  Put(At(".gpulayerignore"), own);
  const Listing after = ScanOk();
  for (const std::string& file : files)
    EXPECT_EQ(LinesToShip(after, file), "") << file << "\n" << own;
}

TEST_F(ScanTest, PrivateFilesAreNamedAndShip) {
  Put(At(".ssh/id_rsa"));
  Put(At(".netrc"));
  Put(At("sub/.aws/x"));
  const Listing listing = ScanOk();
  ASSERT_THAT(listing.warnings, ElementsAre(Warns(".", "private files ship: .netrc, .ssh.")));
  EXPECT_EQ(listing.files, 3);
  Put(At(".gpulayerignore"), ".ssh\n.netrc\n");
  EXPECT_THAT(ScanOk().warnings, IsEmpty());
}

TEST_F(ScanTest, WhatRulesLeaveOutIsNamedIfAsked) {
  Put(At(".gitignore"), "data/\n*.o\n");
  Put(At("data/a"));
  Put(At("b.o"));
  ScanOptions options;
  EXPECT_THAT(ScanOk(options).ignored, IsEmpty());
  options.name_ignored = true;
  EXPECT_THAT(ScanOk(options).ignored, ElementsAre("b.o", "data/"));
}

TEST_F(ScanTest, KeepsEmptyFoldersAndModes) {
  Put(At("a/run.sh"));
  chmod(At("a/run.sh").c_str(), 0751);
  MakeDirs(At("empty/inner"), 0755).ok();
  MakeDirs(At("only-ignored"), 0755).ok();
  Put(At("only-ignored/x.log"));
  Put(At("private/x"));
  chmod(At("private").c_str(), 0700);
  Put(At(".gitignore"), "*.log\n");
  const Listing listing = ScanOk();
  EXPECT_THAT(PathsOf(listing), ElementsAre(".gitignore", "a/run.sh", "empty/inner/",
                                            "only-ignored/", "private/", "private/x"));
  EXPECT_EQ(listing.entries[1].mode, 0751U);
  EXPECT_EQ(listing.entries[4].mode, 0700U);
  EXPECT_EQ(listing.files, 3);
}

TEST_F(ScanTest, NeverShipsCachesRunsAndEnvironments) {
  Put(At("__pycache__/a.pyc"));
  Put(At("src/__pycache__/a.pyc"));
  Put(At("gpulayer_runs/1/out"));
  Put(At("venv/pyvenv.cfg"));
  Put(At("venv/lib/x.py"));
  Put(At("src/a.py"));
  EXPECT_THAT(PathsOf(ScanOk()), ElementsAre("src/a.py"));
}

TEST_F(ScanTest, OwnIgnoreFileAddsAndReIncludes) {
  Put(At(".gitignore"), "data/\n*.pt\nlogs/\n");
  Put(At(".gpulayerignore"), "big/\n!keep.pt\n!/data/small/\n!venv/\n!logs\n");
  Put(At("big/x"));
  Put(At("keep.pt"));
  Put(At("other.pt"));
  Put(At("data/small/a"));
  Put(At("data/large/a"));
  Put(At("data/x"));
  Put(At("logs/l"));
  Put(At("venv/pyvenv.cfg"));
  EXPECT_THAT(PathsOf(ScanOk()), ElementsAre(".gitignore", ".gpulayerignore", "data/small/a",
                                             "keep.pt", "logs/l", "venv/pyvenv.cfg"));
}

TEST_F(ScanTest, OwnIgnoreFileTakesOutWhatIsTracked) {
  if (!testing::HaveGit()) GTEST_SKIP() << "git is not installed";
  Put(At("data/x"));
  Put(At("a"));
  Put(At(".gpulayerignore"), "data\n!.git\n");
  testing::RunIn(root_, dir_ / "home", {"git", "init", "-q"});
  testing::RunIn(root_, dir_ / "home", {"git", "add", "."});
  EXPECT_THAT(PathsOf(ScanOk()), ElementsAre(".gpulayerignore", "a"));
}

TEST_F(ScanTest, IgnoreRulesTravel) {
  if (!testing::HaveGit()) GTEST_SKIP() << "git is not installed";
  Put(dir_ / "home/.config/git/ignore", "*.global\n");
  Put(At(".gitignore"), "*.log\n.gitignore\n");
  Put(At(".git/info/exclude"), "*.tmp\n");
  Put(At("sub/deep/.gpulayerignore"), "!x.log\n");
  Put(At("sub/deep/a"));
  Put(At("sub/.gitignore"), "sub\n");
  Put(At("sub/deep/in/.gitignore"), "inner\n");
  testing::RunIn(root_, dir_ / "home", {"git", "init", "-q"});
  Put(At(".git/info/exclude"), "*.tmp\n");
  Result<Listing> listing = Scan(At("sub/deep"));
  ASSERT_TRUE(listing.ok());
  IgnoreRules expected;
  expected.prefix = "sub/deep";
  expected.files = {{"", "*.global\n"},
                    {"", "*.tmp\n"},
                    {"", "*.log\n.gitignore\n"},
                    {"sub", "sub\n"},
                    {"sub/deep/in", "inner\n"}};  // does not ship as a file
  expected.overriding = "!x.log\n";
  EXPECT_EQ(listing->ignore, expected);
}

TEST_F(ScanTest, RootThatIsIgnoredSaysSo) {
  if (!testing::HaveGit()) GTEST_SKIP() << "git is not installed";
  Put(At(".gitignore"), "build\n");
  Put(At("build/a"));
  testing::RunIn(root_, dir_ / "home", {"git", "init", "-q"});
  Result<Listing> listing = Scan(At("build"));
  ASSERT_TRUE(listing.ok());
  EXPECT_THAT(PathsOf(*listing), IsEmpty());
  ASSERT_THAT(listing->warnings, ElementsAre(Warns(".", "is ignored by a rule of git")));
  EXPECT_THAT(ToString(listing->warnings[0]), ::testing::StartsWith("the folder itself"));
  Put(At("build/.gpulayerignore"), "!*\n");
  EXPECT_THAT(PathsOf(*Scan(At("build"))), ElementsAre(".gpulayerignore", "a"));
}

TEST_F(ScanTest, LinksInsideShipOthersAreNamed) {
  Put(At("real/file"));
  Put(dir_ / "secret/key");
  const auto link = [this](const char* target, const char* name) {
    ASSERT_EQ(symlink(target, At(name).c_str()), 0);
  };
  link("file", "real/beside");
  link("real", "folder");
  link("folder/../real/file", "round");  // through a link and up again: still inside
  link("missing", "dangling");
  link("loop-b", "loop-a");
  link("loop-a", "loop-b");
  link(".", "self");
  link("../secret", "out");
  link("/etc/passwd", "absolute");
  link("..", "real/up");                 // the root itself
  link("real/up/../secret/key", "sly");  // lexically inside, in truth outside
  link("out/key", "second-hand");
  const Listing listing = ScanOk();
  EXPECT_THAT(PathsOf(listing), ElementsAre("dangling", "folder", "loop-a", "loop-b", "real/beside",
                                            "real/file", "real/up", "round", "self"));
  EXPECT_THAT(listing.warnings,
              ElementsAre(Warns("absolute", "absolute path (/etc/passwd)"),
                          Warns("out", "leaves the folder (to ../secret)"),
                          Warns("second-hand", "leaves"), Warns("sly", "leaves")));
  EXPECT_EQ(ToString(listing.warnings[1]),
            "left out out: a link that leaves the folder (to ../secret)");
}

TEST_F(ScanTest, SpecialFilesAreNamedAndNeverOpened) {
  Put(At("a"));
  ASSERT_EQ(mkfifo(At("fifo").c_str(), 0644), 0);
  ASSERT_EQ(mkfifo(At(".gitignore").c_str(), 0644), 0);
  ASSERT_EQ(mkfifo(At(".gpulayerignore").c_str(), 0644), 0);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_LT(At("sock").size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, At("sock").c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);
  const Listing listing = ScanOk();
  EXPECT_THAT(PathsOf(listing), ElementsAre("a"));
  EXPECT_THAT(listing.warnings,
              ElementsAre(Warns(".gitignore", "a FIFO"), Warns(".gpulayerignore", "a FIFO"),
                          Warns("fifo", "a FIFO"), Warns("sock", "a socket")));
}

TEST_F(ScanTest, ARepositoryWhoseFilesAreNoneIsNotOpened) {
  for (const char* name : {"HEAD", "config", "index", "commondir", "info/exclude"}) {
    for (const char* repository : {".git", "nested/.git", "."}) {
      const std::string git = At(repository);
      for (const char* folder : {"objects", "refs", "info"}) {
        ASSERT_TRUE(MakeDirs(git + "/" + folder, 0755).ok());
      }
      Put(git + "/HEAD", "ref: refs/heads/m\n");
      Put(At("a"));
      Put(At("nested/b"));
      unlink((git + "/" + name).c_str());
      ASSERT_EQ(mkfifo((git + "/" + name).c_str(), 0600), 0);
      const Listing listing = ScanOk();
      const bool nested = git.find("nested") != std::string::npos;
      EXPECT_THAT(listing.warnings, Contains(Warns(nested ? "nested" : ".", "is a FIFO")))
          << name << " " << repository;
      EXPECT_THAT(PathsOf(listing), Contains("a"));
      EXPECT_THAT(PathsOf(listing), Contains("nested/b"));
      ASSERT_TRUE(RemoveTree(root_).ok());
      ASSERT_TRUE(MakeDirs(root_, 0755).ok());
    }
  }
  // As of a submodule: a file that leads there.
  ASSERT_TRUE(MakeDirs(dir_ / "elsewhere/objects", 0755).ok());
  ASSERT_TRUE(MakeDirs(dir_ / "elsewhere/refs", 0755).ok());
  Put(dir_ / "elsewhere/HEAD", "ref: refs/heads/m\n");
  ASSERT_EQ(mkfifo((dir_ / "elsewhere/config").c_str(), 0600), 0);
  Put(At(".git"), "gitdir: ../elsewhere\n");
  Put(At("a"));
  EXPECT_THAT(ScanOk().warnings, ElementsAre(Warns(".", "git's config is a FIFO")));
}

TEST_F(ScanTest, NamesAreBytes) {
  const std::string long_name(255, 'n'), odd = "\xff\xfe\n\t'\"";
  Put(At(long_name));
  Put(At(odd));
  EXPECT_THAT(PathsOf(ScanOk()), ElementsAre(long_name, odd));
}

// Deeper than there are descriptors, longer than a path may be.
TEST_F(ScanTest, VeryDeepFoldersEndInAWarning) {
  int at = open(root_.c_str(), O_RDONLY | O_DIRECTORY);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(mkdirat(at, "d", 0755), 0);
    const int next = openat(at, "d", O_RDONLY | O_DIRECTORY);
    close(at);
    at = next;
  }
  close(at);
  const Listing listing = ScanOk();
  ASSERT_EQ(listing.warnings.size(), 1U);
  EXPECT_THAT(listing.warnings[0].reason, HasSubstr("longer than 4000 bytes"));
}

TEST_F(ScanTest, UnreadableFilesAreNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Put(At("open"));
  Put(At("closed"));
  Put(At("shut/inner"));
  chmod(At("closed").c_str(), 0600);
  chmod(At("shut").c_str(), 0700);
  for (const std::string& folder : {dir_.path(), root_}) chmod(folder.c_str(), 0755);
  const pid_t pid = fork();
  if (pid == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(9);
    Result<Listing> listing = Scan(root_);
    if (!listing.ok()) _exit(1);
    if (PathsOf(*listing) != std::vector<std::string>{"open"}) _exit(2);
    if (listing->warnings.size() != 2 || listing->warnings[0].reason != "not readable" ||
        listing->warnings[1].reason != "not readable") {
      _exit(3);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(ScanTest, OverTheLimitNamesTheLargestFolders) {
  for (int i = 0; i < 12; ++i) {
    Put(At("data/part" + std::to_string(i) + "/x"), std::string(1000 + 100 * i, 'x'));
  }
  Put(At("a"), "tiny");
  const int sparse = open(At("model.bin").c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_EQ(ftruncate(sparse, 3LL << 30), 0);
  close(sparse);
  ScanOptions options;
  const Listing listing = ScanOk(options);
  EXPECT_TRUE(listing.over_limit);
  EXPECT_THAT(listing.entries, IsEmpty());
  EXPECT_EQ(listing.largest.size(), 10U);
  EXPECT_EQ(listing.largest[0].path, ".");
  EXPECT_EQ(listing.largest[1].path, "data");
  EXPECT_EQ(listing.largest[1].bytes, 12 * 1000 + 100 * 66);
  EXPECT_EQ(listing.largest[2].path, "data/part11");
  const Status status = CheckLimit(listing, options);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("512MiB"), HasSubstr("--source-limit"), HasSubstr("data/part11")));
}

TEST_F(ScanTest, TooManyFiles) {
  for (int i = 0; i < 30; ++i) Put(At("d" + std::to_string(i % 3) + "/" + std::to_string(i)));
  ScanOptions options;
  options.limit_files = 10;
  Listing listing = ScanOk(options);
  EXPECT_TRUE(listing.over_limit && listing.counted_all);
  EXPECT_EQ(listing.files, 30);
  EXPECT_THAT(CheckLimit(listing, options).message(), HasSubstr("the limit of 10 files"));
  options.limit_files = 1;
  EXPECT_THAT(CheckLimit(ScanOk(options), options).message(), HasSubstr("the limit of 1 file."));
  options.limit_files = 10;
  options.entries_after_limit = 5;
  listing = ScanOk(options);
  EXPECT_FALSE(listing.counted_all);
  EXPECT_THAT(CheckLimit(listing, options).message(), HasSubstr("at least"));
  options.limit_files = 30;
  EXPECT_TRUE(CheckLimit(ScanOk(options), options).ok());
}

TEST_F(ScanTest, MissingRoot) {
  EXPECT_EQ(Scan(root_ + "/none").status().code(), StatusCode::kNotFound);
  Put(At("file"));
  EXPECT_FALSE(Scan(At("file")).ok());
}

}  // namespace
}  // namespace gpulayer::tree
