#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#endif

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "model/limits.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "tree/collect.h"
#include "worker/cache/blob_cache.h"
#include "worker/cache/work_dirs.h"

namespace gpulayer::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;
using namespace std::chrono_literals;

TimePoint In(Duration d) { return Clock::System().Now().mono + d; }

// A server's blobs, with a count of how often each was asked for.
class Remote {
 public:
  Hash Put(const std::string& content) {
    const Hash hash = Hash::Of(content);
    MutexLock lock(mutex_);
    blobs_[hash] = content;
    return hash;
  }
  BlobCache::Fetch Fetch() {
    return [this](const std::vector<Hash>& missing, BlobCache::Sink& sink) {
      for (const Hash& hash : missing) {
        std::string content;
        {
          MutexLock lock(mutex_);
          ++asked_[hash];
          const auto it = blobs_.find(hash);
          if (it == blobs_.end()) return NotFound("no such blob");
          content = it->second;
        }
        GPULAYER_RETURN_IF_ERROR(sink.Begin(hash, static_cast<std::int64_t>(content.size())));
        GPULAYER_RETURN_IF_ERROR(sink.Append(content.substr(0, content.size() / 2)));
        GPULAYER_RETURN_IF_ERROR(sink.Append(content.substr(content.size() / 2)));
        GPULAYER_RETURN_IF_ERROR(sink.End());
      }
      return OkStatus();
    };
  }
  int asked(const Hash& hash) {
    MutexLock lock(mutex_);
    return asked_[hash];
  }

 private:
  Mutex mutex_;
  std::map<Hash, std::string> blobs_ GPULAYER_GUARDED_BY(mutex_);
  std::map<Hash, int> asked_ GPULAYER_GUARDED_BY(mutex_);
};

class BlobCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<BlobCache> Open(std::int64_t max_bytes = 1 << 20) {
    BlobCache::Options options;
    options.dir = dir_ / "cache";
    options.max_bytes = max_bytes;
    Result<std::unique_ptr<BlobCache>> cache = BlobCache::Open(options);
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    return cache.ok() ? *std::move(cache) : nullptr;
  }
  std::string PathOf(const Hash& hash) const {
    return dir_ / "cache/v1/" + hash.hex().substr(0, 2) + "/" + hash.hex().substr(2);
  }

  TempDir dir_;
  Remote remote_;
};

TEST_F(BlobCacheTest, FetchesOnceAndKeepsAcrossRestarts) {
  const Hash a = remote_.Put("aaa"), b = remote_.Put("bb");
  {
    std::unique_ptr<BlobCache> cache = Open();
    Result<BlobCache::Pins> pins = cache->Ensure({a, b, a}, remote_.Fetch(), In(10s));
    ASSERT_TRUE(pins.ok()) << pins.status().ToString();
    EXPECT_EQ(*cache->ReadBlob(a, 100), "aaa");
    EXPECT_EQ(cache->ReadBlob(a, 2).status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(cache->bytes(), 5);
    ASSERT_TRUE(cache->Ensure({a}, remote_.Fetch(), In(10s)).ok());
  }
  ASSERT_TRUE(WriteFileAtomic(dir_ / "cache/v1/tmp/left", "x").ok());
  std::unique_ptr<BlobCache> cache = Open();
  ASSERT_TRUE(cache->Ensure({a, b}, remote_.Fetch(), In(10s)).ok());
  EXPECT_EQ(remote_.asked(a), 1);
  EXPECT_EQ(remote_.asked(b), 1);
  EXPECT_THAT(*ListDir(dir_ / "cache/v1/tmp"), IsEmpty());
}

TEST_F(BlobCacheTest, SeveralThatWantTheSameFetchItOnce) {
  std::unique_ptr<BlobCache> cache = Open();
  std::vector<Hash> all;
  for (int i = 0; i < 50; ++i) all.push_back(remote_.Put("blob " + std::to_string(i)));
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<Hash> mine(all.begin() + static_cast<long>(t), all.end());
      Result<BlobCache::Pins> pins = cache->Ensure(mine, remote_.Fetch(), In(60s));
      bool here = pins.ok();
      for (const Hash& hash : mine) here = here && cache->OpenBlob(hash).ok();
      good += here ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
  for (const Hash& hash : all) EXPECT_EQ(remote_.asked(hash), 1);
}

TEST_F(BlobCacheTest, AFailedFetchIsTriedByTheNextThatWaits) {
  std::unique_ptr<BlobCache> cache = Open();
  const Hash a = remote_.Put("a");
  std::atomic<bool> started = false, may_fail = false;
  const BlobCache::Fetch fails = [&](const std::vector<Hash>&, BlobCache::Sink&) {
    started = true;
    EXPECT_TRUE(testing::Eventually([&] { return may_fail.load(); }, 60s));
    return Unavailable("cut");
  };
  Status first;
  std::thread one([&] { first = cache->Ensure({a}, fails, In(60s)).status(); });
  ASSERT_TRUE(testing::Eventually([&] { return started.load(); }, 60s));
  EXPECT_EQ(cache->Ensure({a}, remote_.Fetch(), In(1ms)).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(remote_.asked(a), 0);
  std::thread two([&] { EXPECT_TRUE(cache->Ensure({a}, remote_.Fetch(), In(60s)).ok()); });
  may_fail = true;
  one.join();
  two.join();
  EXPECT_EQ(first.code(), StatusCode::kUnavailable);
  EXPECT_EQ(*cache->ReadBlob(a, 10), "a");
}

TEST_F(BlobCacheTest, WrongBytesAreRefused) {
  std::unique_ptr<BlobCache> cache = Open();
  const Hash a = Hash::Of("a"), b = Hash::Of("b");
  const auto feed = [&](const Hash& hash, std::int64_t size, const std::string& data) {
    return cache
        ->Ensure(
            {a},
            [&](const std::vector<Hash>&, BlobCache::Sink& sink) {
              GPULAYER_RETURN_IF_ERROR(sink.Begin(hash, size));
              GPULAYER_RETURN_IF_ERROR(sink.Append(data));
              return sink.End();
            },
            In(10s))
        .status();
  };
  EXPECT_EQ(feed(a, 1, "x").code(), StatusCode::kDataLoss);
  EXPECT_EQ(feed(a, 2, "a").code(), StatusCode::kDataLoss);
  EXPECT_EQ(feed(a, 1, "ab").code(), StatusCode::kDataLoss);
  EXPECT_EQ(feed(b, 1, "b").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->Ensure(
                     {a}, [](auto&, auto&) { return OkStatus(); }, In(10s))
                .status()
                .code(),
            StatusCode::kNotFound);
  EXPECT_EQ(cache->bytes(), 0);
  EXPECT_THAT(*ListDir(dir_ / "cache/v1/tmp"), IsEmpty());
  EXPECT_TRUE(feed(a, -1, "a").ok());
}

TEST_F(BlobCacheTest, EvictsLeastRecentlyUsedButNeverPinned) {
  std::unique_ptr<BlobCache> cache = Open(/*max_bytes=*/250);
  const Hash a = remote_.Put(std::string(100, 'a')), b = remote_.Put(std::string(100, 'b')),
             c = remote_.Put(std::string(100, 'c')), d = remote_.Put(std::string(100, 'd'));
  BlobCache::Pins pinned = *cache->Ensure({a}, remote_.Fetch(), In(10s));
  ASSERT_TRUE(cache->Ensure({b}, remote_.Fetch(), In(10s)).ok());
  ASSERT_TRUE(cache->Ensure({c}, remote_.Fetch(), In(10s)).ok());
  EXPECT_EQ(cache->bytes(), 200);
  EXPECT_TRUE(PathExists(PathOf(a)));
  EXPECT_FALSE(PathExists(PathOf(b)));
  {
    // All pinned: over the size until they are let go.
    BlobCache::Pins more = *cache->Ensure({b, c, d}, remote_.Fetch(), In(10s));
    EXPECT_EQ(cache->bytes(), 400);
  }
  EXPECT_EQ(cache->bytes(), 200);
  EXPECT_TRUE(PathExists(PathOf(a)));
  pinned.Release();
  EXPECT_EQ(cache->bytes(), 200);
  EXPECT_EQ(remote_.asked(b), 2);
  EXPECT_EQ(remote_.asked(a), 1);
}

// Nothing is fsynced: after a crash of the machine a file may hold other bytes.
TEST_F(BlobCacheTest, AnotherBootsBlobsAreProvedBeforeUse) {
  const Hash a = remote_.Put("aaa"), b = remote_.Put("bbb");
  ASSERT_TRUE(Open()->Ensure({a, b}, remote_.Fetch(), In(10s)).ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "cache/v1/boot", "an earlier one\n").ok());
  ASSERT_EQ(truncate(PathOf(a).c_str(), 0), 0);
  std::unique_ptr<BlobCache> cache = Open();
  ASSERT_TRUE(cache->Ensure({a, b}, remote_.Fetch(), In(10s)).ok());
  EXPECT_EQ(remote_.asked(a), 2);
  EXPECT_EQ(remote_.asked(b), 1);
  EXPECT_EQ(*cache->ReadBlob(a, 10), "aaa");
  EXPECT_EQ(cache->bytes(), 6);
}

TEST_F(BlobCacheTest, ADroppedBlobIsFetchedAgainOnlyIfDamaged) {
  const Hash a = remote_.Put("aaa"), b = remote_.Put("bbb");
  std::unique_ptr<BlobCache> cache = Open();
  ASSERT_TRUE(cache->Ensure({a, b}, remote_.Fetch(), In(10s)).ok());
  ASSERT_EQ(truncate(PathOf(a).c_str(), 1), 0);
  cache->Drop(a);
  cache->Drop(b);
  ASSERT_TRUE(cache->Ensure({a, b}, remote_.Fetch(), In(10s)).ok());
  EXPECT_EQ(remote_.asked(a), 2);
  EXPECT_EQ(remote_.asked(b), 1);
}

TEST_F(BlobCacheTest, AFileThatWasChangedOrRemovedIsFetchedAgain) {
  const Hash a = remote_.Put("aaa"), b = remote_.Put("bbb"), c = remote_.Put("ccc");
  std::unique_ptr<BlobCache> cache = Open();
  ASSERT_TRUE(cache->Ensure({a, b, c}, remote_.Fetch(), In(10s)).ok());
  const UniqueFd fd(open(PathOf(a).c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(pwrite(fd.get(), "x", 1, 1), 1);
  ASSERT_EQ(unlink(PathOf(b).c_str()), 0);
  EXPECT_EQ(cache->OpenBlob(a).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(cache->OpenBlob(b).status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(cache->OpenBlob(c).ok());
  const auto pins = cache->Ensure({a, b, c}, remote_.Fetch(), In(10s));
  ASSERT_TRUE(pins.ok()) << pins.status().ToString();
  EXPECT_EQ(*cache->ReadBlob(a, 10), "aaa");
  EXPECT_EQ(*cache->ReadBlob(b, 10), "bbb");
  EXPECT_EQ(remote_.asked(a), 2);
  EXPECT_EQ(remote_.asked(b), 2);
  EXPECT_EQ(remote_.asked(c), 1);
  EXPECT_EQ(cache->bytes(), 9);
}

TEST_F(BlobCacheTest, WhereAllFilesWereTouchedOneLookMendsAllOfThem) {
  std::vector<Hash> all;
  for (int i = 0; i < 15; ++i) all.push_back(remote_.Put("blob " + std::to_string(i)));
  std::unique_ptr<BlobCache> cache = Open();
  ASSERT_TRUE(cache->Ensure(all, remote_.Fetch(), In(10s)).ok());
  for (const Hash& hash : all) ASSERT_EQ(chmod(PathOf(hash).c_str(), 0400), 0);
  EXPECT_EQ(cache->OpenBlob(all[3]).status().code(), StatusCode::kDataLoss);
  ASSERT_TRUE(cache->Ensure(all, remote_.Fetch(), In(10s)).ok());
  for (const Hash& hash : all) {
    EXPECT_TRUE(cache->OpenBlob(hash).ok());
    EXPECT_EQ(remote_.asked(hash), 1);
  }
}

class WorkDirsTest : public BlobCacheTest {
 protected:
  WorkDirsTest() : dirs_(*WorkDirs::Open(dir_ / "work", dir_ / "kept")), cache_(Open()) {
    for (const char* name : {"a", "b/c"}) {
      TreeEntry entry;
      entry.path = name;
      entry.hash = remote_.Put(name);
      entry.size = static_cast<std::int64_t>(entry.path.size());
      entry.mode = 0755;
      source_.entries.push_back(entry);
    }
  }
  std::unique_ptr<WorkDirs> dirs_;
  std::unique_ptr<BlobCache> cache_;
  Tree source_;
};

TEST_F(WorkDirsTest, WhatTheProgramClosedToItsAccountIsReadAndRemoved) {
  const BlobCache::Pins pins = *cache_->Ensure(BlobsOf(source_), remote_.Fetch(), In(10s));
  const AttemptId id("closed");
  const Result<WorkDir> dir = dirs_->Create(id, &source_, *cache_);
  ASSERT_TRUE(dir.ok()) << dir.status().ToString();
  ASSERT_EQ(chmod(dir->path.c_str(), 0), 0);
  EXPECT_TRUE(dirs_->Adopt(id).ok());
  struct stat st = {};
  ASSERT_EQ(stat(dir->path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0700, 0700U);
  ASSERT_EQ(chmod(dir->path.c_str(), 0), 0);
  EXPECT_TRUE(dirs_->Discard(id).ok());
  EXPECT_FALSE(PathExists(dir->path));
}

TEST_F(WorkDirsTest, LaysOutAdoptsAndFindsChanges) {
  BlobCache::Pins pins = *cache_->Ensure(BlobsOf(source_), remote_.Fetch(), In(10s));
  Result<WorkDir> made = dirs_->Create(AttemptId("at1"), &source_, *cache_);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->work, dir_ / "work/v1/at1/work");
  EXPECT_EQ(*ReadFile(made->work + "/b/c"), "b/c");
  ASSERT_TRUE(dirs_->Create(AttemptId("at2"), nullptr, *cache_).ok());

  dirs_ = *WorkDirs::Open(dir_ / "work", dir_ / "kept");  // another process
  EXPECT_THAT(*dirs_->List(), ElementsAre(AttemptId("at1"), AttemptId("at2")));
  Result<WorkDir> again = dirs_->Adopt(AttemptId("at1"));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->stamp, made->stamp);
  EXPECT_EQ(dirs_->Adopt(AttemptId("at3")).status().code(), StatusCode::kNotFound);

  tree::CollectRequest request;
  request.work_dir = again->work;
  request.output_dir = again->out;
  request.source = &source_;
  request.stamp = again->stamp;
  Result<tree::Collected> collected = tree::Collect(request);
  ASSERT_TRUE(collected.ok());
  EXPECT_THAT(collected->tree.entries, IsEmpty());
  EXPECT_EQ(collected->hashed_files, 0);
  // At once, and of the same size.
  const int fd = open((again->work + "/a").c_str(), O_WRONLY);
  EXPECT_EQ(write(fd, "X", 1), 1);
  close(fd);
  collected = tree::Collect(request);
  ASSERT_EQ(collected->tree.entries.size(), 1U);
  EXPECT_EQ(collected->tree.entries[0].path, "a");
}

TEST_F(WorkDirsTest, DiscardIsAtOnceAndDeletesBehind) {
  Result<WorkDir> made = dirs_->Create(AttemptId("at1"), nullptr, *cache_);
  ASSERT_TRUE(made.ok());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(WriteFileAtomic(made->work + "/" + std::to_string(i), "x").ok());
  }
  ASSERT_TRUE(dirs_->Discard(AttemptId("at1")).ok());
  EXPECT_FALSE(PathExists(made->path));
  EXPECT_TRUE(dirs_->Discard(AttemptId("at1")).ok());
  EXPECT_TRUE(testing::Eventually([&] { return ListDir(dir_ / "work/v1/.trash")->empty(); }, 10s));
  EXPECT_THAT(*dirs_->List(), IsEmpty());
}

TEST_F(WorkDirsTest, AKeptFolderIsOutOfReachOfOthersAndTheNewestStay) {
  const std::string kept = dir_ / "kept";
  for (std::size_t i = 0; i < limits::kKeptFolders + 3; ++i) {
    const AttemptId id("at" + std::to_string(100 + i));
    const Result<WorkDir> made = dirs_->Create(id, nullptr, *cache_);
    ASSERT_TRUE(made.ok());
    ASSERT_TRUE(WriteFileAtomic(made->work + "/x", id.value()).ok());
    ASSERT_TRUE(dirs_->Keep(id).ok());
    EXPECT_TRUE(dirs_->Keep(id).ok()) << "again, after a restart in between";
    EXPECT_EQ(*dirs_->PlaceToKeep(id), kept + "/" + id.value());
    EXPECT_FALSE(PathExists(made->path));
  }
  EXPECT_THAT(*dirs_->List(), IsEmpty());
  ASSERT_TRUE(testing::Eventually([&] { return ListDir(kept)->size() == limits::kKeptFolders; }));
  EXPECT_EQ(ListDir(kept)->front(), "at103");
  EXPECT_EQ(*ReadFile(JoinPath(JoinPath(kept, "at122"), "work/x")), "at122");
  struct stat st = {};
  ASSERT_EQ(stat(kept.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700U);

  // Whose time is over goes at the next start at the latest.
  timespec old[2] = {};
  clock_gettime(CLOCK_REALTIME, &old[1]);
  old[1].tv_sec -= std::chrono::seconds(limits::kKeptFor).count() + 1;
  ASSERT_EQ(utimensat(AT_FDCWD, (kept + "/at110").c_str(), old, 0), 0);
  dirs_ = *WorkDirs::Open(dir_ / "work", kept);
  EXPECT_TRUE(testing::Eventually([&] { return !PathExists(kept + "/at110"); }));
  EXPECT_EQ(ListDir(kept)->size(), limits::kKeptFolders - 1);
}

TEST_F(WorkDirsTest, ALinkInTheFoldersPlaceIsNotKept) {
  const Result<WorkDir> made = dirs_->Create(AttemptId("at"), nullptr, *cache_);
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(RemoveTree(made->path).ok());
  ASSERT_EQ(symlink("/", made->path.c_str()), 0);
  EXPECT_TRUE(dirs_->Keep(AttemptId("at")).ok());
  EXPECT_THAT(*ListDir(dir_ / "kept"), IsEmpty());
  EXPECT_THAT(*dirs_->List(), IsEmpty());
}

TEST_F(WorkDirsTest, AFolderServesAgainEmptied) {
  Result<WorkDir> made = dirs_->Create(AttemptId("at1"), nullptr, *cache_);
  ASSERT_TRUE(made.ok());
  for (const std::string& dir : {made->work, made->out, made->tmp, made->input}) {
    ASSERT_TRUE(WriteFileAtomic(dir + "/x", "x").ok());
    ASSERT_TRUE(MakeDirs(dir + "/y/z").ok());
  }
  ASSERT_TRUE(WriteFileAtomic(made->path + "/stdin", "x").ok());
  const UniqueFd held = *OpenFile(made->work, O_RDONLY | O_DIRECTORY);  // a container, say
  ASSERT_TRUE(dirs_->Discard(AttemptId("at1")).ok());
  const std::string spare = dir_ / "work/v1/.spare";
  ASSERT_TRUE(testing::Eventually([&] { return ListDir(spare)->size() == 1; }, 10s));
  dirs_ = *WorkDirs::Open(dir_ / "work", dir_ / "kept");  // another process
  Result<WorkDir> again = dirs_->Create(AttemptId("at2"), nullptr, *cache_);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_THAT(*ListDir(spare), IsEmpty());
  EXPECT_FALSE(WriteFileAtomic("/proc/self/fd/" + std::to_string(held.get()) + "/late", "x").ok());
  EXPECT_THAT(*ListDir(again->path), ElementsAre("input", "layout", "out", "tmp", "work"));
  for (const std::string& dir : {again->work, again->out, again->tmp, again->input}) {
    EXPECT_THAT(*ListDir(dir), IsEmpty()) << dir;
  }
  EXPECT_EQ(dirs_->Adopt(AttemptId("at2"))->stamp, again->stamp);
}

TEST_F(WorkDirsTest, AFolderThatWasChangedDoesNotServeAgain) {
  const std::vector<std::function<void(const WorkDir&)>> changes = {
      [](const WorkDir& dir) { rmdir(dir.out.c_str()); },
      [](const WorkDir& dir) {
        rmdir(dir.out.c_str());
        EXPECT_EQ(symlink("/", dir.out.c_str()), 0);
      },
      [](const WorkDir& dir) { mkdir((dir.path + "/more").c_str(), 0755); },
      [](const WorkDir& dir) {
        unlink((dir.path + "/layout").c_str());
        EXPECT_EQ(mkfifo((dir.path + "/layout").c_str(), 0600), 0);
      },
      [](const WorkDir& dir) { chmod((dir.path + "/layout").c_str(), 0400); },
      [](const WorkDir& dir) {
        EXPECT_EQ(link((dir.path + "/layout").c_str(), (dir.path + "/tmp/hard").c_str()), 0);
        EXPECT_EQ(rename((dir.path + "/tmp/hard").c_str(), (dir.path + "/../.trash/hard").c_str()),
                  0);
      },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const AttemptId id("at" + std::to_string(i));
    Result<WorkDir> made = dirs_->Create(id, nullptr, *cache_);
    ASSERT_TRUE(made.ok());
    changes[i](*made);
    ASSERT_TRUE(dirs_->Discard(id).ok());
    const std::string trash = dir_ / "work/v1/.trash";
    ASSERT_TRUE(testing::Eventually([&] { return ListDir(trash)->empty(); }, 10s));
    EXPECT_THAT(*ListDir(dir_ / "work/v1/.spare"), IsEmpty()) << i;
  }
}

TEST_F(WorkDirsTest, WhateverAProgramDidToTheLayoutFileItsFolderIsAdoptedAtOnce) {
  const std::vector<std::function<void(const std::string&)>> changes = {
      [](const std::string& file) { EXPECT_EQ(mkfifo(file.c_str(), 0600), 0); },
      [](const std::string& file) { EXPECT_EQ(mkdir(file.c_str(), 0700), 0); },
      [](const std::string& file) { EXPECT_EQ(symlink("/etc/passwd", file.c_str()), 0); },
      [](const std::string& file) {
        ASSERT_TRUE(WriteFileAtomic(file, "x", 0600).ok());
        EXPECT_EQ(truncate(file.c_str(), std::int64_t{3} << 30), 0);
      },
      [](const std::string& file) { ASSERT_TRUE(WriteFileAtomic(file, "no number", 0600).ok()); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const AttemptId id("at" + std::to_string(i));
    const Result<WorkDir> made = dirs_->Create(id, nullptr, *cache_);
    ASSERT_TRUE(made.ok());
    ASSERT_EQ(unlink((made->path + "/layout").c_str()), 0);
    changes[i](made->path + "/layout");
    const Result<WorkDir> adopted = dirs_->Adopt(id);
    ASSERT_TRUE(adopted.ok()) << i << adopted.status().ToString();
    EXPECT_EQ(adopted->stamp.latest_ctime_ns, 0) << i;
    EXPECT_TRUE(dirs_->Discard(id).ok());
  }
}

TEST_F(WorkDirsTest, AFolderThatALinkReplacedIsNotFollowed) {
  const std::string decoy = dir_ / "decoy";
  ASSERT_TRUE(MakeDirs(decoy + "/work").ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(decoy, "work/f"), "not the job's").ok());
  const Result<WorkDir> made = dirs_->Create(AttemptId("at"), nullptr, *cache_);
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(RemoveTree(made->path).ok());
  ASSERT_EQ(symlink(decoy.c_str(), made->path.c_str()), 0);
  EXPECT_EQ(dirs_->Adopt(AttemptId("at")).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(dirs_->Discard(AttemptId("at")).ok());
  const std::string trash = dir_ / "work/v1/.trash";
  EXPECT_TRUE(testing::Eventually([&] { return ListDir(trash)->empty(); }, 10s));
  EXPECT_EQ(*ReadFile(JoinPath(decoy, "work/f")), "not the job's");
}

#if defined(__linux__)
TEST_F(WorkDirsTest, WhatAJobMountedIsNotKeptWithItsFolder) {
  const std::string data = dir_ / "data";
  ASSERT_TRUE(MakeDirs(data).ok());
  ASSERT_TRUE(WriteFileAtomic(data + "/f", "precious").ok());
  const Result<WorkDir> made = dirs_->Create(AttemptId("at"), nullptr, *cache_);
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(MakeDirs(made->work + "/m").ok());
  for (const std::string& at : {made->work + "/m", made->path}) {
    if (mount((at == made->path ? at : data).c_str(), at.c_str(), nullptr, MS_BIND, nullptr) != 0) {
      GTEST_SKIP() << "mount: " << std::strerror(errno);
    }
  }
  ASSERT_TRUE(dirs_->Keep(AttemptId("at")).ok());
  EXPECT_THAT(*ListDir(JoinPath(dir_ / "kept/at", "work/m")), IsEmpty());
  EXPECT_EQ(*ReadFile(data + "/f"), "precious");
}

TEST_F(WorkDirsTest, WhatAJobMountedKeepsItsContentAndIsTakenAway) {
  const std::string data = dir_ / "data";
  ASSERT_TRUE(MakeDirs(data + "/sub").ok());
  ASSERT_TRUE(WriteFileAtomic(data + "/sub/f", "precious").ok());
  for (const char* place : {"", "tmp", "work/m", "out/a b"}) {
    const Result<WorkDir> made = dirs_->Create(AttemptId("at"), nullptr, *cache_);
    ASSERT_TRUE(made.ok());
    const std::string at = JoinPath(made->path, place);
    ASSERT_TRUE(MakeDirs(at).ok());
    if (mount(data.c_str(), at.c_str(), nullptr, MS_BIND, nullptr) != 0) {
      GTEST_SKIP() << "mount: " << std::strerror(errno);
    }
    ASSERT_TRUE(dirs_->Discard(AttemptId("at")).ok());
    const std::string trash = dir_ / "work/v1/.trash";
    EXPECT_TRUE(testing::Eventually([&] { return ListDir(trash)->empty(); }, 10s)) << place;
    EXPECT_EQ(*ReadFile(data + "/sub/f"), "precious");
  }
}

TEST_F(WorkDirsTest, AFolderWhoseFlagsWereChangedDoesNotServeAgain) {
  const Result<WorkDir> made = dirs_->Create(AttemptId("at"), nullptr, *cache_);
  ASSERT_TRUE(made.ok());
  {
    const UniqueFd fd(open(made->path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int flags = 0;
    if (ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) != 0) GTEST_SKIP() << std::strerror(errno);
    flags |= FS_SYNC_FL;
    if (ioctl(fd.get(), FS_IOC_SETFLAGS, &flags) != 0) GTEST_SKIP() << std::strerror(errno);
  }
  ASSERT_TRUE(dirs_->Discard(AttemptId("at")).ok());
  const std::string trash = dir_ / "work/v1/.trash";
  EXPECT_TRUE(testing::Eventually([&] { return ListDir(trash)->empty(); }, 10s));
  EXPECT_THAT(*ListDir(dir_ / "work/v1/.spare"), IsEmpty());
}
#endif

TEST_F(WorkDirsTest, BadNamesAreRefused) {
  for (const char* name : {"", ".", "..", "../x", "a/b", ".trash"}) {
    EXPECT_EQ(dirs_->Create(AttemptId(name), nullptr, *cache_).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(dirs_->Discard(AttemptId(name)).code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(WorkDirsTest, ADamagedBlobIsFetchedAgain) {
  BlobCache::Pins pins = *cache_->Ensure(BlobsOf(source_), remote_.Fetch(), In(10s));
  ASSERT_EQ(truncate(PathOf(source_.entries[1].hash).c_str(), 1), 0);
  const Status status = dirs_->Create(AttemptId("at1"), &source_, *cache_).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("\"b/c\""));
  EXPECT_EQ(dirs_->Adopt(AttemptId("at1")).status().code(), StatusCode::kNotFound);
  BlobCache::Pins again = *cache_->Ensure(BlobsOf(source_), remote_.Fetch(), In(10s));
  EXPECT_TRUE(dirs_->Create(AttemptId("at1"), &source_, *cache_).ok());
}

}  // namespace
}  // namespace gpulayer::worker
