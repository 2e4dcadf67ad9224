// Opening what lies in a folder without ever being led out of it by a link.
#ifndef GPULAYER_TREE_BENEATH_H_
#define GPULAYER_TREE_BENEATH_H_

#include <string>
#include <vector>

#include "base/fs.h"
#include "base/status.h"
#include "model/tree.h"
#include "tree/scan.h"

struct stat;

namespace gpulayer::tree {

// Paths beyond this cannot be opened in one call: neither git nor we ship them.
inline constexpr std::size_t kMaxPathBytes = 4000;

// Opens `path` ("" is the folder itself) below the open folder `root`; no part of the path may be a
// link. Never waits, whatever `path` is. -1 and errno on failure: ELOOP if there is a link.
UniqueFd OpenBeneath(int root, const std::string& path, int flags);

// Opens a regular file to read; an error says in few words why not ("a FIFO", "not readable").
Result<UniqueFd> OpenRegular(int root, const std::string& path);

// The target of the link `path`, "" if it is none.
std::string ReadLink(int dir, const std::string& path);

// The content of an ignore file, "" if there is none that can be read (git's own rule).
std::string ReadIgnoreFile(int root, const std::string& path);

FileStamp StampOf(const struct stat& info);

// "a FIFO", "a socket", "a device"; "" for what can ship.
std::string UnfitKind(const struct stat& info);

struct Name {
  std::string name;
  unsigned char type = 0;  // DT_*
};
// All names in an open folder but . and ..; unsorted.
Result<std::vector<Name>> ListNames(int dir, const std::string& shown);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_BENEATH_H_
