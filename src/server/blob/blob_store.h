// Content-addressed files: sources, standard inputs, outputs, manifests.
//
// A blob is visible only whole and durable. Layout (versioned, do not change): <dir>/v1/ab/<62 hex
// digits>, temporary files in <dir>/v1/tmp, swept at Open. Threads:   every method from any thread;
// a Writer belongs to one thread at a time. All of it does file I/O:
//            never call it on a gRPC thread or the engine thread.
#ifndef GPULAYER_SERVER_BLOB_BLOB_STORE_H_
#define GPULAYER_SERVER_BLOB_BLOB_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fs.h"
#include "base/hash.h"
#include "base/status.h"

namespace gpulayer {

class BlobStore {
 public:
  // Takes many blobs in a row and makes them durable together: few big ones by fsync, many small
  // ones by one sync of the file system.
  class Writer {
   public:
    virtual ~Writer() = default;  // without Commit: nothing of it becomes visible
    // RESOURCE_EXHAUSTED ("server disk full") below the floor of free space.
    virtual Status Begin(const Hash& hash,
                         std::int64_t size) = 0;  // a known blob is read past, not written
    virtual Status Append(std::string_view data) = 0;
    virtual Status End() = 0;     // DATA_LOSS: size or hash differ from what Begin said
    virtual Status Commit() = 0;  // all ended blobs durable, then visible
  };

  struct Options {
    std::string dir;
    bool durable = true;
    std::int64_t free_floor_bytes = std::int64_t{64} << 20;
  };
  static Result<std::unique_ptr<BlobStore>> Open(const Options& options);
  virtual ~BlobStore() = default;

  // RESOURCE_EXHAUSTED ("server disk full") below the floor of free space, as of half a second ago.
  virtual Status CheckRoom() = 0;
  virtual bool Has(const Hash& hash) = 0;
  virtual std::vector<Hash> Missing(const std::vector<Hash>& hashes) = 0;  // in order, each once
  virtual std::unique_ptr<Writer> NewWriter() = 0;
  virtual Status PutWhole(const Hash& hash, std::string_view data) = 0;
  virtual Result<std::string> GetWhole(const Hash& hash, std::int64_t max_bytes) = 0;
  struct OpenBlob {
    UniqueFd fd;  // read only
    std::int64_t size = 0;
  };
  virtual Result<OpenBlob> Open(const Hash& hash) = 0;  // NOT_FOUND
};

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_BLOB_BLOB_STORE_H_
