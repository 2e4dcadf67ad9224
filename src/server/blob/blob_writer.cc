// One upload: many blobs in a row, durable together.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/fault_point.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/text.h"
#include "server/blob/blob_files.h"
#include "server/blob/blob_store.h"
#include "server/blob/sync_behind.h"

namespace gpulayer::internal {
namespace {

// Up to this size a blob waits in memory for its hash: one open, write, close; nothing to remove if
// it is wrong. It is also the piece in which small appends to a larger one are gathered.
constexpr std::size_t kBufferBytes = 256 * 1024;
// A piece of a larger blob from this size on is written as it comes, without a copy.
constexpr std::size_t kDirectBytes = 64 * 1024;
// A larger blob is synced behind its writer, this much at a time, so that the sync at the end finds
// little left to wait for: 0.1 s instead of 1 s after 1 GiB. Only to start writing back
// (sync_file_range) leaves the device's own cache to be flushed at the end.
constexpr std::int64_t kSyncBytes = std::int64_t{64} << 20;
// Of a file that is taken over so much is hashed in one call, some 10 ms.
constexpr std::int64_t kAdoptBytes = std::int64_t{8} << 20;
// Up to so many new blobs each is synced by itself. Beyond, one syncfs is cheaper: 10,000 files of
// 1 KiB took 0.3 s by syncfs and 3.9 s by fdatasync of each (ext4). Not for a few: syncfs also
// waits for what others have to write. A descriptor is kept for each, so not many more.
constexpr std::size_t kFewBlobs = 32;

// What a worker draws: the proof and all else in the drop folder are named otherwise.
bool IsDropName(std::string_view name) {
  return name.size() == 32 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// The kernel grants a read lease only while nobody has the file open (or mapped) for writing. Where
// it knows no leases this says so of every file.
bool OpenForWriting(int fd) {
  // Who opens it between the two calls waits for the second; the signal that it causes must be one
  // that nobody minds: the default one ends the process.
  if (fcntl(fd, F_SETSIG, SIGURG) != 0 || fcntl(fd, F_SETLEASE, F_RDLCK) != 0) return true;
  fcntl(fd, F_SETLEASE, F_UNLCK);
  return false;
}

bool SameContent(const struct stat& a, const struct stat& b) {
  const auto same = [](const timespec& x, const timespec& y) {
    return x.tv_sec == y.tv_sec && x.tv_nsec == y.tv_nsec;
  };
  return a.st_size == b.st_size && same(a.st_mtim, b.st_mtim) && same(a.st_ctim, b.st_ctim);
}

class BlobWriter : public BlobStore::Writer {
 public:
  explicit BlobWriter(BlobFiles& files) : files_(files) {}
  ~BlobWriter() override { DropAll(); }

  Status Begin(const Hash& hash, std::int64_t size) override {
    if (open_) return FailedPrecondition("write blob: the one before was not ended");
    if (size < 0) return InvalidArgument("write blob " + hash.hex() + ": negative size");
    Current next;
    next.hash = hash;
    next.size = size;
    next.known = ended_.contains(hash) || (files_.Has(hash) && files_.SizeOf(hash) == size);
    if (!next.known) GPULAYER_RETURN_IF_ERROR(files_.Reserve(size));
    open_ = std::move(next);
    return OkStatus();
  }

  Status Append(std::string_view data) override {
    if (!open_) return FailedPrecondition("write blob: none was begun");
    Current& blob = *open_;
    if (static_cast<std::int64_t>(data.size()) > blob.size - blob.received) {
      return Drop(DataLoss("blob " + blob.hash.hex() + ": more bytes than the " +
                           std::to_string(blob.size) + " announced"));
    }
    blob.received += static_cast<std::int64_t>(data.size());
    if (blob.known || data.empty()) return OkStatus();
    hasher_.Update(data);
    const bool gather =
        blob.size <= static_cast<std::int64_t>(kBufferBytes) || data.size() < kDirectBytes;
    if (gather && buffer_.size() + data.size() <= kBufferBytes) {
      buffer_.append(data);
      return OkStatus();
    }
    Status status = WriteOut(buffer_);
    buffer_.clear();
    if (status.ok()) status = WriteOut(data);
    return status.ok() ? status : Drop(status);
  }

  Status End() override {
    if (!open_) return FailedPrecondition("write blob: none was begun");
    Current& blob = *open_;
    const Hash found = blob.known ? blob.hash : hasher_.Finish();
    if (blob.received != blob.size) {
      return Drop(DataLoss("blob " + blob.hash.hex() + ": " + std::to_string(blob.received) +
                           " bytes came, " + std::to_string(blob.size) + " were announced"));
    }
    if (found != blob.hash) {
      return Drop(DataLoss("blob " + blob.hash.hex() + ": the bytes have the hash " + found.hex()));
    }
    if (!blob.known) {
      Status status = WriteOut(buffer_);
      buffer_.clear();
      if (!status.ok()) return Drop(status);
      Keep();
    }
    open_.reset();
    return OkStatus();
  }

  Status Adopt(const std::string& name, std::int64_t size) override {
    if (open_) return FailedPrecondition("adopt file: the blob before was not ended");
    if (!IsDropName(name)) return InvalidArgument("adopt file: no name of the drop folder");
    Current next;
    next.temp = files_.NewTempName();
    next.size = size;
    const std::string from = JoinPath(BlobFiles::kDrop, name);
    // First, so that what is looked at then is what lies under a name that is ours alone.
    if (renameat(files_.root_fd(), from.c_str(), files_.root_fd(), next.temp.c_str()) != 0) {
      return Failed("adopt file " + name, errno);
    }
    next.fd = UniqueFd(openat(files_.root_fd(), next.temp.c_str(),
                              O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    const int error = errno;
    open_ = std::move(next);
    Current& file = *open_;
    if (!file.fd.valid()) return Drop(ErrnoStatus("adopt file " + name, error));
    if (fstat(file.fd.get(), &file.adopted.emplace()) != 0) {
      return Drop(ErrnoStatus("adopt file " + name, errno));
    }
    const struct stat& found = *file.adopted;
    std::string unfit;
    if (!S_ISREG(found.st_mode)) {
      unfit = "it is no regular file";
    } else if (found.st_uid != geteuid()) {
      unfit = "it is another account's";
    } else if (found.st_nlink > 2) {
      unfit = "it has names elsewhere";
    } else if (found.st_size != size) {
      unfit = "it has " + std::to_string(found.st_size) + " bytes, " + std::to_string(size) +
              " were announced";
    } else if (OpenForWriting(file.fd.get())) {
      unfit = "it may be open for writing";
    }
    if (!unfit.empty()) return Drop(FailedPrecondition("adopt file " + name + ": " + unfit));
    // A copy that was made for us has taken its room already.
    const Status room = found.st_nlink == 1 ? files_.Reserve(0) : OkStatus();
    if (!room.ok()) return Drop(room);
    if (files_.durable()) sync_behind_.Start(file.fd);  // while we hash
    return OkStatus();
  }

  Result<Hash> AdoptMore() override {
    if (!open_ || !open_->adopted) return FailedPrecondition("adopt file: none was begun");
    Current& file = *open_;
    const std::int64_t end = std::min(file.size, file.received + kAdoptBytes);
    buffer_.resize(kBufferBytes);
    while (file.received < end) {
      const Result<std::size_t> n = ReadSome(file.fd.get(), buffer_.data(), buffer_.size());
      if (!n.ok()) return Drop(n.status().Prefixed("adopt file"));
      if (*n == 0) return Drop(DataLoss("adopt file: it became shorter"));
      hasher_.Update({buffer_.data(), *n});
      file.received += static_cast<std::int64_t>(*n);
    }
    buffer_.clear();
    if (file.received < file.size) return Hash();
    struct stat now{};
    if (fstat(file.fd.get(), &now) != 0) return Drop(ErrnoStatus("adopt file", errno));
    if (!SameContent(now, *file.adopted)) {
      return Drop(DataLoss("adopt file: it changed while it was read"));
    }
    const Hash hash = file.hash = hasher_.Finish();
    if (ended_.contains(hash) || (files_.Has(hash) && files_.SizeOf(hash) == file.size)) {
      IgnoreError(Drop(OkStatus()), "it is here already");
    } else {
      Keep();
      open_.reset();
    }
    return hash;
  }

  Status Commit() override {
    if (open_) IgnoreError(Drop(OkStatus()), "a blob that was not ended is none");
    if (pending_.empty()) return OkStatus();
    Status status = SyncedBehind();
    if (status.ok()) status = SyncContents();
    if (status.ok()) {
      FaultPoint("blob.before_rename");
      status = MoveIntoPlace();
    }
    DropAll();
    return status;
  }

 private:
  struct Current {
    Hash hash;
    std::int64_t size = 0;
    std::int64_t received = 0;
    bool known = false;
    std::optional<struct stat> adopted;  // as it was taken over
    std::string temp;                    // empty: no file yet
    UniqueFd fd;
    std::int64_t written = 0;
    std::int64_t synced = 0;
  };
  struct Pending {
    Hash hash;
    std::int64_t size = 0;
    std::string temp;
    UniqueFd fd;  // kept while there are few
  };

  std::string Name(const Current& blob) const { return "blob " + blob.hash.hex(); }

  // Appends to the temporary file, which is made by the first call (an empty blob has one, too).
  Status WriteOut(std::string_view data) {
    Current& blob = *open_;
    if (!blob.fd.valid()) {
      const std::string temp = files_.NewTempName();
      blob.fd = UniqueFd(
          openat(files_.root_fd(), temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (!blob.fd.valid()) return Failed("make " + JoinPath(files_.root(), temp), errno);
      blob.temp = temp;
    }
    while (!data.empty()) {
      const ssize_t n = write(blob.fd.get(), data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failed("write " + Name(blob), errno);
      data.remove_prefix(static_cast<std::size_t>(n));
      blob.written += n;
    }
    if (files_.durable() && blob.written - blob.synced >= kSyncBytes && !sync_behind_.busy()) {
      GPULAYER_RETURN_IF_ERROR(SyncedBehind());
      sync_behind_.Start(blob.fd);
      blob.synced = blob.written;
    }
    return OkStatus();
  }

  Status Failed(const std::string& what, int error) const {
    if (error == ENOSPC || error == EDQUOT) return files_.DiskFull(what);
    return ErrnoStatus(what, error);
  }

  void Keep() {
    Current& blob = *open_;
    ended_.insert(blob.hash);
    pending_.push_back({blob.hash, blob.size, std::move(blob.temp), std::move(blob.fd)});
    if (pending_.size() == kFewBlobs + 1) {
      for (Pending& earlier : pending_) earlier.fd.Reset();
    } else if (pending_.size() > kFewBlobs) {
      pending_.back().fd.Reset();
    }
  }

  Status SyncedBehind() {
    const int error = sync_behind_.Wait();
    return error == 0 ? OkStatus() : Failed("sync blobs in " + files_.root(), error);
  }

  Status SyncContents() {
    if (!files_.durable()) return OkStatus();
    if (pending_.size() > kFewBlobs) return SyncFileSystem();
    for (const Pending& blob : pending_) {
      if (fdatasync(blob.fd.get()) != 0) return Failed("sync blob " + blob.hash.hex(), errno);
    }
    return OkStatus();
  }

  Status MoveIntoPlace() {
    std::string marker;
    if (files_.durable()) {
      marker = files_.NewTempName() + std::string(BlobFiles::kCommitSuffix);
      const UniqueFd made(
          openat(files_.root_fd(), marker.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (!made.valid()) return Failed("make " + JoinPath(files_.root(), marker), errno);
    }
    Status status = RenameAll();
    if (!marker.empty() && status.ok()) unlinkat(files_.root_fd(), marker.c_str(), 0);
    return status;
  }

  Status RenameAll() {
    std::vector<Hash> renamed;
    std::set<std::string> shards;
    for (Pending& blob : pending_) {
      const std::string name = BlobFiles::NameOf(blob.hash);
      if (!files_.MarkUnsettled(blob.hash, blob.size)) continue;  // another writer was quicker
      if (renameat(files_.root_fd(), blob.temp.c_str(), files_.root_fd(), name.c_str()) != 0) {
        return Failed("rename blob " + blob.hash.hex(), errno);
      }
      blob.temp.clear();
      renamed.push_back(blob.hash);
      shards.insert(name.substr(0, 2));
    }
    FaultPoint("blob.after_rename");
    if (files_.durable()) GPULAYER_RETURN_IF_ERROR(SyncShards(shards));
    files_.MarkSettled(renamed);
    return OkStatus();
  }

  Status SyncShards(const std::set<std::string>& shards) {
    if (pending_.size() > kFewBlobs) return SyncFileSystem();
    for (const std::string& shard : shards) {
      GPULAYER_RETURN_IF_ERROR(SyncDir(JoinPath(files_.root(), shard)));
    }
    return OkStatus();
  }

  Status SyncFileSystem() {
    if (syncfs(files_.root_fd()) != 0) return Failed("sync " + files_.root(), errno);
    return OkStatus();
  }

  // Forgets the open blob; returns `status` for the caller's convenience.
  Status Drop(const Status& status) {
    if (!open_->temp.empty()) unlinkat(files_.root_fd(), open_->temp.c_str(), 0);
    open_.reset();
    buffer_.clear();
    hasher_.Finish();
    return status;
  }

  void DropAll() {
    if (open_) IgnoreError(Drop(OkStatus()), "nothing of it becomes visible");
    for (const Pending& blob : pending_) {
      if (!blob.temp.empty()) unlinkat(files_.root_fd(), blob.temp.c_str(), 0);
    }
    pending_.clear();
    ended_.clear();
  }

  BlobFiles& files_;
  std::optional<Current> open_;
  std::string buffer_;  // bytes of the open blob that are not in its file yet
  Hasher hasher_;       // of the open blob
  SyncBehind sync_behind_;
  std::vector<Pending> pending_;
  std::unordered_set<Hash> ended_;  // those of pending_
};

}  // namespace

std::unique_ptr<BlobStore::Writer> NewBlobWriter(BlobFiles& files) {
  return std::make_unique<BlobWriter>(files);
}

}  // namespace gpulayer::internal
