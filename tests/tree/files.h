// Small helpers for tests that make and look at files.
#ifndef GPULAYER_TESTS_TREE_FILES_H_
#define GPULAYER_TESTS_TREE_FILES_H_

#include <sys/stat.h>

#include <map>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/hash.h"
#include "model/tree.h"
#include "tree/git_tree.h"
#include "tree/scan.h"
#include "tree/unpack.h"

namespace gpulayer::testing {

inline mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

inline std::vector<std::string> PathsOf(const tree::Listing& listing) {
  std::vector<std::string> out;
  for (const tree::ListedEntry& entry : listing.entries) {
    out.push_back(entry.path + (entry.type == EntryType::kFolder ? "/" : ""));
  }
  return out;
}

inline std::vector<std::string> PathsOf(const Tree& tree) {
  std::vector<std::string> out;
  for (const TreeEntry& entry : tree.entries) {
    out.push_back(entry.path + (entry.type == EntryType::kFolder ? "/" : ""));
  }
  return out;
}

// Blobs in memory, served as a blob store serves them.
class MemoryBlobs {
 public:
  explicit MemoryBlobs(std::string dir) : dir_(std::move(dir)) {}
  TreeEntry File(const std::string& path, const std::string& content, std::uint32_t mode = 0644) {
    TreeEntry entry;
    entry.path = path;
    entry.mode = mode;
    entry.size = static_cast<std::int64_t>(content.size());
    entry.hash = Hash::Of(content);
    Put(JoinPath(dir_, entry.hash.hex()), content);
    return entry;
  }
  tree::BlobOpener Opener() const {
    return [dir = dir_](const Hash& hash) { return OpenFile(JoinPath(dir, hash.hex()), 0); };
  }

 private:
  const std::string dir_;
};

inline TreeEntry Link(const std::string& path, const std::string& target) {
  TreeEntry entry;
  entry.path = path;
  entry.type = EntryType::kLink;
  entry.mode = 0;
  entry.link_target = target;
  return entry;
}

inline TreeEntry Folder(const std::string& path, std::uint32_t mode = 0755) {
  TreeEntry entry;
  entry.path = path;
  entry.type = EntryType::kFolder;
  entry.mode = mode;
  return entry;
}

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_TREE_FILES_H_
