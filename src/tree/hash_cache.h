// The hashes of one root's files as of the last time they were read; see HashFiles.
#ifndef GPULAYER_TREE_HASH_CACHE_H_
#define GPULAYER_TREE_HASH_CACHE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "tree/scan.h"

namespace gpulayer::tree {

struct CachedHash {
  std::string path;
  FileStamp stamp;
  Hash hash;
  friend bool operator==(const CachedHash&, const CachedHash&) = default;
};

// Sorted by path. Only what can be trusted is ever stored.
using HashCache = std::vector<CachedHash>;

// A file changed within this time before it was hashed may change again without its stamp showing
// it: file systems' clocks tick in steps of up to 2 s (FAT).
inline constexpr std::int64_t kRacyNs = 2'000'000'000;

std::string HashCacheFile(const std::string& cache_dir, const std::string& root);
// Empty if there is none, or it is damaged or another version's.
HashCache LoadHashCache(const std::string& file);
Status StoreHashCache(const std::string& file, const HashCache& cache);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_HASH_CACHE_H_
