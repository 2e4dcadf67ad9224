// A listing's content by hash, with a cache: what is unchanged since the last call is not read.
#ifndef GPULAYER_TREE_HASH_FILES_H_
#define GPULAYER_TREE_HASH_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "model/tree.h"
#include "tree/scan.h"

namespace gpulayer::tree {

// Where to read the content of a hash. Read it as untrusted: the file may have changed since, so
// the receiver checks the hash.
struct BlobFile {
  Hash hash;
  std::int64_t size = 0;
  std::string path;  // absolute
};

struct HashOptions {
  std::string cache_dir;  // one file a root in it, made if absent; empty: no cache
  int threads = 0;        // 0: as many as the machine has, at most 8
};

struct HashedTree {
  Tree tree;
  std::vector<BlobFile> blobs;    // each hash once, in the tree's order
  std::vector<Warning> warnings;  // vanished or unreadable since the scan
  std::int64_t hashed_files = 0;  // read now, not taken from the cache
  std::int64_t hashed_bytes = 0;
};

// REQUIRES: !listing.over_limit.
// The cache knows a file by path, size, mtime, ctime, inode and device; what was changed less than
// 2 s before it was hashed is hashed again next time, since a second change in the same tick of the
// file system's clock would not show. A damaged cache or one that cannot be written costs time
// only. Threads:  any; two processes may share a cache folder (the later one's file stands).
// Blocking: reads every file that is not in the cache.
// Errors:   ABORTED naming the file if it changes while it is read, several times in a row.
Result<HashedTree> HashFiles(const Listing& listing, const HashOptions& options = {});

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_HASH_FILES_H_
