// The disk side of an attempt: from an assignment to a folder ready to start in, and from what the
// program left there to outputs stored on the server.
#ifndef GPULAYER_WORKER_ATTEMPT_FILES_H_
#define GPULAYER_WORKER_ATTEMPT_FILES_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/line_file.h"
#include "base/status.h"
#include "model/job.h"
#include "worker/agent/agent.h"
#include "worker/cache/blob_cache.h"
#include "worker/cache/work_dirs.h"
#include "worker/exec/attempt_dir.h"
#include "worker/session/cancel.h"
#include "worker/session/link.h"

namespace gpulayer::worker {

// Threads:   every method from any thread, for different attempts.
// Blocking:  Prepare and Collect for as long as bytes travel; `cancel` breaks them off.
// Errors:    Prepare, Collect: as the agent wants to know them (agent.h, Prepared and
//            OutputsCollected).
class AttemptFiles {
 public:
  struct Options {
    std::string data_dir;
    std::int64_t cache_bytes = 0;
    std::string worker_name;
    std::vector<EnvVar> worker_env;
    std::string kept_dir;  // WorkerOptions'
  };
  static Result<std::unique_ptr<AttemptFiles>> Open(Options options, ServerLink link);

  const AttemptStore& store() const { return store_; }

  // Everything that gpulayer-exec needs; may be repeated. The assignment is on disk first.
  Status Prepare(const Assignment& assignment, Cancel& cancel);
  Result<OutputResult> Collect(const Assignment& assignment, Cancel& cancel);
  // The work folder will stay when the attempt's folders go; where it will be then. Empty: it cannot.
  std::string Keep(const AttemptId& id);
  // Sets all folders of the attempt aside for deletion. REQUIRES: over, or never started.
  void Discard(const AttemptId& id);

  struct Found {
    Assignment assignment;
    bool begun = false;
  };
  // What an earlier life of the daemon left; what cannot be used is removed. `running`: what
  // gpulayer-exec says is alive; is never removed.
  Result<std::vector<Found>> FindAttempts(const std::vector<AttemptId>& running);

 private:
  AttemptFiles(Options options, ServerLink link, AttemptStore store)
      : options_(std::move(options)), link_(std::move(link)), store_(std::move(store)) {}

  Result<std::shared_ptr<const Tree>> LoadTree(const Hash& hash, TimePoint deadline,
                                               Cancel& cancel);
  // Empty: a job without items. Reads the file of them once, not once a task.
  Result<std::optional<std::string>> ItemOf(const Assignment& assignment, TimePoint deadline,
                                            Cancel& cancel);
  Status LayOut(const Assignment& assignment, TimePoint deadline, Cancel& cancel, bool* fetched);
  BlobCache::Fetch Fetcher(Cancel& cancel) const;

  const Options options_;
  const ServerLink link_;
  const AttemptStore store_;
  std::unique_ptr<BlobCache> cache_;
  std::unique_ptr<WorkDirs> work_dirs_;
  std::string bin_dir_;
  std::string job_cache_dir_;

  LineFiles items_{8};  // of as many jobs at work at the same time; open though the cache lets go
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_ATTEMPT_FILES_H_
