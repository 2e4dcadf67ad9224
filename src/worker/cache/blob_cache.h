// Blobs on a worker: fetched once whoever wants them, kept until space is needed.
#ifndef GPULAYER_WORKER_CACHE_BLOB_CACHE_H_
#define GPULAYER_WORKER_CACHE_BLOB_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/status.h"

namespace gpulayer::worker {

// Threads:   every method from any thread. No lock is held during I/O or while a fetch runs.
// Blocking:  file I/O; Ensure() also waits for other callers' fetches, until its deadline.
// Errors:    DATA_LOSS if fetched bytes do not have their hash; RESOURCE_EXHAUSTED if the disk is
// full. Durability: none. Nothing is fsynced; what a boot before this one wrote is hashed before
// its first
//            use. Layout (versioned, do not change): <dir>/v1/ab/<62 hex digits>, <dir>/v1/tmp.
class BlobCache {
 public:
  struct Options {
    std::string dir;
    std::int64_t max_bytes = std::int64_t{20} << 30;  // pinned blobs may exceed it
  };
  static Result<std::unique_ptr<BlobCache>> Open(const Options& options);
  virtual ~BlobCache() = default;

  // Takes the bytes of a fetch. One thread at a time. Begin, Append..., End for each blob.
  class Sink {
   public:
    virtual ~Sink() = default;
    // INVALID_ARGUMENT if the hash is none of those asked for. `size` may be -1: not known.
    virtual Status Begin(const Hash& hash, std::int64_t size) = 0;
    virtual Status Append(std::string_view data) = 0;
    virtual Status End() = 0;  // verified and visible
  };
  // Brings all of `missing` into the sink, or says why not; runs on the caller's thread of Ensure.
  using Fetch = std::function<Status(const std::vector<Hash>& missing, Sink& sink)>;

  // Keeps blobs from being evicted as long as it lives; must not outlive the cache.
  class Pins {
   public:
    Pins() = default;
    Pins(Pins&& other) noexcept;
    Pins& operator=(Pins&& other) noexcept;
    ~Pins() { Release(); }
    void Release();

   private:
    friend class BlobCacheImpl;
    BlobCache* cache_ = nullptr;
    std::vector<Hash> hashes_;
  };

  // All of `hashes` (repeats are fine) are here and pinned when it returns. What another caller is
  // fetching is waited for, not fetched again; if that fails this caller fetches it itself.
  // DEADLINE_EXCEEDED; else the fetch's error.
  virtual Result<Pins> Ensure(const std::vector<Hash>& hashes, const Fetch& fetch,
                              TimePoint deadline) = 0;

  // NOT_FOUND: pin it first. DATA_LOSS: its file is no longer what was stored; the next Ensure() hashes
  // it, and fetches it again if need be.
  virtual Result<UniqueFd> OpenBlob(const Hash& hash) = 0;
  virtual Result<std::string> ReadBlob(const Hash& hash, std::int64_t max_bytes) = 0;
  virtual void Drop(const Hash& hash) = 0;  // it proved to be damaged: fetched again next time
  virtual std::int64_t bytes() const = 0;

 private:
  virtual void Unpin(const std::vector<Hash>& hashes) = 0;
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_CACHE_BLOB_CACHE_H_
