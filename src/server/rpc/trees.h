// Whether a tree is there whole: its manifest and the content of each of its files.
#ifndef GPULAYER_SERVER_RPC_TREES_H_
#define GPULAYER_SERVER_RPC_TREES_H_

#include <chrono>
#include <cstdint>
#include <unordered_map>

#include "base/hash.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/blob/blob_store.h"

namespace gpulayer::rpc {

// 20,000 entries with long names are about 4 MiB; outputs may have many more files.
inline constexpr std::int64_t kMaxManifestBytes = std::int64_t{512} << 20;

// Remembers for half a minute which trees were whole: a submit asks twice, a resubmit four times,
// and each answer reads a manifest and looks for thousands of files.
//
// Threads: CheckIsHere from any that may read files.
class Trees {
 public:
  explicit Trees(BlobStore& blobs) : blobs_(blobs) {}

  // FAILED_PRECONDITION names what is missing; INVALID_ARGUMENT: not a manifest, or one with paths
  // that cannot be.
  Status CheckIsHere(const Hash& tree);
  void Forget();  // what was found whole: a blob has been set aside

 private:
  Status Look(const Hash& tree);

  BlobStore& blobs_;
  Mutex mutex_;
  std::unordered_map<Hash, std::chrono::steady_clock::time_point> whole_
      GPULAYER_GUARDED_BY(mutex_);  // seen when
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_TREES_H_
