// Where a blob's file lies, and on what disk: the store's own business, and of who looks at it on the
// server's machine.
#ifndef GPULAYER_MODEL_BLOB_FILE_H_
#define GPULAYER_MODEL_BLOB_FILE_H_

#include <cstdint>
#include <string>

#include "base/hash.h"

namespace gpulayer {

// "ab/<62 hex digits>", relative to the store's folder. Do not change: stores on disks and other
// versions know it.
inline std::string BlobFileName(const Hash& hash) { return hash.hex().insert(2, 1, '/'); }

// Free space of its disk below which the store takes no more.
inline constexpr std::int64_t kBlobDiskFloorBytes = std::int64_t{64} << 20;

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_BLOB_FILE_H_
