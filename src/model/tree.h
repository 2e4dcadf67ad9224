// A folder's content by hash: what ships as source, what comes back as outputs.
#ifndef GPULAYER_MODEL_TREE_H_
#define GPULAYER_MODEL_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"

namespace gpulayer {

enum class EntryType : std::int32_t { kFile = 1, kLink = 2, kFolder = 3 };

struct TreeEntry {
  std::string path;  // bytes, relative, no empty, "." or ".." part, no leading or trailing slash
  EntryType type = EntryType::kFile;
  std::uint32_t mode = 0644;  // permission bits of a file or folder
  std::int64_t size = 0;      // of a file
  Hash hash;                  // of a file's content
  std::string link_target;    // of a link
  friend bool operator==(const TreeEntry&, const TreeEntry&) = default;
};

// Ignore rules that hold in the tree but do not travel as files inside it: those of parent folders,
// .git/info/exclude and the user's global file; git's syntax, bytes. Lowest precedence first.
struct IgnoreRules {
  struct File {
    std::string dir;  // folder of the rules, relative to the repository's root; "" is the root
    std::string content;
    friend bool operator==(const File&, const File&) = default;
  };
  std::string prefix;  // where the tree's root lies below the repository's root; "" if equal
  std::vector<File> files;
  std::string overriding;  // .gpulayerignore: comes last and may re-include
  // Submodules and nested repositories (named as File::dir is): rules of folders above do not hold
  // in them.
  std::vector<std::string> nested_roots;
  bool fold_case = false;  // git's core.ignorecase
  friend bool operator==(const IgnoreRules&, const IgnoreRules&) = default;
};

// Sorted by path (bytes); a folder stands here only if it is empty or its mode is not 0755.
struct Tree {
  std::vector<TreeEntry> entries;
  IgnoreRules ignore;
  friend bool operator==(const Tree&, const Tree&) = default;
};

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_TREE_H_
