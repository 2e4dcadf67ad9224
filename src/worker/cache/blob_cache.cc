#include "worker/cache/blob_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/host.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/text.h"

namespace gpulayer::worker {
namespace {

constexpr std::size_t kReadBytes = 256 * 1024;

Result<Hash> HashOfFile(const std::string& path) {
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  Hasher hasher;
  std::string buffer(kReadBytes, '\0');
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n,
                              ReadSome(fd.get(), buffer.data(), buffer.size()));
    if (n == 0) return hasher.Finish();
    hasher.Update({buffer.data(), n});
  }
}

std::int64_t Nanoseconds(const timespec& t) {
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Changes with every write to a file and every other file in its place.
struct FileStamp {
  ino_t inode = 0;
  std::int64_t size = 0;
  std::int64_t ctime_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

FileStamp StampOf(const struct stat& info) {
#if defined(__APPLE__)
  return {info.st_ino, info.st_size, Nanoseconds(info.st_ctimespec)};
#else
  return {info.st_ino, info.st_size, Nanoseconds(info.st_ctim)};
#endif
}

// All zero if there is no such file.
FileStamp StampOf(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 ? StampOf(info) : FileStamp();
}

}  // namespace

class BlobCacheImpl final : public BlobCache {
 public:
  explicit BlobCacheImpl(const Options& options)
      : root_(JoinPath(options.dir, "v1")), max_bytes_(options.max_bytes) {}

  Status Start() {
    GPULAYER_RETURN_IF_ERROR(RemoveTree(JoinPath(root_, "tmp")));  // of a process that was killed
    GPULAYER_RETURN_IF_ERROR(MakeDirs(JoinPath(root_, "tmp")));
    const std::string boot = BootId(), boot_file = JoinPath(root_, "boot");
    const Result<std::string> last = ReadFile(boot_file);
    const bool same_boot = !boot.empty() && last.ok() && *last == boot;
    GPULAYER_RETURN_IF_ERROR(Load(same_boot));
    if (!same_boot) {
      GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(boot_file, boot, 0600, Durability::kNone));
    }
    Evict();
    return OkStatus();
  }

  Result<Pins> Ensure(const std::vector<Hash>& hashes, const Fetch& fetch,
                      TimePoint deadline) override;
  Result<UniqueFd> OpenBlob(const Hash& hash) override {
    Result<UniqueFd> fd = OpenFile(PathOf(hash), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    struct stat info = {};
    const bool read = fd.ok() && fstat(fd->get(), &info) == 0;
    MutexLock lock(mutex_);
    const auto it = entries_.find(hash);
    if (it == entries_.end() || !it->second.here) {
      return NotFound("open blob " + hash.hex() + ": it is not in the cache");
    }
    if (read && StampOf(info) == it->second.stamp) return fd;
    // Whoever did that may have gone over all of them, chmod -R or a copy with hard links: hashed anew
    // as they are needed, all at once for whoever asks next.
    for (auto& [other, entry] : entries_) entry.trusted = false;
    return DataLoss("open blob " + hash.hex() + ": its file in the cache was changed or removed");
  }
  Result<std::string> ReadBlob(const Hash& hash, std::int64_t max_bytes) override {
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenBlob(hash));
    struct stat info = {};
    if (fstat(fd.get(), &info) != 0) return ErrnoStatus("stat blob " + hash.hex(), errno);
    if (info.st_size > max_bytes) {
      return ResourceExhausted("read blob " + hash.hex() + ": it has " + FormatSize(info.st_size) +
                               ", more than the limit of " + FormatSize(max_bytes));
    }
    std::string data(static_cast<std::size_t>(info.st_size), '\0');
    std::size_t done = 0;
    while (done < data.size()) {
      GPULAYER_ASSIGN_OR_RETURN(const std::size_t n,
                                ReadSome(fd.get(), data.data() + done, data.size() - done));
      if (n == 0) return DataLoss("read blob " + hash.hex() + ": it became shorter");
      done += n;
    }
    return data;
  }
  void Drop(const Hash& hash) override;
  std::int64_t bytes() const override {
    MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  class SinkImpl;

  struct Entry {
    std::int64_t size = 0;
    FileStamp stamp;  // of the file that had the right hash
    int pins = 0;
    bool here = false;              // whole, and its file is in place
    bool busy = false;              // somebody fetches or verifies it
    bool trusted = true;            // false: of an earlier boot, to be hashed before use
    std::list<Hash>::iterator use;  // in uses_, if here
  };

  std::string PathOf(const Hash& hash) const {
    const std::string hex = hash.hex();
    return JoinPath(JoinPath(root_, hex.substr(0, 2)), hex.substr(2));
  }

  Status Load(bool trusted);
  void Unpin(const std::vector<Hash>& hashes) override;
  void Evict();
  void Added(const Hash& hash, std::int64_t size, const FileStamp& stamp);
  // What this caller has taken upon itself to fetch or verify.
  struct Claim {
    std::vector<Hash> fetch;
    std::vector<Hash> verify;
    bool complete = true;  // all are here
  };
  Claim TakeClaim(const std::vector<Hash>& hashes) GPULAYER_REQUIRES(mutex_);
  void EndClaim(const std::vector<Hash>& hashes);
  Status Work(const Claim& claim, const Fetch& fetch);

  const std::string root_;
  const std::int64_t max_bytes_;

  mutable Mutex mutex_;
  CondVar changed_;  // an entry is no longer busy
  std::unordered_map<Hash, Entry> entries_ GPULAYER_GUARDED_BY(mutex_);
  std::list<Hash> uses_ GPULAYER_GUARDED_BY(mutex_);  // least recently used first
  std::int64_t bytes_ GPULAYER_GUARDED_BY(mutex_) = 0;
};

// Writes one blob after the other into tmp/ and moves each to its place once its hash is proved.
class BlobCacheImpl::SinkImpl final : public BlobCache::Sink {
 public:
  SinkImpl(BlobCacheImpl* cache, const std::vector<Hash>& wanted)
      : cache_(cache), wanted_(wanted.begin(), wanted.end()) {}
  ~SinkImpl() override { Abandon(); }

  Status Begin(const Hash& hash, std::int64_t size) override {
    Abandon();
    if (!wanted_.contains(hash)) {
      return InvalidArgument("store blob " + hash.hex() + ": nobody asked for it");
    }
    hash_ = hash;
    expected_ = size;
    written_ = 0;
    hasher_ = Hasher();
    path_ = JoinPath(JoinPath(cache_->root_, "tmp"), RandomHex(16));
    Result<UniqueFd> fd = OpenFile(path_, O_WRONLY | O_CREAT | O_EXCL);
    if (fd.ok()) fd_ = *std::move(fd);
    return AsInternal(fd.status());
  }

  Status Append(std::string_view data) override {
    if (!fd_.valid()) return FailedPrecondition("store blob: bytes without a beginning");
    written_ += static_cast<std::int64_t>(data.size());
    if (expected_ >= 0 && written_ > expected_) return Damaged("more bytes than announced");
    hasher_.Update(data);
    return AsInternal(WriteAll(fd_.get(), data).Prefixed("store blob " + hash_.hex()));
  }

  Status End() override {
    if (!fd_.valid()) return FailedPrecondition("store blob: an end without a beginning");
    if (expected_ >= 0 && written_ != expected_) return Damaged("fewer bytes than announced");
    if (hasher_.Finish() != hash_) return Damaged("the bytes have another hash");
    if (int error = MoveTo(cache_->PathOf(hash_)); error != 0) {
      Abandon();
      return AsInternal(ErrnoStatus("store blob " + hash_.hex(), error));
    }
    fd_.Reset();
    wanted_.erase(hash_);  // a second time would count its bytes twice
    cache_->Added(hash_, written_, StampOf(cache_->PathOf(hash_)));
    return OkStatus();
  }

  const std::unordered_set<Hash>& missing() const { return wanted_; }

 private:
  // 0 or an errno. A folder for each first byte of a hash is made when it is needed.
  int MoveTo(const std::string& place) const {
    if (rename(path_.c_str(), place.c_str()) == 0) return 0;
    if (errno != ENOENT) return errno;
    if (mkdir(DirName(place).c_str(), 0700) != 0 && errno != EEXIST) return errno;
    return rename(path_.c_str(), place.c_str()) == 0 ? 0 : errno;
  }
  Status Damaged(const char* why) {
    Abandon();
    return DataLoss("store blob " + hash_.hex() + ": " + why + ". It was damaged on its way");
  }
  void Abandon() {
    if (!fd_.valid()) return;
    fd_.Reset();
    unlink(path_.c_str());
  }

  BlobCacheImpl* const cache_;
  std::unordered_set<Hash> wanted_;
  Hash hash_;
  std::int64_t expected_ = 0, written_ = 0;
  Hasher hasher_;
  std::string path_;
  UniqueFd fd_;
};

Status BlobCacheImpl::Load(bool trusted) {
  struct Found {
    Hash hash;
    FileStamp stamp;
    std::int64_t used;
  };
  std::vector<Found> found;
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<std::string> prefixes, ListDir(root_));
  for (const std::string& prefix : prefixes) {
    if (prefix.size() != 2) continue;
    const std::string dir = JoinPath(root_, prefix);
    GPULAYER_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(dir));
    for (const std::string& name : names) {
      const Result<Hash> hash = Hash::FromHex(prefix + name);
      struct stat info = {};
      if (!hash.ok() || lstat(JoinPath(dir, name).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
        continue;  // not ours; it is left alone
      }
      found.push_back({*hash, StampOf(info), std::max<std::int64_t>(info.st_atime, info.st_mtime)});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.used < b.used; });
  MutexLock lock(mutex_);
  for (const Found& blob : found) {
    Entry entry;
    entry.size = blob.stamp.size;
    entry.stamp = blob.stamp;
    entry.here = true;
    entry.trusted = trusted;
    entry.use = uses_.insert(uses_.end(), blob.hash);
    bytes_ += blob.stamp.size;
    entries_.emplace(blob.hash, entry);
  }
  return OkStatus();
}

void BlobCacheImpl::Added(const Hash& hash, std::int64_t size, const FileStamp& stamp) {
  MutexLock lock(mutex_);
  Entry& entry = entries_[hash];  // busy: this thread's
  entry.size = size;
  entry.stamp = stamp;
  entry.here = entry.trusted = true;
  entry.use = uses_.insert(uses_.end(), hash);
  bytes_ += size;
}

BlobCacheImpl::Claim BlobCacheImpl::TakeClaim(const std::vector<Hash>& hashes) {
  Claim claim;
  for (const Hash& hash : hashes) {
    Entry& entry = entries_[hash];
    if (entry.busy) {
      claim.complete = false;
    } else if (!entry.here || !entry.trusted) {
      claim.complete = false;
      entry.busy = true;
      (entry.here ? claim.verify : claim.fetch).push_back(hash);
    }
  }
  return claim;
}

void BlobCacheImpl::EndClaim(const std::vector<Hash>& hashes) {
  MutexLock lock(mutex_);
  for (const Hash& hash : hashes) entries_[hash].busy = false;
  changed_.NotifyAll();
}

// What fails verification is simply gone: the next round fetches it.
Status BlobCacheImpl::Work(const Claim& claim, const Fetch& fetch) {
  for (const Hash& hash : claim.verify) {
    const FileStamp stamp = StampOf(PathOf(hash));  // before it is read
    const Result<Hash> real = HashOfFile(PathOf(hash));
    const bool good = real.ok() && *real == hash;
    if (!good) unlink(PathOf(hash).c_str());
    MutexLock lock(mutex_);
    Entry& entry = entries_[hash];
    entry.trusted = true;
    entry.stamp = stamp;
    if (!good) {
      bytes_ -= entry.size;
      uses_.erase(entry.use);
      entry.here = false;
    }
  }
  if (claim.fetch.empty()) return OkStatus();
  SinkImpl sink(this, claim.fetch);
  GPULAYER_RETURN_IF_ERROR(fetch(claim.fetch, sink));
  if (!sink.missing().empty()) {
    return NotFound("fetch blob " + sink.missing().begin()->hex() + ": it did not arrive");
  }
  return OkStatus();
}

Result<BlobCache::Pins> BlobCacheImpl::Ensure(const std::vector<Hash>& hashes, const Fetch& fetch,
                                              TimePoint deadline) {
  std::vector<Hash> wanted = hashes;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  Pins pins;
  {
    // Pinned before they are here: what arrives for us is not evicted while the rest travels.
    MutexLock lock(mutex_);
    for (const Hash& hash : wanted) ++entries_[hash].pins;
  }
  pins.cache_ = this;
  pins.hashes_ = wanted;
  for (;;) {
    Claim claim;
    {
      MutexLock lock(mutex_);
      for (;;) {
        claim = TakeClaim(wanted);
        if (claim.complete || !claim.fetch.empty() || !claim.verify.empty()) break;
        const Duration left = deadline - Clock::System().Now().mono;
        if (left <= Duration::zero()) {
          return DeadlineExceeded("fetch " + std::to_string(wanted.size()) +
                                  " blobs: another attempt's fetch of them did not end in time");
        }
        changed_.WaitFor(mutex_, left);
      }
      if (claim.complete) {
        for (const Hash& hash : wanted) {
          Entry& entry = entries_[hash];
          uses_.splice(uses_.end(), uses_, entry.use);
        }
      }
    }
    if (claim.complete) break;
    const Status status = Work(claim, fetch);
    EndClaim(claim.fetch);
    EndClaim(claim.verify);
    if (!status.ok()) return status;
  }
  Evict();
  return pins;
}

void BlobCacheImpl::Unpin(const std::vector<Hash>& hashes) {
  {
    MutexLock lock(mutex_);
    for (const Hash& hash : hashes) {
      const auto it = entries_.find(hash);
      if (it == entries_.end()) continue;
      Entry& entry = it->second;
      if (--entry.pins > 0 || entry.busy) continue;
      if (!entry.here) entries_.erase(it);  // it never came
    }
  }
  Evict();
}

void BlobCacheImpl::Drop(const Hash& hash) {
  MutexLock lock(mutex_);
  const auto it = entries_.find(hash);
  // Hashed before its next use, and fetched again if it is damaged indeed.
  if (it != entries_.end() && it->second.here) it->second.trusted = false;
}

// The file goes while the lock is held for none: the entry is marked busy meanwhile, so whoever
// wants the blob again waits for the end of its removal and fetches it then.
void BlobCacheImpl::Evict() {
  std::vector<Hash> gone;
  {
    MutexLock lock(mutex_);
    for (auto it = uses_.begin(); it != uses_.end() && bytes_ > max_bytes_;) {
      Entry& entry = entries_[*it];
      if (entry.pins > 0 || entry.busy) {
        ++it;
        continue;
      }
      bytes_ -= entry.size;
      entry.here = false;
      entry.busy = true;
      gone.push_back(*it);
      it = uses_.erase(it);
    }
  }
  if (gone.empty()) return;
  for (const Hash& hash : gone) unlink(PathOf(hash).c_str());
  MutexLock lock(mutex_);
  for (const Hash& hash : gone) {
    const auto it = entries_.find(hash);
    it->second.busy = false;
    if (it->second.pins == 0) entries_.erase(it);
  }
  changed_.NotifyAll();
}

BlobCache::Pins::Pins(Pins&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), hashes_(std::move(other.hashes_)) {}

BlobCache::Pins& BlobCache::Pins::operator=(Pins&& other) noexcept {
  if (this != &other) {
    Release();
    cache_ = std::exchange(other.cache_, nullptr);
    hashes_ = std::move(other.hashes_);
  }
  return *this;
}

void BlobCache::Pins::Release() {
  if (BlobCache* cache = std::exchange(cache_, nullptr)) cache->Unpin(hashes_);
  hashes_.clear();
}

Result<std::unique_ptr<BlobCache>> BlobCache::Open(const Options& options) {
  auto cache = std::make_unique<BlobCacheImpl>(options);
  if (Status status = cache->Start(); !status.ok()) {
    return status.Prefixed("open blob cache " + options.dir);
  }
  return std::unique_ptr<BlobCache>(std::move(cache));
}

}  // namespace gpulayer::worker
