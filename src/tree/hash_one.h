// Hashing of single files and of many, shared by sources and outputs.
#ifndef GPULAYER_TREE_HASH_ONE_H_
#define GPULAYER_TREE_HASH_ONE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "tree/scan.h"

namespace gpulayer::tree {

struct HashedFile {
  Hash hash;
  FileStamp stamp;  // of the very content that was hashed
};

// Reads the regular file `path` below the open folder `root`, through no link. ABORTED if it
// changes each time while it is read; else a reason in few words.
Result<HashedFile> HashOne(int root, const std::string& path);

// Whether the file at the absolute `path` still has that content.
bool HasContent(const std::string& path, const Hash& hash);

// The same for many, in parallel if `bytes` (their sum) or their number is worth it. `threads` 0:
// as many as the machine has. `hash_one` is called by several threads.
std::vector<Result<HashedFile>> HashMany(
    int root, const std::vector<std::string>& paths, std::int64_t bytes, int threads,
    const std::function<Result<HashedFile>(int root, const std::string& path)>& hash_one = HashOne);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_HASH_ONE_H_
