// Random working trees made with the real git, and what git says of them.
#ifndef GPULAYER_TESTS_TREE_GIT_TREE_H_
#define GPULAYER_TESTS_TREE_GIT_TREE_H_

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gpulayer::testing {

struct Output {
  int code = -1;
  std::string text;
};
// Runs a program with only HOME, PATH and git's test settings in its environment.
Output RunIn(const std::string& dir, const std::string& home, std::vector<std::string> argv);

bool HaveGit();

// Writes `content` to `path`, with the folders above it.
void Put(const std::string& path, const std::string& content = "x");

// A repository under `root` with everything that ignore rules are known to trip over; `home` gets
// the user's own git settings. Returns folders that are worth scanning on their own ("" the root
// itself).
std::vector<std::string> MakeRandomTree(std::uint64_t seed, const std::string& root,
                                        const std::string& home);

// `git ls-files -co --exclude-standard` of a folder, less what is not on disk; nested repositories
// listed by themselves; less what never ships by the contract.
std::set<std::string> GitList(const std::string& root, const std::string& home);

// Files and links below `root` outside of any .git.
std::size_t FilesOnDisk(const std::string& root);

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_TREE_GIT_TREE_H_
