// Writes a tree into a folder, and nothing outside it whatever the tree says.
#ifndef GPULAYER_TREE_UNPACK_H_
#define GPULAYER_TREE_UNPACK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/hash.h"
#include "base/status.h"
#include "model/tree.h"

namespace gpulayer::tree {

// INVALID_ARGUMENT naming the entry unless the tree is one that Unpack can write: sorted, no entry
// twice, none below a file or link, relative names without "." or "..", no NUL, parts up to 255
// bytes, modes up to 0777, links that stay inside however they are combined. Pure; every receiver
// of a tree (server on upload, worker, client) calls it.
Status CheckTree(const Tree& tree);

// True if a link at `path` (relative to a root) to `target` stays inside the root. `read_link`
// gives the target of a link at a path inside the root, or "" if there is none there.
bool LinkStaysInside(const std::string& path, const std::string& target,
                     const std::function<std::string(const std::string&)>& read_link);

// A readable descriptor whose bytes from 0 to its end are the blob. It is not seeked. An unnamed
// file (O_TMPFILE) is given away: it becomes the file itself where it lies on the right file
// system, so its owner must not write to it any more.
using BlobOpener = std::function<Result<UniqueFd>(const Hash& hash)>;

struct UnpackOptions {
  // Existing files and links are replaced by rename (two processes may lay the same tree into one
  // folder); false: an existing file is ALREADY_EXISTS. An existing folder is used, an existing
  // link or file in place of a folder is refused.
  bool replace = false;
  std::vector<std::string> skip;  // paths of entries that are not written
  // Files get this modification time (ns since 1970): a later change then shows whatever the tick
  // of the file system's clock. 0: the time of writing.
  std::int64_t mtime_ns = 0;
};

// Checks the tree, then writes it into `dir` (which must exist). Data is cloned (reflink) where the
// file system can, else copied; modes are set whatever the umask; folders that stand in no entry
// get 0755 if they are made here. Threads:  any; one caller at a time writes into a folder unless
// `replace`. Blocking: file I/O; 10,000 files of 1 KiB take about 0.3 s. Errors:   CheckTree's,
// before anything is written; DATA_LOSS if a blob's size differs; the file
//           system's, naming the entry. What was written until then stays.
Status Unpack(const Tree& tree, const std::string& dir, const BlobOpener& open_blob,
              const UnpackOptions& options = {});

// All bytes of `from` into the empty file `to`: reflink, copy_file_range, or read and write.
Status CopyContent(int from, int to, std::int64_t size);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_UNPACK_H_
