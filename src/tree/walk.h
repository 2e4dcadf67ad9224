// One walk for sources and outputs: which files of a folder the ignore rules let through.
#ifndef GPULAYER_TREE_WALK_H_
#define GPULAYER_TREE_WALK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "model/tree.h"
#include "tree/repository.h"
#include "tree/scan.h"

namespace gpulayer::tree {

struct WalkPlan {
  // Rules that do not stand in the folder itself, and what counts as tracked (relative to
  // ignore.prefix's root, as in git's index).
  IgnoreRules ignore;
  TrackedSet tracked;
  // True: folders with a .git are asked for as repositories of their own, and what is found is
  // added to the result's rules. False: ignore.nested_roots says which they are.
  bool find_repositories = false;
  bool use_rules = true;  // false: everything that lies in the folder
  // Files and folders of this account that it may not read are made readable, and listed with the
  // mode that they had; a second walk lists the one that they were given. For what a program that
  // is over has left, never for a user's own folder.
  bool open_up = false;
  bool name_ignored = false;       // fill `ignored` and `kept_out`
  std::vector<std::string> never;  // folders, relative to the root, that are no part of it
  bool leave_data_dirs = false;    // nor are data directories of a server or worker below the root
  std::int64_t limit_bytes = INT64_MAX;
  std::int64_t limit_files = INT64_MAX;
  std::int64_t entries_after_limit = 0;
};

// Fills `entries warnings more_warnings ignored kept_out files bytes over_limit counted_all largest` and
// `ignore`, all as Scan promises. `root` must be an open folder.
Result<Listing> Walk(int root, const std::string& root_shown, WalkPlan plan);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_WALK_H_
