#include "server/blob/blob_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "server/blob/blob_files.h"

namespace gpulayer {
namespace internal {
namespace {

constexpr std::chrono::milliseconds kFreeSpaceAge{500};
constexpr std::string_view kHexDigits = "0123456789abcdef";

// True: it was not there.
Result<bool> MakeDirAt(int parent, const std::string& name, const std::string& root) {
  if (mkdirat(parent, name.c_str(), 0700) == 0) return true;
  if (errno == EEXIST) return false;
  return ErrnoStatus("make folder " + JoinPath(root, name), errno);
}

}  // namespace

Result<std::unique_ptr<BlobFiles>> BlobFiles::Open(const BlobStore::Options& options) {
  const std::string root = JoinPath(options.dir, "v1");
  GPULAYER_RETURN_IF_ERROR(MakeDirs(root));
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(root, O_RDONLY | O_DIRECTORY));
  std::unique_ptr<BlobFiles> files(new BlobFiles(options, root, std::move(fd)));
  GPULAYER_RETURN_IF_ERROR(files->Prepare());
  return files;
}

Status BlobFiles::Prepare() {
  // All 256 folders now, so that no commit ever has to make one and sync its parent.
  bool fresh = false;
  for (const char a : kHexDigits) {
    for (const char b : kHexDigits) {
      GPULAYER_ASSIGN_OR_RETURN(const bool made, MakeDirAt(root_fd(), {a, b}, root_));
      fresh = fresh || made;
    }
  }
  GPULAYER_ASSIGN_OR_RETURN(const bool made_temp, MakeDirAt(root_fd(), "tmp", root_));
  GPULAYER_RETURN_IF_ERROR(MakeDirAt(root_fd(), std::string(kDamaged), root_).status());
  if (durable() && (fresh || made_temp)) {
    GPULAYER_RETURN_IF_ERROR(SyncDir(root_));
    GPULAYER_RETURN_IF_ERROR(SyncDir(options_.dir));
    GPULAYER_RETURN_IF_ERROR(SyncDir(DirName(options_.dir)));
  }
  const std::string temp = JoinPath(root_, "tmp");
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(temp));
  // A server killed between a rename and its sync leaves names that only memory knows. Not always:
  // a sync of the file system waits for whatever else the machine has to write.
  const bool killed_in_commit = std::any_of(names.begin(), names.end(), [](std::string_view name) {
    return name.ends_with(kCommitSuffix);
  });
  if (durable() && killed_in_commit && syncfs(root_fd()) != 0) {
    return ErrnoStatus("sync " + root_, errno);
  }
  for (const std::string& name : names) GPULAYER_RETURN_IF_ERROR(RemoveTree(JoinPath(temp, name)));
  return PrepareDrop();
}

Status BlobFiles::PrepareDrop() {
  drop_.dir = JoinPath(root_, kDrop);
  GPULAYER_RETURN_IF_ERROR(MakePrivateDir(drop_.dir));
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(drop_.dir));
  for (const std::string& name : names) {
    GPULAYER_RETURN_IF_ERROR(RemoveTree(JoinPath(drop_.dir, name)));
  }
  drop_.proof = "proof-" + RandomHex(16);
  return OpenFile(JoinPath(drop_.dir, drop_.proof), O_WRONLY | O_CREAT | O_EXCL).status();
}

std::string BlobFiles::NewTempName() { return "tmp/" + std::to_string(next_temp_.fetch_add(1)); }

bool BlobFiles::Has(const Hash& hash) {
  {
    MutexLock lock(mutex_);
    if (unsettled_.contains(hash)) return false;
  }
  return faccessat(root_fd(), NameOf(hash).c_str(), F_OK, 0) == 0;
}

std::int64_t BlobFiles::SizeOf(const Hash& hash) const {
  struct stat st{};
  return fstatat(root_fd(), NameOf(hash).c_str(), &st, 0) == 0 ? st.st_size : -1;
}

bool BlobFiles::MarkUnsettled(const Hash& hash, std::int64_t size) {
  MutexLock lock(mutex_);
  // Asked under the lock: a writer that settles the blob between a question and the mark would see
  // what it was told is there vanish again.
  if (!unsettled_.contains(hash) && SizeOf(hash) == size) return false;
  unsettled_.insert(hash);
  return true;
}

void BlobFiles::MarkSettled(const std::vector<Hash>& hashes) {
  // The first of several writers settles it for all: whichever file the name then means, its bytes
  // were synced before the rename.
  MutexLock lock(mutex_);
  for (const Hash& hash : hashes) unsettled_.erase(hash);
}

Status BlobFiles::SetAside(const Hash& hash, const struct stat& found) {
  const std::string to = JoinPath(kDamaged, hash.hex());
  // Under the lock: no writer puts a good one there between the question and the rename.
  MutexLock lock(mutex_);
  struct stat now{};
  if (unsettled_.contains(hash) || fstatat(root_fd(), NameOf(hash).c_str(), &now, 0) != 0 ||
      now.st_dev != found.st_dev || now.st_ino != found.st_ino) {
    return OkStatus();  // somebody is storing it anew
  }
  if (renameat(root_fd(), NameOf(hash).c_str(), root_fd(), to.c_str()) != 0) {
    return ErrnoStatus("set aside blob " + hash.hex(), errno);
  }
  LogError("blob " + hash.hex() + " is damaged: moved to " + JoinPath(root_, to) +
           ". It is stored anew when its content is sent again.");
  return OkStatus();
}

bool BlobFiles::WasSetAside(const Hash& hash) const {
  return faccessat(root_fd(), JoinPath(kDamaged, hash.hex()).c_str(), F_OK, 0) == 0;
}

Status BlobFiles::Reserve(std::int64_t size) {
  MutexLock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - free_asked_ > kFreeSpaceAge) {
    GPULAYER_ASSIGN_OR_RETURN(free_bytes_, FreeBytes(root_));
    free_asked_ = now;
  }
  // Compared this way round: `size` is a peer's word and may be near the type's end.
  if (free_bytes_ - options_.free_floor_bytes < size) {
    const std::string floor = FormatSize(options_.free_floor_bytes);
    const std::string free = FormatSize(free_bytes_) + " free at " + root_;
    const std::string hint = ". Make room on the server's disk and try again.";
    return ResourceExhausted("server disk full: " +
                             (size == 0 ? free + " is less than the " + floor + " kept free"
                                        : FormatSize(size) + " more would leave less than " +
                                              floor + " of the " + free) +
                             hint);
  }
  free_bytes_ -= size;
  return OkStatus();
}

Status BlobFiles::DiskFull(const std::string& what) const {
  return ResourceExhausted("server disk full: " + what + ": no space left at " + root_ +
                           ". Make room on the server's disk and try again.");
}

}  // namespace internal

namespace {

class FileBlobStore : public BlobStore {
 public:
  explicit FileBlobStore(std::unique_ptr<internal::BlobFiles> files) : files_(std::move(files)) {}

  Status CheckRoom() override { return files_->Reserve(0); }

  const DropFolder& drop_folder() const override { return files_->drop_folder(); }

  const std::string& folder() const override { return files_->root(); }

  bool Has(const Hash& hash) override { return files_->Has(hash); }

  std::vector<Hash> Missing(const std::vector<Hash>& hashes) override {
    std::vector<Hash> missing;
    std::unordered_set<Hash> seen;
    for (const Hash& hash : hashes) {
      if (seen.insert(hash).second && !files_->Has(hash)) missing.push_back(hash);
    }
    return missing;
  }

  std::unique_ptr<Writer> NewWriter() override { return internal::NewBlobWriter(*files_); }

  Status PutWhole(const Hash& hash, std::string_view data) override {
    const std::unique_ptr<Writer> writer = NewWriter();
    GPULAYER_RETURN_IF_ERROR(writer->Begin(hash, static_cast<std::int64_t>(data.size())));
    GPULAYER_RETURN_IF_ERROR(writer->Append(data));
    GPULAYER_RETURN_IF_ERROR(writer->End());
    return writer->Commit();
  }

  Result<std::string> GetWhole(const Hash& hash, std::int64_t max_bytes) override {
    GPULAYER_ASSIGN_OR_RETURN(const OpenBlob blob, Open(hash));
    if (blob.size > max_bytes) {
      return InvalidArgument("read blob " + hash.hex() + ": it has " + std::to_string(blob.size) +
                             " bytes, the limit here is " + std::to_string(max_bytes));
    }
    std::string data(static_cast<std::size_t>(blob.size), '\0');
    std::size_t filled = 0;
    while (filled < data.size()) {
      Result<std::size_t> n = ReadSome(blob.fd.get(), data.data() + filled, data.size() - filled);
      if (!n.ok()) return n.status().Prefixed("read blob " + hash.hex());
      if (*n == 0) break;
      filled += *n;
    }
    if (filled != data.size() || Hash::Of(data) != hash) return Damaged(hash, blob.fd);
    return data;
  }

  std::unique_ptr<Checker> NewChecker(const Hash& hash) override {
    return std::make_unique<FileChecker>(*this, hash);
  }

  Result<OpenBlob> Open(const Hash& hash) override {
    const std::string name = internal::BlobFiles::NameOf(hash);
    OpenBlob blob;
    blob.fd = UniqueFd(openat(files_->root_fd(), name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!blob.fd.valid()) {
      if (errno == ENOENT && files_->WasSetAside(hash)) return IsDamaged(hash);
      if (errno == ENOENT) return NotFound("blob " + hash.hex() + ": not stored here");
      return ErrnoStatus("open blob " + JoinPath(files_->root(), name), errno);
    }
    struct stat st{};
    if (fstat(blob.fd.get(), &st) != 0) return ErrnoStatus("stat blob " + hash.hex(), errno);
    blob.size = st.st_size;
    return blob;
  }

 private:
  class FileChecker : public Checker {
   public:
    FileChecker(FileBlobStore& store, const Hash& hash) : store_(store), hash_(hash) {}

    Result<bool> CheckMore() override {
      if (!blob_) {
        GPULAYER_ASSIGN_OR_RETURN(blob_, store_.Open(hash_));
      }
      std::string buffer(kBufferBytes, '\0');
      for (std::size_t read = 0; read < kCheckBytes;) {
        const Result<std::size_t> n = ReadSome(blob_->fd.get(), buffer.data(), buffer.size());
        if (!n.ok()) return n.status().Prefixed("read blob " + hash_.hex());
        if (*n == 0) {
          if (hasher_.Finish() != hash_) return store_.Damaged(hash_, blob_->fd);
          return true;
        }
        hasher_.Update({buffer.data(), *n});
        read += *n;
      }
      return false;
    }

   private:
    static constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
    // Some hundredths of a second: others wait for the thread.
    static constexpr std::size_t kCheckBytes = std::size_t{8} << 20;

    FileBlobStore& store_;
    const Hash hash_;
    std::optional<OpenBlob> blob_;
    Hasher hasher_;
  };

  static Status IsDamaged(const Hash& hash) {
    return DataLoss("blob " + hash.hex() +
                    ": the server's copy of it is damaged and was set aside. Send the content "
                    "again, or restore a backup.");
  }

  Status Damaged(const Hash& hash, const UniqueFd& fd) {
    struct stat found{};
    if (fstat(fd.get(), &found) != 0) return ErrnoStatus("stat blob " + hash.hex(), errno);
    GPULAYER_RETURN_IF_ERROR(files_->SetAside(hash, found));
    return IsDamaged(hash);
  }

  const std::unique_ptr<internal::BlobFiles> files_;
};

}  // namespace

Result<std::unique_ptr<BlobStore>> BlobStore::Open(const Options& options) {
  Result<std::unique_ptr<internal::BlobFiles>> files = internal::BlobFiles::Open(options);
  if (!files.ok()) return files.status().Prefixed("open blob store " + options.dir);
  return std::unique_ptr<BlobStore>(std::make_unique<FileBlobStore>(*std::move(files)));
}

}  // namespace gpulayer
