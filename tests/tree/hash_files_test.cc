#include "tree/hash_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "support/eventually.h"
#include "support/temp_dir.h"
#include "tree/files.h"
#include "tree/hash_cache.h"

namespace gpulayer::tree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PathsOf;
using testing::Put;
using testing::TempDir;

class HashFilesTest : public ::testing::Test {
 protected:
  HashFilesTest() {
    setenv("HOME", (dir_ / "home").c_str(), 1);
    EXPECT_TRUE(MakeDirs(root_, 0755).ok());
  }
  HashedTree Run() {
    Result<Listing> listing = Scan(root_);
    EXPECT_TRUE(listing.ok());
    HashOptions options;
    options.cache_dir = dir_ / "cache";
    Result<HashedTree> tree = HashFiles(*listing, options);
    EXPECT_TRUE(tree.ok()) << tree.status().ToString();
    return tree.ok() ? *tree : HashedTree();
  }
  // Puts a file's times into the past, and the cache's view of it: as if it had lain there for
  // long.
  void Age(const std::string& path, FileStamp* stamp) {
    timespec times[2] = {{1'600'000'000, 0}, {1'600'000'000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, At(path).c_str(), times, 0), 0);
    Result<Listing> listing = Scan(root_);
    for (const ListedEntry& entry : listing->entries) {
      if (entry.path == path) *stamp = entry.stamp;
    }
  }
  std::string At(const std::string& path) const { return root_ + "/" + path; }
  std::string CacheFile() const { return HashCacheFile(dir_ / "cache", root_); }

  TempDir dir_;
  const std::string root_ = dir_ / "root";
};

TEST_F(HashFilesTest, TreeHoldsContentAndBlobsOnce) {
  Put(At("a"), "same");
  Put(At("b/c"), "same");
  Put(At("d"), "other");
  symlink("a", At("l").c_str());
  chmod(At("d").c_str(), 0700);
  const HashedTree hashed = Run();
  EXPECT_THAT(PathsOf(hashed.tree), ElementsAre("a", "b/c", "d", "l"));
  EXPECT_EQ(hashed.tree.entries[0].hash, Hash::Of("same"));
  EXPECT_EQ(hashed.tree.entries[2].mode, 0700U);
  EXPECT_EQ(hashed.tree.entries[3].link_target, "a");
  ASSERT_EQ(hashed.blobs.size(), 2U);
  EXPECT_EQ(hashed.blobs[0].path, At("a"));
  EXPECT_EQ(hashed.blobs[1].hash, Hash::Of("other"));
  EXPECT_TRUE(CheckTree(hashed.tree).ok());
  EXPECT_EQ(hashed.hashed_files, 3);
}

TEST_F(HashFilesTest, ALargeFileIsReadApart) {
  std::string content(20'000'001, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 / 1000);
  Put(At("large"), content);
  const HashedTree hashed = Run();
  ASSERT_EQ(hashed.tree.entries.size(), 1U);
  EXPECT_EQ(hashed.tree.entries[0].hash, Hash::Of(content));
}

// What was written a moment ago is read again, although the cache was written after it: a second
// change of the same size may not show in its times.
TEST_F(HashFilesTest, FreshFilesAreNeverTrusted) {
  Put(At("a"), "one");
  EXPECT_EQ(Run().hashed_files, 1);
  struct stat before = {};
  stat(At("a").c_str(), &before);
  Put(At("a"), "two");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  utimensat(AT_FDCWD, At("a").c_str(), times, 0);
  const HashedTree hashed = Run();
  EXPECT_EQ(hashed.hashed_files, 1);
  EXPECT_EQ(hashed.tree.entries[0].hash, Hash::Of("two"));
  EXPECT_THAT(LoadHashCache(CacheFile()), IsEmpty());
}

TEST_F(HashFilesTest, SettledFilesAreTakenFromTheCacheUntilTheyChange) {
  Put(At("a"), "content");
  Put(At("b"), "content b");
  HashCache cache(2);
  cache[0].path = "a";
  cache[0].hash = Hash::Of("as the cache says");  // shows where the hash came from
  Age("a", &cache[0].stamp);
  cache[1].path = "b";
  Age("b", &cache[1].stamp);
  cache[1].hash = Hash::Of("content b");
  ASSERT_TRUE(StoreHashCache(CacheFile(), cache).ok());
  EXPECT_EQ(LoadHashCache(CacheFile()), cache);
  HashedTree hashed = Run();
  EXPECT_EQ(hashed.hashed_files, 0);
  EXPECT_EQ(hashed.tree.entries[0].hash, Hash::Of("as the cache says"));

  Put(At("a"), "CONTENT");  // the same size
  hashed = Run();
  EXPECT_EQ(hashed.hashed_files, 1);
  EXPECT_EQ(hashed.tree.entries[0].hash, Hash::Of("CONTENT"));
  EXPECT_THAT(LoadHashCache(CacheFile()), ElementsAre(cache[1]));
  // Times put back: the change time tells.
  FileStamp stamp;
  Age("b", &stamp);
  EXPECT_EQ(Run().hashed_files, 2);
}

TEST_F(HashFilesTest, DamagedCacheCostsTimeOnly) {
  Put(At("a"), "content");
  HashCache cache(1);
  cache[0].path = "a";
  Age("a", &cache[0].stamp);
  cache[0].hash = Hash::Of("wrong");
  ASSERT_TRUE(StoreHashCache(CacheFile(), cache).ok());
  const std::string good = *ReadFile(CacheFile());
  for (const std::size_t at : {std::size_t{3}, std::size_t{40}, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    Put(CacheFile(), bad);
    EXPECT_THAT(LoadHashCache(CacheFile()), IsEmpty());
    EXPECT_EQ(Run().tree.entries[0].hash, Hash::Of("content"));
  }
  for (std::size_t size = 0; size < good.size(); size += 7) {
    Put(CacheFile(), good.substr(0, size));
    EXPECT_THAT(LoadHashCache(CacheFile()), IsEmpty());
  }
  // A place that cannot be written.
  Put(dir_ / "file");
  HashOptions options;
  options.cache_dir = dir_ / "file/cache";
  EXPECT_TRUE(HashFiles(*Scan(root_), options).ok());
}

TEST_F(HashFilesTest, VanishedAndReplacedFilesAreWarnings) {
  Put(At("gone"));
  Put(At("fifo"));
  Put(At("stays"));
  Put(At("folder/x"));
  Result<Listing> listing = Scan(root_);
  unlink(At("gone").c_str());
  unlink(At("fifo").c_str());
  ASSERT_EQ(mkfifo(At("fifo").c_str(), 0644), 0);
  ASSERT_TRUE(RemoveTree(At("folder")).ok());
  Put(dir_ / "outside/x", "secret");
  ASSERT_EQ(symlink("../outside", At("folder").c_str()), 0);
  Result<HashedTree> hashed = HashFiles(*listing);
  ASSERT_TRUE(hashed.ok());
  EXPECT_THAT(PathsOf(hashed->tree), ElementsAre("stays"));
  EXPECT_EQ(hashed->warnings.size(), 3U);
}

TEST_F(HashFilesTest, AFileThatAlwaysChangesIsAnError) {
  // Long enough to read that the writer gets its turn meanwhile, on a busy machine too.
  Put(At("log"), std::string(64 << 20, 'x'));
  Result<Listing> listing = Scan(root_);
  std::atomic<bool> stop = false;
  std::atomic<bool> writing = false;
  std::thread writer([&] {
    Result<UniqueFd> fd = OpenFile(At("log"), O_WRONLY | O_APPEND);
    while (!stop) {
      IgnoreError(WriteAll(fd->get(), "more"), "the test sees it");
      writing = true;
    }
  });
  EXPECT_TRUE(testing::Eventually([&] { return writing.load(); }));
  Result<HashedTree> hashed = HashFiles(*listing);
  stop = true;
  writer.join();
  ASSERT_FALSE(hashed.ok());
  EXPECT_EQ(hashed.status().code(), StatusCode::kAborted);
  EXPECT_THAT(hashed.status().message(), HasSubstr("log: it changes while it is read"));
}

TEST_F(HashFilesTest, ManyFilesInSeveralThreads) {
  for (int i = 0; i < 2000; ++i)
    Put(At("d" + std::to_string(i % 7) + "/" + std::to_string(i)), std::to_string(i));
  HashOptions options;
  options.threads = 4;
  Result<HashedTree> hashed = HashFiles(*Scan(root_), options);
  ASSERT_TRUE(hashed.ok());
  ASSERT_EQ(hashed->tree.entries.size(), 2000U);
  for (const TreeEntry& entry : hashed->tree.entries) {
    EXPECT_EQ(entry.hash, Hash::Of(BaseName(entry.path)));
  }
}

}  // namespace
}  // namespace gpulayer::tree
