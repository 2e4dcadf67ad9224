#include "server/blob/log_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "base/fs.h"
#include "base/mutex.h"

namespace gpulayer {
namespace {

// Open descriptors kept between calls, so that an append is one write.
constexpr std::size_t kOpenFiles = 64;

// One attempt's file. `mutex` orders the writes to this file and is held across them: it is what
// makes "the bytes after the last one" mean something. Readers do not take it.
struct LogFile {
  UniqueFd fd;
  Mutex mutex;
  std::int64_t size GPULAYER_GUARDED_BY(mutex) = -1;  // -1: not asked yet

  // What another program wrote behind our bytes goes; what it cut off is asked for again.
  Result<std::int64_t> Size() GPULAYER_REQUIRES(mutex) {
    struct stat st{};
    if (fstat(fd.get(), &st) != 0) return ErrnoStatus("stat", errno);
    if (size >= 0 && st.st_size > size && ftruncate(fd.get(), size) != 0) {
      return ErrnoStatus("truncate", errno);
    }
    if (size < 0 || st.st_size < size) size = st.st_size;
    return size;
  }

  bool Removed() const {
    struct stat st{};
    return fstat(fd.get(), &st) != 0 || st.st_nlink == 0;
  }
};

class FileLogStore : public LogStore {
 public:
  FileLogStore(std::string root, bool durable) : root_(std::move(root)), durable_(durable) {}

  Result<std::int64_t> Append(const AttemptRef& attempt, std::int64_t offset,
                              std::string_view data) override {
    const std::string what = "append to the log of " + ToString(attempt);
    if (offset < 0) return InvalidArgument(what + ": negative offset");
    Result<std::shared_ptr<LogFile>> file = Acquire(attempt, Missing::kMake);
    if (!file.ok()) return file.status().Prefixed(what);
    MutexLock lock((*file)->mutex);
    Result<std::int64_t> stored = (*file)->Size();
    if (!stored.ok()) return stored.status().Prefixed(what);
    if (offset > *stored) {
      return OutOfRange(what + ": bytes from " + std::to_string(offset) + " came, but only " +
                        std::to_string(*stored) + " are stored. Send from " +
                        std::to_string(*stored) + ".");
    }
    const std::int64_t known = *stored - offset;
    if (known >= static_cast<std::int64_t>(data.size())) return *stored;
    data.remove_prefix(static_cast<std::size_t>(known));
    while (!data.empty()) {
      const ssize_t n = pwrite((*file)->fd.get(), data.data(), data.size(), (*file)->size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return WriteFailed(what, errno);
      (*file)->size += n;  // what went in before an error is stored; a repeat goes on from there
      data.remove_prefix(static_cast<std::size_t>(n));
    }
    return (*file)->size;
  }

  Status Seal(const AttemptRef& attempt, std::int64_t size) override {
    const std::string what = "seal the log of " + ToString(attempt);
    if (size <= 0) return OkStatus();
    Result<std::shared_ptr<LogFile>> file = Acquire(attempt, Missing::kLeave);
    if (!file.ok() && file.status().code() != StatusCode::kNotFound) {
      return file.status().Prefixed(what);
    }
    std::int64_t stored = 0;
    if (file.ok()) {
      MutexLock lock((*file)->mutex);
      Result<std::int64_t> got = (*file)->Size();
      if (!got.ok()) return got.status().Prefixed(what);
      stored = *got;
    }
    if (stored < size) {
      return DataLoss(what + ": " + std::to_string(size) + " bytes were written, " +
                      std::to_string(stored) + " are stored. Send the rest.");
    }
    GPULAYER_RETURN_IF_ERROR(Settle(attempt, **file).Prefixed(what));
    Forget(attempt);
    return OkStatus();
  }

  std::int64_t Size(const AttemptRef& attempt) override {
    if (const std::shared_ptr<LogFile> file = Opened(attempt)) {
      MutexLock lock(file->mutex);
      if (const Result<std::int64_t> size = file->Size(); size.ok()) return *size;
    }
    struct stat st{};
    return stat(PathOf(attempt).c_str(), &st) == 0 ? st.st_size : 0;
  }

  Result<std::string> Read(const AttemptRef& attempt, std::int64_t offset,
                           std::size_t max) override {
    const std::string what = "read the log of " + ToString(attempt);
    if (offset < 0) return InvalidArgument(what + ": negative offset");
    Result<std::shared_ptr<LogFile>> file = Acquire(attempt, Missing::kLeave);
    if (!file.ok()) {
      if (file.status().code() == StatusCode::kNotFound) return std::string();
      return file.status().Prefixed(what);
    }
    struct stat st{};
    if (fstat((*file)->fd.get(), &st) != 0) return ErrnoStatus(what, errno);
    if (offset >= st.st_size) return std::string();
    std::string data(std::min<std::size_t>(max, static_cast<std::size_t>(st.st_size - offset)),
                     '\0');
    std::size_t filled = 0;
    while (filled < data.size()) {
      const ssize_t n = pread((*file)->fd.get(), data.data() + filled, data.size() - filled,
                              offset + static_cast<std::int64_t>(filled));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(what, errno);
      if (n == 0) break;
      filled += static_cast<std::size_t>(n);
    }
    data.resize(filled);
    return data;
  }

 private:
  enum class Missing { kMake, kLeave };
  using Recent = std::list<AttemptRef>;  // front: used last
  struct Entry {
    std::shared_ptr<LogFile> file;
    Recent::iterator place;
  };

  std::string JobDir(const AttemptRef& attempt) const {
    return JoinPath(root_, std::to_string(attempt.task.job.value()));
  }
  std::string PathOf(const AttemptRef& attempt) const {
    return JoinPath(JobDir(attempt), std::to_string(attempt.task.task.value()) + "." +
                                         std::to_string(attempt.number.value()) + ".log");
  }

  Status WriteFailed(const std::string& what, int error) const {
    if (error == ENOSPC || error == EDQUOT) {
      return ResourceExhausted("server disk full: " + what + ": no space left at " + root_ +
                               ". Make room on the server's disk; the worker tries again.");
    }
    return ErrnoStatus(what, error);
  }

  // The one LogFile of the attempt, opened if need be. NOT_FOUND (kLeave): nothing came yet.
  Result<std::shared_ptr<LogFile>> Acquire(const AttemptRef& attempt, Missing missing)
      GPULAYER_EXCLUDES(mutex_) {
    if (std::shared_ptr<LogFile> file = Opened(attempt)) return file;
    // Opened without the lock; whoever comes first into the table is the file of all.
    GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, OpenLog(attempt, missing));
    auto opened = std::make_shared<LogFile>();
    opened->fd = std::move(fd);
    std::vector<std::shared_ptr<LogFile>> closing;  // destroyed after the lock is gone
    MutexLock lock(mutex_);
    if (std::shared_ptr<LogFile> file = Touch(attempt)) {
      closing.push_back(std::move(opened));
      return file;
    }
    recent_.push_front(attempt);
    table_[attempt] = {opened, recent_.begin()};
    Evict(closing);
    return opened;
  }

  // Null: it is not open, or its file is gone, which is then forgotten.
  std::shared_ptr<LogFile> Opened(const AttemptRef& attempt) GPULAYER_EXCLUDES(mutex_) {
    std::shared_ptr<LogFile> file;
    {
      MutexLock lock(mutex_);
      file = Touch(attempt);
    }
    if (!file || !file->Removed()) return file;
    MutexLock lock(mutex_);
    const auto it = table_.find(attempt);
    if (it != table_.end() && it->second.file == file) {
      recent_.erase(it->second.place);
      table_.erase(it);
    }
    return nullptr;
  }

  Result<UniqueFd> OpenLog(const AttemptRef& attempt, Missing missing) const {
    const std::string path = PathOf(attempt);
    if (missing == Missing::kLeave) return OpenFile(path, O_RDWR);
    Result<UniqueFd> fd = OpenFile(path, O_RDWR | O_CREAT);
    if (fd.ok() || fd.status().code() != StatusCode::kNotFound) return fd;
    GPULAYER_RETURN_IF_ERROR(MakeDirs(JobDir(attempt)));
    return OpenFile(path, O_RDWR | O_CREAT);
  }

  std::shared_ptr<LogFile> Touch(const AttemptRef& attempt) GPULAYER_REQUIRES(mutex_) {
    const auto it = table_.find(attempt);
    if (it == table_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, it->second.place);
    return it->second.file;
  }

  // Only files that nobody uses may go: two LogFile of one attempt would each count their own size.
  void Evict(std::vector<std::shared_ptr<LogFile>>& closing) GPULAYER_REQUIRES(mutex_) {
    for (auto place = recent_.end(); table_.size() > kOpenFiles && place != recent_.begin();) {
      --place;
      const auto it = table_.find(*place);
      if (it->second.file.use_count() > 1) continue;
      closing.push_back(std::move(it->second.file));
      table_.erase(it);
      place = recent_.erase(place);
    }
  }

  void Forget(const AttemptRef& attempt) GPULAYER_EXCLUDES(mutex_) {
    std::shared_ptr<LogFile> closing;
    MutexLock lock(mutex_);
    const auto it = table_.find(attempt);
    if (it == table_.end() || it->second.file.use_count() > 2) return;  // the table and Seal()
    closing = std::move(it->second.file);
    recent_.erase(it->second.place);
    table_.erase(it);
  }

  // Makes one log and its names survive a power cut. Everything that syncs goes through here, so
  // that several seals can share one sync.
  Status Settle(const AttemptRef& attempt, const LogFile& file) const {
    if (!durable_) return OkStatus();
    if (fdatasync(file.fd.get()) != 0) return WriteFailed("sync", errno);
    GPULAYER_RETURN_IF_ERROR(SyncDir(JobDir(attempt)));
    return SyncDir(root_);
  }

  const std::string root_;  // <dir>/v1
  const bool durable_;
  Mutex mutex_;  // never held across I/O
  Recent recent_ GPULAYER_GUARDED_BY(mutex_);
  std::map<AttemptRef, Entry> table_ GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<LogStore>> LogStore::Open(const std::string& dir, bool durable) {
  const std::string root = JoinPath(dir, "v1");
  Status made = MakeDirs(root);
  if (made.ok() && durable) made = SyncDir(dir);
  if (!made.ok()) return made.Prefixed("open log store " + dir);
  return std::unique_ptr<LogStore>(std::make_unique<FileLogStore>(root, durable));
}

}  // namespace gpulayer
