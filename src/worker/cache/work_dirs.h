// The folders in which attempts run: <dir>/v1/<attempt id>/{work,out,tmp,input}; and those that people
// asked to keep: <kept dir>/<attempt id>/, the newest limits::kKeptFolders for limits::kKeptFor.
#ifndef GPULAYER_WORKER_CACHE_WORK_DIRS_H_
#define GPULAYER_WORKER_CACHE_WORK_DIRS_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/ids.h"
#include "model/tree.h"
#include "tree/collect.h"
#include "worker/cache/blob_cache.h"

namespace gpulayer::worker {

struct WorkDir {
  AttemptId attempt;
  std::string path;   // of the attempt: <dir>/v1/<attempt id>
  std::string work;   // working directory, the source's copy
  std::string out;    // GPULAYER_OUTPUT_DIR
  std::string tmp;    // TMPDIR
  std::string input;  // GPULAYER_INPUT_DIR
  tree::LayoutStamp stamp;
};

// Threads:   every method from any thread, for different attempts.
// Ownership: a thread of its own empties what was set aside and keeps some of it for the next
//            attempts; the destructor joins it (what is left over is deleted after the next Open).
// Errors:    the file system's; INVALID_ARGUMENT for an attempt id that is no file name.
class WorkDirs {
 public:
  // REQUIRES: both on one file system. `kept_dir` is made when something is kept.
  static Result<std::unique_ptr<WorkDirs>> Open(const std::string& dir,
                                                const std::string& kept_dir);
  virtual ~WorkDirs() = default;

  // A fresh folder with `source` laid out (null: empty). REQUIRES: the tree's blobs are pinned in
  // `cache`. A blob that proves to be damaged is dropped from it: DATA_LOSS, try again from Ensure.
  virtual Result<WorkDir> Create(const AttemptId& attempt, const Tree* source,
                                 BlobCache& cache) = 0;
  // One that Create() completed, in this process or an earlier one; without a stamp if its program
  // took away what says so. NOT_FOUND.
  virtual Result<WorkDir> Adopt(const AttemptId& attempt) = 0;
  virtual Result<std::vector<AttemptId>> List() = 0;  // all that are there, complete or not
  // Gone from its place at once (a rename), deleted in the background; what its program mounted there
  // is taken away, never emptied. OK if there is none.
  virtual Status Discard(const AttemptId& attempt) = 0;
  // Out of reach of other attempts, for a person to look at: at PlaceToKeep(), which is known before.
  // OK if it is there already. What its program mounted there is taken away. Those over the bound go,
  // with a line in the log.
  virtual Status Keep(const AttemptId& attempt) = 0;
  // Not OK: nothing can be kept there.
  virtual Result<std::string> PlaceToKeep(const AttemptId& attempt) = 0;
};

// Every file's hash, once: what to Ensure() before Create().
std::vector<Hash> BlobsOf(const Tree& tree);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_CACHE_WORK_DIRS_H_
