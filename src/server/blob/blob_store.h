// Content-addressed files: sources, standard inputs, outputs, manifests.
//
// A blob is visible only whole and durable. Layout (versioned, do not change): <dir>/v1/ab/<62 hex
// digits>, temporary files in <dir>/v1/tmp, swept at Open, <dir>/v1/drop (see DropFolder), and what
// was found damaged in <dir>/v1/damaged/<64 hex digits>.
// Threads:   every method from any thread; a Writer belongs to one thread at a time. All of it does
//            file I/O: never call it on a gRPC thread or the engine thread.
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
#include "model/blob_file.h"

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
    virtual Status End() = 0;  // DATA_LOSS: size or hash differ from what Begin said
    // In place of Begin, Append and End: `name` of the drop folder becomes a blob, whatever its hash
    // is. It is out of that folder at once. Nobody may write to that file again.
    // INVALID_ARGUMENT: no name of the drop folder; NOT_FOUND; FAILED_PRECONDITION: it is not a
    // regular file of this account with that size and at most one more name, or it is open for
    // writing; RESOURCE_EXHAUSTED: a copy made for us, below the floor of free space.
    virtual Status Adopt(const std::string& name, std::int64_t size) = 0;
    // Reads on, some MiB a call. An empty hash: not at the end yet. DATA_LOSS: it changes meanwhile.
    virtual Result<Hash> AdoptMore() = 0;
    virtual Status Commit() = 0;  // all ended blobs durable, then visible
  };

  struct Options {
    std::string dir;
    bool durable = true;
    std::int64_t free_floor_bytes = kBlobDiskFloorBytes;
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
  // Reads a blob to its end, of one thread at a time.
  class Checker {
   public:
    virtual ~Checker() = default;
    // Reads on, some MiB a call. True: it has been read, and its bytes are what its name says.
    // DATA_LOSS: they are not, now or at an earlier check; it has been set aside, is no longer there
    // for anybody, and may be stored anew. NOT_FOUND.
    virtual Result<bool> CheckMore() = 0;
  };
  virtual std::unique_ptr<Checker> NewChecker(const Hash& hash) = 0;
  // For a process of this account on this machine: a blob is the file BlobFileName() in it.
  virtual const std::string& folder() const = 0;

  // Where a process of this account on this machine links a file, named by 32 hex digits that it
  // draws, for Writer::Adopt. Emptied at Open. Who finds the file `proof` there, whose name is drawn
  // at each Open, has this very folder before it and not one of the same name elsewhere.
  struct DropFolder {
    std::string dir;
    std::string proof;
  };
  virtual const DropFolder& drop_folder() const = 0;
};

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_BLOB_BLOB_STORE_H_
