// What the blob store and its writers share: where files lie, the floor of free space, and which
// blobs are renamed into place but not yet certain to survive a power cut.
//
// Threads: every method from any thread.
// Locks:   one small mutex, held across single calls that ask the file system (one statvfs twice a
//          second, one stat for each new blob), never across a write or a sync.
#ifndef GPULAYER_SERVER_BLOB_BLOB_FILES_H_
#define GPULAYER_SERVER_BLOB_BLOB_FILES_H_

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/status.h"
#include "model/blob_file.h"
#include "server/blob/blob_store.h"

namespace gpulayer::internal {

class BlobFiles {
 public:
  // Makes the folders and sweeps the temporary files. If durable, all blobs that are there survive
  // a power cut when this returns.
  static Result<std::unique_ptr<BlobFiles>> Open(const BlobStore::Options& options);

  const std::string& root() const { return root_; }
  bool durable() const { return options_.durable; }
  int root_fd() const { return root_fd_.get(); }  // for syncfs and the *at calls

  // Relative to root_fd(): "ab/<62 digits>", "tmp/<number>", "ab".
  static std::string NameOf(const Hash& hash) { return BlobFileName(hash); }
  static std::string ShardOf(const Hash& hash) { return NameOf(hash).substr(0, 2); }
  std::string NewTempName();
  const BlobStore::DropFolder& drop_folder() const { return drop_; }
  static constexpr std::string_view kDamaged = "damaged";
  static constexpr std::string_view kDrop = "drop";  // its name, relative to root_fd()
  // A file in tmp/ that stands while renamed blobs are not synced; Open() finds it after a kill.
  static constexpr std::string_view kCommitSuffix = ".commit";

  // Whole and durable.
  bool Has(const Hash& hash);
  std::int64_t SizeOf(const Hash& hash) const;  // of its file; -1: none

  // A blob between its rename and the sync of its folder is not "there" for anybody else. False: it
  // is there already, durable and with this size; the caller drops its own copy. If the sync fails
  // the mark stays, so that the blob is written again.
  bool MarkUnsettled(const Hash& hash, std::int64_t size);
  void MarkSettled(const std::vector<Hash>& hashes);

  // Moves a damaged blob out of the way, if the name still means the open file `found`.
  Status SetAside(const Hash& hash, const struct stat& found);
  bool WasSetAside(const Hash& hash) const;

  // RESOURCE_EXHAUSTED if `size` more bytes would go below the floor; else counts them as used.
  Status Reserve(std::int64_t size);
  Status DiskFull(const std::string& what) const;  // the error of a write that found no room

 private:
  BlobFiles(BlobStore::Options options, std::string root, UniqueFd root_fd)
      : options_(std::move(options)), root_(std::move(root)), root_fd_(std::move(root_fd)) {}
  Status Prepare();
  Status PrepareDrop();

  const BlobStore::Options options_;
  const std::string root_;  // <dir>/v1
  const UniqueFd root_fd_;
  BlobStore::DropFolder drop_;  // constant once prepared
  std::atomic<std::uint64_t> next_temp_{0};

  Mutex mutex_;
  std::unordered_set<Hash> unsettled_ GPULAYER_GUARDED_BY(mutex_);
  std::int64_t free_bytes_ GPULAYER_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point free_asked_ GPULAYER_GUARDED_BY(mutex_);
};

std::unique_ptr<BlobStore::Writer> NewBlobWriter(BlobFiles& files);

}  // namespace gpulayer::internal

#endif  // GPULAYER_SERVER_BLOB_BLOB_FILES_H_
