// What of a folder ships as source: exactly `git ls-files -co --exclude-standard` (less what is not
// on disk), submodules and nested repositories by their own rules, folders kept even when empty;
// the same rules outside a repository. Minus `.git`, `__pycache__`, `gpulayer_runs` and folders
// with a `pyvenv.cfg`. `.gpulayerignore` at the root comes last: it takes out what is tracked too,
// and may re-include all but `.git`.
#ifndef GPULAYER_TREE_SCAN_H_
#define GPULAYER_TREE_SCAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/limits.h"
#include "model/tree.h"

namespace gpulayer::tree {

// What tells a changed file from an unchanged one without reading it.
struct FileStamp {
  std::int64_t size = 0;
  std::int64_t mtime_ns = 0;  // since 1970
  std::int64_t ctime_ns = 0;
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Something that is on disk and by the rules would ship, but cannot.
struct Warning {
  std::string path;    // bytes, relative to the root; ".": about the whole folder
  std::string reason;  // "a link that leaves the folder (to ../keys)", "a FIFO", "not readable"
};
std::string ToString(const Warning& warning);  // "left out run.sock: a socket"; fit for a terminal

struct ListedEntry {
  std::string path;  // as TreeEntry::path
  EntryType type = EntryType::kFile;
  std::uint32_t mode = 0644;  // 0..0777
  FileStamp stamp;            // of a file
  std::string link_target;    // of a link
};

struct FolderSize {
  std::string path;  // "." holds the files that lie directly in the root
  std::int64_t bytes = 0;
  std::int64_t files = 0;
};

struct Listing {
  std::string root;                  // real, absolute path
  std::vector<ListedEntry> entries;  // sorted by path; folders as in Tree
  IgnoreRules ignore;                // travels with the tree: outputs are chosen by it
  std::vector<Warning> warnings;     // sorted; at most kMaxWarnings
  std::int64_t more_warnings = 0;    // those beyond it
  // What an ignore rule keeps out, folders with a slash at the end and without what is in them;
  // without what is never shipped (__pycache__ and the like). Only if it is asked for.
  std::vector<std::string> ignored;  // in no order
  // Folders that never travel, whatever the rules of git say: `.git`, `gpulayer_runs`, virtual
  // environments; with a slash at the end, without what is in them. `__pycache__` is not named: nobody
  // misses it. Only if `ignored` is asked for.
  std::vector<std::string> kept_out;  // in no order
  std::int64_t files = 0;             // files and links
  std::int64_t bytes = 0;
  // Over a limit: `entries` is empty then, the sums and `largest` (by bytes or files, whichever is
  // over; at most ten) stand; `counted_all` is false if the walk stopped before the end.
  bool over_limit = false;
  bool counted_all = true;
  std::vector<FolderSize> largest;
};

inline constexpr std::size_t kMaxWarnings = 1000;

struct ScanOptions {
  std::int64_t limit_bytes = limits::kSourceLimitBytes;
  std::int64_t limit_files = limits::kSourceLimitFiles;
  // Absolute paths of folders that never ship, whatever the rules say; one that would is a warning.
  // The same holds of each data directory of a server or worker.
  std::vector<std::string> never;
  bool name_ignored = false;  // fill Listing::ignored and kept_out
  // Once over a limit the walk only goes on to find the largest folders, for this many entries.
  std::int64_t entries_after_limit = 2'000'000;
};

// Walks `root`. Reads names, stat data and ignore files only; follows no link, opens no FIFO.
// Threads:  any; keeps nothing between calls.
// Blocking: file I/O; 10,000 files take about 50 ms when cached.
// Errors:   NOT_FOUND / FAILED_PRECONDITION if root is no folder that can be listed. A file that
//           cannot ship is a warning, never an error; over the limit is not an error here.
Result<Listing> Scan(const std::string& root, const ScanOptions& options = {});

// Of a file below `root` that the rules leave out: the lines that let it ship, behind all others in
// .gpulayerignore, "`!/data/big.csv`". Empty: it ships, or a warning says why it does not, or it never
// can.
// REQUIRES: not over a limit.
std::string LinesToShip(const Listing& listing, const std::string& path);

// RESOURCE_EXHAUSTED naming the limit and the ten largest folders if the listing is over it.
Status CheckLimit(const Listing& listing, const ScanOptions& options);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_SCAN_H_
