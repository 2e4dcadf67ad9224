// Git's ignore patterns, as gitignore(5) and git's behaviour define them. Pure: no files, no git.
// Why not libgit2's: docs/adr/0004-ignore-rules.md.
#ifndef GPULAYER_TREE_IGNORE_H_
#define GPULAYER_TREE_IGNORE_H_

#include <bitset>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gpulayer::tree {

enum class Case { kKeep, kFold };  // kFold: ASCII letters compare equal in both cases

// One pattern with `*`, `?`, `[...]`, `**` and backslashes, ready to be matched. Takes time in
// proportion to pattern times text, whatever the pattern.
class Wildcard {
 public:
  Wildcard() = default;
  Wildcard(std::string_view pattern, Case fold);
  // The whole text; `/` is only matched by `/` and by `**` as a part of its own.
  bool Matches(std::string_view text) const;
  bool malformed() const { return never_; }  // matches nothing

 private:
  struct Token {
    enum class Kind { kByte, kAny, kSet, kStar, kDoubleStar, kZeroFolders } kind = Kind::kByte;
    unsigned char byte = 0;
    std::size_t set = 0;  // index into sets_
  };
  bool ParseSet(std::string_view pattern, std::size_t* at, Case fold);

  std::vector<Token> tokens_;
  std::vector<std::bitset<256>> sets_;
  bool fold_ = false;
  bool never_ = false;  // malformed: matches nothing
};

enum class Verdict { kNone, kIgnored, kIncluded };

// The patterns of one file.
class IgnoreList {
 public:
  IgnoreList() = default;
  IgnoreList(std::string_view content, Case fold);

  // `path` is relative to the folder of the file, without a slash at either end; the last pattern
  // that matches decides.
  Verdict Match(std::string_view path, bool is_folder) const;
  // True if a pattern with a slash re-includes something that lies below `folder`.
  bool ReachesInto(std::string_view folder) const;
  bool empty() const { return rules_.empty(); }

 private:
  struct Rule {
    bool negated = false;
    bool only_folders = false;
    bool any_level = false;  // no slash: compared with the base name
    enum class Kind { kExact, kSuffix, kWildcard } kind = Kind::kExact;
    std::string
        literal;    // the part before the first special byte; kSuffix: the part after the star
    Wildcard rest;  // kWildcard: what follows `literal` (any_level: the whole pattern)
  };
  void AddLine(std::string line);
  bool Matches(const Rule& rule, std::string_view path, std::string_view base_name) const;
  bool Same(std::string_view a, std::string_view b) const;

  std::vector<Rule> rules_;
  bool fold_ = false;
};

// The lists that hold in a folder, as a chain from the innermost outwards. Immutable; shared by the
// folders below.
struct RuleChain {
  std::shared_ptr<const RuleChain> outer;
  std::size_t base = 0;  // length of the list's folder in a full path, with its slash
  IgnoreList list;
};
using RuleChainPtr = std::shared_ptr<const RuleChain>;

RuleChainPtr Extend(RuleChainPtr outer, std::size_t base, IgnoreList list);
// The innermost list that has a verdict decides.
Verdict Decide(const RuleChain* chain, std::string_view full_path, bool is_folder);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_IGNORE_H_
