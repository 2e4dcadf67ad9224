// Outputs of one attempt that the server has taken over as files (docs/adr/0007).
#ifndef GPULAYER_WORKER_HANDED_OVER_H_
#define GPULAYER_WORKER_HANDED_OVER_H_

#include <map>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "model/tree.h"
#include "tree/hash_one.h"

namespace gpulayer::worker {

// Such a file is a blob of the server's. Its name in the attempt's folders goes, or whoever opens
// that to write would change what is stored; it is recorded before, so that outputs that are
// collected again, by this worker or the next, are complete.
// Threads: every method from any thread.
class HandedOver {
 public:
  // Recorded in `file`; `base` is the folder that all the attempt's files lie in.
  HandedOver(std::string file, std::string base) : file_(std::move(file)), base_(std::move(base)) {}

  Status Load();  // what an earlier life recorded; none is well
  // `path` is below the open folder `root`, whose path is `dir`. Where it cannot be recorded, or is
  // another file by now, the name stays.
  Status TakeAway(int root, const std::string& dir, const std::string& path,
                  const tree::HashedFile& file);
  std::map<std::string, TreeEntry> files();  // by absolute path

 private:
  const std::string file_;
  const std::string base_;
  Mutex mutex_;
  std::map<std::string, TreeEntry> files_ GPULAYER_GUARDED_BY(mutex_);  // by path below base_
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_HANDED_OVER_H_
