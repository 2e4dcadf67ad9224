// What an attempt brings home: everything in its output folder, then what it changed in its work
// folder.
#ifndef GPULAYER_TREE_COLLECT_H_
#define GPULAYER_TREE_COLLECT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/job.h"
#include "model/tree.h"
#include "tree/hash_files.h"
#include "tree/hash_one.h"

namespace gpulayer::tree {

// Tells a file that was laid out and left alone without an array of stat data: all of them were
// given one modification time, and their change times are not after the end of the layout.
struct LayoutStamp {
  std::int64_t mtime_ns = 0;
  std::int64_t latest_ctime_ns = 0;
  friend bool operator==(const LayoutStamp&, const LayoutStamp&) = default;
};

struct CollectRequest {
  std::string work_dir;          // where the source was laid out; missing: nothing was changed
  std::string output_dir;        // GPULAYER_OUTPUT_DIR; missing: nothing was put there
  const Tree* source = nullptr;  // what was laid out; null: the work folder was empty
  LayoutStamp stamp;
  OutputRules rules;
  int threads = 1;  // for hashing
  // Absolute paths of files that changed after each time they were read: left out.
  std::set<std::string> unstable;
  // By absolute path: what is stored already and is no longer on disk, with mode, size and hash.
  std::map<std::string, TreeEntry> stored;
  // In place of reading a file that comes home, one of kHandOverBytes or more: stores it otherwise
  // and says its hash. After any error but CANCELLED the file is read all the same. Called by
  // `threads` threads.
  std::function<Result<HashedFile>(int root, const std::string& path)> hash_big;
};

struct Collected {
  Tree tree;                    // passes CheckTree; no ignore rules
  std::vector<BlobFile> blobs;  // each hash once
  OutputResult result;          // files, bytes, left out; `tree` is not set: see below
  std::int64_t hashed_files = 0;
};

// With rules.collect false, or nothing to bring home: an empty tree. The manifest's hash is the
// caller's to set (it is that of the serialised tree).
// A changed file is one whose content differs from the source's: touched ones are hashed to find
// out, a changed mode alone is none. A source file that an ignore rule matches counts as tracked.
// New folders come home from output_dir, from work_dir only as parents of files; both with their
// modes. Of two files of one name output_dir's comes home; the other is listed if it differs. A
// pattern of rules.globs that nothing matches is listed, and with it some files of work_dir that no
// pattern takes. So are new folders that never travel (`.git` and the like). What cannot come
// (links that leave, FIFOs, sockets, unstable files, clashes, over the limit, what is another
// account's and not readable) is listed in result.left_out with the reason. What this account owns
// and may not read is made readable on the way and keeps its mode in the tree; as it stays readable
// on disk (it is still to be uploaded), collecting the same folders again lists the mode that it
// was given. A folder that was removed brings nothing and is no error; one that became a link is
// never followed and is listed as ".", as is an unreadable one: the other one's files come home all
// the same.
// Threads:  any.
// Blocking: file I/O; hashes what is new or touched, nothing else.
// Errors:   this machine cannot list the folders.
Result<Collected> Collect(const CollectRequest& request);

// A pattern of --output as it is matched: "./a", "a//b" and "a/./b" mean the paths /a, a/b and a/b.
// INVALID_ARGUMENT: it can match nothing (it leads out, is malformed…), and what to write
// instead.
Result<std::string> NormalOutputGlob(const std::string& pattern);

// One pattern of --output: with a slash it matches the path, without one any base name, as git's
// do; a matched folder means all in it.
bool MatchesOutputGlob(const std::string& pattern, const std::string& path);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_COLLECT_H_
