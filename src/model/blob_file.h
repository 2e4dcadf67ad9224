// Where a blob's file lies: the store's own business, and of who reads it on the server's machine.
#ifndef GPULAYER_MODEL_BLOB_FILE_H_
#define GPULAYER_MODEL_BLOB_FILE_H_

#include <string>

#include "base/hash.h"

namespace gpulayer {

// "ab/<62 hex digits>", relative to the store's folder. Do not change: stores on disks and other
// versions know it.
inline std::string BlobFileName(const Hash& hash) { return hash.hex().insert(2, 1, '/'); }

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_BLOB_FILE_H_
