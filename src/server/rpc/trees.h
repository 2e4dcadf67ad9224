// Whether a tree is there whole: its manifest and the content of each of its files.
//
// Threads: any that may read files.
#ifndef GPULAYER_SERVER_RPC_TREES_H_
#define GPULAYER_SERVER_RPC_TREES_H_

#include <cstdint>

#include "base/hash.h"
#include "base/status.h"
#include "server/blob/blob_store.h"

namespace gpulayer::rpc {

// 20,000 entries with long names are about 4 MiB; outputs may have many more files.
inline constexpr std::int64_t kMaxManifestBytes = std::int64_t{512} << 20;

// FAILED_PRECONDITION names what is missing; INVALID_ARGUMENT: not a manifest, or one with paths
// that cannot be.
Status CheckTreeIsHere(BlobStore& blobs, const Hash& tree);

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_TREES_H_
