#include "tree/collect.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "model/limits.h"
#include "support/temp_dir.h"
#include "tree/files.h"

namespace gpulayer::tree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Link;
using testing::MemoryBlobs;
using testing::PathsOf;
using testing::Put;
using testing::TempDir;

std::vector<std::string> PathsOf(const std::vector<LeftOut>& files) {
  std::vector<std::string> out;
  for (const LeftOut& file : files) out.push_back(file.path);
  return out;
}

class CollectTest : public ::testing::Test {
 protected:
  CollectTest() {
    for (const char* name : {"work", "out", "blobs"}) EXPECT_TRUE(MakeDirs(dir_ / name, 0755).ok());
  }
  // As the worker does it.
  void LayOut() {
    std::sort(source_.entries.begin(), source_.entries.end(),
              [](const TreeEntry& a, const TreeEntry& b) { return a.path < b.path; });
    UnpackOptions options;
    options.mtime_ns = stamp_.mtime_ns = 1'700'000'000'000'000'000;
    const Status status = Unpack(source_, dir_ / "work", blobs_.Opener(), options);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Put(dir_ / "marker");
    struct stat info = {};
    stat((dir_ / "marker").c_str(), &info);
    stamp_.latest_ctime_ns = info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec;
  }
  Collected Run() {
    CollectRequest request;
    request.work_dir = dir_ / "work";
    request.output_dir = dir_ / "out";
    request.source = &source_;
    request.stamp = stamp_;
    request.rules = rules_;
    request.threads = 2;
    request.hash_big = hash_big_;
    Result<Collected> out = Collect(request);
    EXPECT_TRUE(out.ok()) << out.status().ToString();
    if (!out.ok()) return {};
    EXPECT_TRUE(CheckTree(out->tree).ok());
    return *out;
  }
  std::string Work(const std::string& path) const { return dir_ / "work/" + path; }
  std::string Out(const std::string& path) const { return dir_ / "out/" + path; }

  TempDir dir_;
  MemoryBlobs blobs_{dir_ / "blobs"};
  Tree source_;
  LayoutStamp stamp_;
  OutputRules rules_;
  std::function<Result<HashedFile>(int, const std::string&)> hash_big_;
};

TEST_F(CollectTest, BringsHomeWhatIsNewOrChanged) {
  source_.entries = {blobs_.File("a.py", "a"), blobs_.File("b.py", "b"), blobs_.File("c.py", "c"),
                     blobs_.File("d.py", "d"), blobs_.File("e.py", "e"), Link("l", "a.py"),
                     Link("m", "a.py")};
  LayOut();
  Put(Work("a.py"), "A");  // the same size
  Put(Work("b.py"), "longer");
  Put(Work("c.py"), "c");             // written anew, the same
  chmod(Work("d.py").c_str(), 0755);  // the mode alone is no change
  unlink(Work("e.py").c_str());
  unlink(Work("l").c_str());
  symlink("b.py", Work("l").c_str());
  Put(Work("new/x"), "n");
  MakeDirs(Work("new-empty"), 0755).ok();
  Put(Out("model.pt"), "weights");
  MakeDirs(Out("empty"), 0755).ok();
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre("a.py", "b.py", "empty/", "l", "model.pt", "new/x"));
  EXPECT_EQ(out.result.files, 5);
  EXPECT_EQ(out.result.bytes, 1 + 6 + 7 + 1);
  EXPECT_EQ(out.blobs.size(), 4U);
  EXPECT_EQ(out.result.left_out_count, 0);
}

TEST_F(CollectTest, NewFoldersKeepTheirModes) {
  source_.entries = {blobs_.File("src/a", "a")};
  LayOut();
  chmod(Work("src").c_str(), 0700);  // of the source: its mode alone is no change
  Put(Work("src/new/x"), "x");
  Put(Work("private/y"), "y");
  Put(Work("private-too/z"), "z");
  Put(Work("both/w"), "w");
  Put(Out("both/o"), "o");
  Put(Out("shared/s"), "s");
  const std::vector<std::pair<std::string, mode_t>> modes = {{Work("src/new"), 0750},
                                                             {Work("private"), 0700},
                                                             {Work("both"), 0700},
                                                             {Out("shared"), 0775}};
  for (const auto& [path, mode] : modes) ASSERT_EQ(chmod(path.c_str(), mode), 0);
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree),
              ElementsAre("both/o", "both/w", "private/", "private-too/z", "private/y", "shared/",
                          "shared/s", "src/new/", "src/new/x"));
  for (const TreeEntry& entry : out.tree.entries) {
    if (entry.path == "private") EXPECT_EQ(entry.mode, 0700U);
    if (entry.path == "shared") EXPECT_EQ(entry.mode, 0775U);
    if (entry.path == "src/new") EXPECT_EQ(entry.mode, 0750U);
  }
  EXPECT_EQ(out.result.left_out_count, 0);
  EXPECT_EQ(out.result.files, 6);
}

TEST_F(CollectTest, UnchangedFilesAreNotReadAgain) {
  for (int i = 0; i < 50; ++i) source_.entries.push_back(blobs_.File("f" + std::to_string(i), "x"));
  LayOut();
  const Collected out = Run();
  EXPECT_THAT(out.tree.entries, IsEmpty());
  EXPECT_EQ(out.hashed_files, 0);
}

// Times put back by the program itself, as `cp -p` and `tar -x` do: the change time tells.
TEST_F(CollectTest, AChangeWithTheOldTimesIsSeen) {
  source_.entries = {blobs_.File("a", "one")};
  LayOut();
  struct stat info = {};
  stat(Work("a").c_str(), &info);
  Put(Work("a"), "two");
  // Past the tick in which the layout ended; what follows in the very same one cannot be told.
  struct stat now = info;
  while (now.st_ctim.tv_sec * 1'000'000'000 + now.st_ctim.tv_nsec <= stamp_.latest_ctime_ns) {
    const timespec times[2] = {info.st_atim, info.st_mtim};
    utimensat(AT_FDCWD, Work("a").c_str(), times, 0);
    stat(Work("a").c_str(), &now);
  }
  EXPECT_THAT(PathsOf(Run().tree), ElementsAre("a"));
}

TEST_F(CollectTest, RulesThatCameWithTheSourceHold) {
  source_.ignore.prefix = "sub";
  source_.ignore.files = {{"", "*.global\n"}, {"", "/sub/anchored\n"}, {"sub/third", "*.nested\n"}};
  source_.ignore.nested_roots = {"sub/third"};
  source_.ignore.overriding = "*.big\n!keep.log\n";
  source_.entries = {blobs_.File(".gitignore", "*.log\n"), blobs_.File("tracked.log", "1"),
                     blobs_.File("third/a", "1")};
  LayOut();
  for (const char* name :
       {"x.global", "anchored", "x.big", "x.log", "keep.log", "x.txt", "third/x.global",
        "third/x.nested", "third/x.log", "__pycache__/x.pyc", ".cache/.gitignore", ".cache/x",
        "venv/pyvenv.cfg", "gpulayer_runs/1/x"}) {
    Put(Work(name), name);
  }
  Put(Work(".cache/.gitignore"), "*\n");  // as tools do that make caches
  Put(Work("tracked.log"), "2");
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree),
              ElementsAre("keep.log", "third/x.global", "third/x.log", "tracked.log", "x.txt"));
  // A model that a rule hides does not vanish without a word; caches do.
  std::vector<std::string> named;
  for (const LeftOut& left : out.result.left_out) {
    EXPECT_THAT(left.reason, HasSubstr("$GPULAYER_OUTPUT_DIR"));
    named.push_back(left.path);
  }
  EXPECT_THAT(named, ElementsAre("anchored", "third/x.nested", "x.big", "x.global", "x.log",
                                 "gpulayer_runs/", "venv/"));
  EXPECT_EQ(out.result.left_out_count, 7);
}

TEST_F(CollectTest, OfManyIgnoredFilesAFewAreNamed) {
  source_.ignore.overriding = "*.tmp\nresults/\n";
  source_.entries = {blobs_.File("a", "1")};
  LayOut();
  for (int i = 0; i < 20; ++i) Put(Work("x" + std::to_string(i) + ".tmp"));
  Put(Work("results/model.pt"));
  rules_.globs = {"results"};
  EXPECT_EQ(Run().result.left_out.at(0).path, "results/");
  EXPECT_EQ(Run().result.left_out_count, 1) << "of the others none was asked for";
  rules_.globs = {};
  EXPECT_EQ(Run().result.left_out.size(), 5U);
  EXPECT_EQ(Run().result.left_out_count, 21);
}

TEST_F(CollectTest, OutputFolderWinsClashes) {
  LayOut();
  Put(Out("a"), "out");
  Put(Work("a"), "work");
  Put(Out("copy"), "same");
  Put(Work("copy"), "same");
  Put(Out("file"), "out");
  Put(Work("file/below"), "work");
  Put(Out("folder/x"), "out");
  Put(Work("folder"), "work");
  Put(Out(".gpulayer.json"), "fake");
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre("a", "copy", "file", "folder/x"));
  EXPECT_EQ(out.tree.entries[0].hash, Hash::Of("out"));
  EXPECT_THAT(PathsOf(out.result.left_out),
              ElementsAre(".gpulayer.json", "a", "file/below", "folder"));
  EXPECT_THAT(out.result.left_out[1].reason, HasSubstr("another file of that name"));
}

TEST_F(CollectTest, WhatNeverTravelsIsNamedByItsFolder) {
  LayOut();
  for (const char* name : {".git/a", ".git/b", "clone/.git/x", "clone/README", "gpulayer_runs/1/y",
                           "venv/pyvenv.cfg", "venv/lib/z", "__pycache__/m.pyc"}) {
    Put(Work(name));
  }
  MakeDirs(Work("empty"), 0755).ok();
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre("clone/README"));
  EXPECT_THAT(PathsOf(out.result.left_out),
              ElementsAre(".git/", "clone/.git/", "gpulayer_runs/", "venv/"));
  rules_.globs = {"README"};
  EXPECT_THAT(Run().result.left_out, IsEmpty()) << "none of it was asked for";
}

TEST_F(CollectTest, APatternThatNothingMatchesIsNamedWithWhatIsThere) {
  source_.entries = {blobs_.File("data.csv", "1"), blobs_.File("old.txt", "1")};
  LayOut();
  Put(Work("old.txt"), "2");
  Put(Work("model.bin"), "weights");
  for (int i = 0; i < 9; ++i) Put(Work("z" + std::to_string(i)));
  Put(Out("log.txt"));
  rules_.globs = {"model.bim", "data.csv", "log.txt", "z1"};
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre("log.txt", "z1"));
  EXPECT_THAT(PathsOf(out.result.left_out),
              ElementsAre("model.bim", "data.csv", "model.bin", "z0", "z2", "z3", "z4"));
  EXPECT_THAT(out.result.left_out[0].reason, HasSubstr("matches this --output"));
  rules_.globs = {"model.bin"};
  EXPECT_THAT(Run().result.left_out, IsEmpty());
}

TEST(OutputGlobTest, IsMadeNormal) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"model.bin", "model.bin"},
      {"./model.bin", "/model.bin"},
      {"a/./b", "a/b"},
      {"a//b", "a/b"},
      {"./a/b/", "a/b/"},
      {"a/", "a/"},
      {"./a/", "/a/"},
      {".", "*"},
      {"./", "*"},
      {"*/", "*/"},
      {"/a", "/a"},
      {"**/a", "**/a"},
      {"a\\[1]", "a\\[1]"},
      {"./~x", "/~x"},
      {"[ab].txt", "[ab].txt"},
  };
  for (const auto& [typed, normal] : rows) {
    const Result<std::string> out = NormalOutputGlob(typed);
    ASSERT_TRUE(out.ok()) << typed << ": " << out.status().ToString();
    EXPECT_EQ(*out, normal) << typed;
    EXPECT_EQ(NormalOutputGlob(*out).value_or(""), normal) << "again";
  }
  for (const char* typed : {"../a", "a/../b", "..", "a[1", "a\\", "!a", "#a"}) {
    EXPECT_EQ(NormalOutputGlob(typed).status().code(), StatusCode::kInvalidArgument) << typed;
  }
  EXPECT_TRUE(MatchesOutputGlob("./model.bin", "model.bin"));
  EXPECT_FALSE(MatchesOutputGlob("./model.bin", "sub/model.bin"));
  EXPECT_TRUE(MatchesOutputGlob(".", "sub/model.bin"));
}

TEST_F(CollectTest, AFolderWithTheNameOfTheRecordIsLeftOut) {
  LayOut();
  Put(Out("a"), "out");
  Put(Out(".gpulayer.json/f"), "x");
  Put(Out(".gpulayer.json/g"), "y");
  Put(Work(".gpulayer.json/h"), "z");
  Put(Work(".gpulayer.jsonl"), "fine");
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre(".gpulayer.jsonl", "a"));
  ASSERT_EQ(out.result.left_out.size(), 1U);
  EXPECT_EQ(out.result.left_out[0].path, ".gpulayer.json/");
}

TEST_F(CollectTest, GlobsNarrowTheWorkFolder) {
  LayOut();
  for (const char* name : {"a.pt", "sub/b.pt", "c.txt", "logs/x", "logs/sub/y", "sub/logs/z"}) {
    Put(Work(name));
  }
  Put(Out("always"));
  rules_.globs = {"*.pt", "/logs"};
  EXPECT_THAT(PathsOf(Run().tree),
              ElementsAre("a.pt", "always", "logs/sub/y", "logs/x", "sub/b.pt"));
  rules_.globs = {"sub/*.pt"};
  EXPECT_THAT(PathsOf(Run().tree), ElementsAre("always", "sub/b.pt"));
  rules_.collect = false;
  EXPECT_THAT(PathsOf(Run().tree), IsEmpty());
}

TEST_F(CollectTest, OverTheLimitTheRestIsListed) {
  LayOut();
  rules_.limit_bytes = 10;
  Put(Out("a"), "12345");
  Put(Work("b"), "1234567");
  Put(Work("c"), "12345");
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre("a", "c"));
  ASSERT_EQ(out.result.left_out.size(), 1U);
  EXPECT_EQ(out.result.left_out[0].path, "b");
  EXPECT_EQ(out.result.left_out[0].size_bytes, 7);
  EXPECT_THAT(out.result.left_out[0].reason, HasSubstr("output limit of 10B"));
}

TEST_F(CollectTest, WhatCannotComeIsListed) {
  LayOut();
  mkfifo(Work("fifo").c_str(), 0644);
  symlink("/etc/passwd", Out("abs").c_str());
  symlink("../../x", Work("leaves").c_str());
  // Each stays inside on its own side, together they would not.
  MakeDirs(Out("d"), 0755).ok();
  symlink("..", Out("d/up").c_str());
  MakeDirs(Work("d/up/e"), 0755).ok();
  symlink("../../up/../x", Work("d/up/e/l").c_str());
  symlink("d/up/../x", Work("sly").c_str());
  for (int i = 0; i < 150; ++i) mkfifo(Out("p" + std::to_string(i)).c_str(), 0644);
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre("d/up"));
  EXPECT_EQ(out.result.left_out_count, 155);
  EXPECT_EQ(out.result.left_out.size(), 100U);
}

TEST_F(CollectTest, MissingOutputFolderIsNoError) {
  LayOut();
  ASSERT_TRUE(RemoveTree(dir_ / "out").ok());
  Put(Work("a"));
  EXPECT_THAT(PathsOf(Run().tree), ElementsAre("a"));
}

// `rm -rf "$PWD"` at the end of a script: what lies in the output folder is as good as ever.
TEST_F(CollectTest, MissingWorkFolderMeansThatNothingChangedThere) {
  source_.entries = {blobs_.File("a.py", "a")};
  LayOut();
  ASSERT_TRUE(RemoveTree(dir_ / "work").ok());
  Put(Out("precious"));
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre("precious"));
  EXPECT_EQ(out.result.left_out_count, 0);
}

TEST_F(CollectTest, LinkInAFoldersPlaceIsNotFollowed) {
  LayOut();
  Put(dir_ / "elsewhere/secret", "s");
  for (const bool absolute : {true, false}) {
    for (const char* name : {"out", "work"}) {
      ASSERT_TRUE(RemoveTree(dir_ / name).ok());
      symlink(absolute ? (dir_ / "elsewhere").c_str() : "elsewhere", (dir_ / name).c_str());
    }
    const Collected out = Run();
    EXPECT_THAT(out.tree.entries, IsEmpty());
    EXPECT_THAT(out.blobs, IsEmpty());
    ASSERT_EQ(out.result.left_out.size(), 2U);
    EXPECT_EQ(out.result.left_out[0].path, ".");
    EXPECT_EQ(out.result.left_out[0].reason, "the output folder: a link took its place");
    EXPECT_EQ(out.result.left_out[1].reason, "the work folder: a link took its place");
  }
}

TEST_F(CollectTest, FolderThatBecameAFileLeavesTheOtherOnesOutputs) {
  LayOut();
  ASSERT_TRUE(RemoveTree(dir_ / "work").ok());
  Put(dir_ / "work", "a file");
  Put(Out("a"));
  const Collected out = Run();
  EXPECT_THAT(PathsOf(out.tree), ElementsAre("a"));
  EXPECT_EQ(out.result.left_out_count, 1);
}

TEST_F(CollectTest, ReasonsAreTextWhateverALinkLeadsTo) {
  LayOut();
  symlink("/\xFF\x1B[31m", Out("l").c_str());
  const Collected out = Run();
  ASSERT_EQ(out.result.left_out.size(), 1U);
  EXPECT_TRUE(IsValidUtf8(out.result.left_out[0].reason));
  EXPECT_EQ(Printable(out.result.left_out[0].reason), out.result.left_out[0].reason);
}

TEST_F(CollectTest, BigFilesMayBeStoredOtherwise) {
  LayOut();
  const std::string big(limits::kHandOverBytes, 'b');
  for (const char* path : {"handed", "refused"}) Put(Out(path), big + path);
  Put(Out("small"), big.substr(1));
  const Hash said = Hash::Of("what the other says");
  std::set<std::string> asked;
  Mutex mutex;
  hash_big_ = [&](int root, const std::string& path) -> Result<HashedFile> {
    MutexLock lock(mutex);
    asked.insert(path);
    if (path == "refused") return FailedPrecondition("not this one");
    GPULAYER_ASSIGN_OR_RETURN(HashedFile file, HashOne(root, path));
    file.hash = said;
    return file;
  };
  const Collected out = Run();
  EXPECT_THAT(asked, ElementsAre("handed", "refused"));
  ASSERT_THAT(PathsOf(out.tree), ElementsAre("handed", "refused", "small"));
  EXPECT_EQ(out.tree.entries[0].hash, said);
  EXPECT_EQ(out.tree.entries[0].size, limits::kHandOverBytes + 6);
  EXPECT_EQ(out.tree.entries[1].hash, Hash::Of(big + "refused"));
}

// As a worker that is not root: `chmod 0` by the program is no reason to lose what it made.
TEST_F(CollectTest, WhatItsOwnerMayNotReadComesHomeAllTheSame) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  constexpr uid_t kNobody = 65534;
  source_.entries = {blobs_.File("src.py", "then")};
  LayOut();
  Put(Work("src.py"), "now!");
  Put(Out("closed"), "c");
  Put(Out("shut/inner"), "i");
  Put(Out("listed/inner"), "i");
  Put(Out("foreign"), "f");
  for (const std::string& path :
       {dir_ / "work", dir_ / "out", Work("src.py"), Out("closed"), Out("shut"), Out("shut/inner"),
        Out("listed"), Out("listed/inner")}) {
    ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0) << path;
  }
  chmod(dir_.path().c_str(), 0755);
  for (const std::string& path : {Work("src.py"), Out("closed"), Out("shut"), Out("foreign")}) {
    ASSERT_EQ(chmod(path.c_str(), 0), 0);
  }
  ASSERT_EQ(chmod(Out("listed").c_str(), 0400), 0);
  ASSERT_EQ(chmod((dir_ / "work").c_str(), 0), 0);
  ASSERT_EQ(chmod((dir_ / "out").c_str(), 0400), 0);
  ASSERT_EQ(setegid(kNobody), 0);
  ASSERT_EQ(seteuid(kNobody), 0);
  const Collected out = Run();
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_EQ(setegid(0), 0);
  EXPECT_THAT(PathsOf(out.tree),
              ElementsAre("closed", "listed/", "listed/inner", "shut/", "shut/inner", "src.py"));
  for (const TreeEntry& entry : out.tree.entries) {
    if (entry.path == "closed" || entry.path == "shut" || entry.path == "src.py") {
      EXPECT_EQ(entry.mode, 0U) << entry.path;
    }
    if (entry.path == "listed") EXPECT_EQ(entry.mode, 0400U);
  }
  ASSERT_EQ(out.result.left_out.size(), 1U);
  EXPECT_EQ(out.result.left_out[0].path, "foreign");
  EXPECT_EQ(out.result.left_out[0].reason, "not readable");
}

}  // namespace
}  // namespace gpulayer::tree
