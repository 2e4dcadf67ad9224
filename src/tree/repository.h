// What git itself knows about a folder: which repository it belongs to, what is tracked there,
// which ignore files hold. The only user of libgit2.
#ifndef GPULAYER_TREE_REPOSITORY_H_
#define GPULAYER_TREE_REPOSITORY_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tree/ignore.h"

namespace gpulayer::tree {

// libgit2 while one stands. It counts its users; with the last one it forgets where it found the
// configuration files, so that a changed HOME is seen by the next call. The first costs some 20 ms
// (it reads all certificates of the system), so whoever asks several questions holds one meanwhile.
class GitLibrary {
 public:
  GitLibrary();
  ~GitLibrary();
  GitLibrary(const GitLibrary&) = delete;
  GitLibrary& operator=(const GitLibrary&) = delete;
};

// Paths in git's index, relative to the repository's root.
class TrackedSet {
 public:
  TrackedSet() = default;
  TrackedSet(std::vector<std::string> files, std::vector<std::string> submodules);  // any order
  bool HasFile(std::string_view path) const;
  bool HasUnder(std::string_view folder) const;  // a file or submodule below it
  bool IsSubmodule(std::string_view path) const;

 private:
  std::vector<std::string> files_;       // sorted; the submodules too
  std::vector<std::string> submodules_;  // sorted
};

struct Repository {
  std::string root;  // of the working tree: real, absolute, without a slash at the end
  Case fold = Case::kKeep;
  std::string global_ignore;  // content of core.excludesFile, or of its default
  std::string info_exclude;   // content of .git/info/exclude
  TrackedSet tracked;         // those below `folder`, the argument
  std::string problem;        // why `tracked` is empty although there is an index: a warning
};

// The repository whose working tree `folder` (a real path) lies in, or none. `only_at`: only one
// whose root is `folder`. FAILED_PRECONDITION: one whose own files are no files (a FIFO would never
// be read to its end): not opened.
enum class Search { kUpwards, kOnlyAt };
Result<std::optional<Repository>> FindRepository(const std::string& folder, Search search);

// Content of the user's global ignore file for a folder that is in no repository.
std::string GlobalIgnore();

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_REPOSITORY_H_
