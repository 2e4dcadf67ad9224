// The attempt folders of one worker: `<data dir>/attempts/v1/<attempt id>/`. gpulayer-exec owns the
// files named in attempt_format.h once an attempt is started; any other name inside is the worker's
// own affair (work tree, outputs, the key that its reports carry).
//
// Threads:   any, one per attempt at a time.
// Blocking:  file system calls only; nothing is synced: `kill -9` is survived, a power cut ends the
//            attempts anyway.
// Errors:    each names the folder.
#ifndef GPULAYER_WORKER_EXEC_ATTEMPT_DIR_H_
#define GPULAYER_WORKER_EXEC_ATTEMPT_DIR_H_

#include <memory>
#include <string>
#include <vector>

#include "base/spare_folders.h"
#include "model/ids.h"
#include "model/job.h"
#include "worker/exec/attempt_format.h"

namespace gpulayer {

class AttemptStore {
 public:
  // Makes the folder of folders (0700). `data_dir` must be absolute.
  static Result<AttemptStore> Open(const std::string& data_dir);

  const std::string& root() const { return root_; }
  std::string PathOf(const AttemptId& id) const;

  // A folder (0700) in which an attempt may begin; returns its path. It is empty, or holds names that
  // are free (kFreeSuffix): files of an earlier attempt, kept by Remove() so that they need not be
  // made anew. INVALID_ARGUMENT: the id is not fit for a file name; ALREADY_EXISTS.
  Result<std::string> Create(const AttemptId& id) const;
  // What ExecClient::Start will run. INVALID_ARGUMENT: no argv, a NUL in a string, a relative cwd,
  // an environment without GPULAYER_ATTEMPT_ID=<id>, more than kMaxAttemptSpecBytes.
  Status WriteSpec(const AttemptId& id, const AttemptSpec& spec) const;

  Result<AttemptSpec> ReadSpec(const AttemptId& id) const;
  Result<AttemptStarted> ReadStarted(const AttemptId& id) const;  // NOT_FOUND: has not started
  Result<AttemptStatus> ReadStatus(const AttemptId& id) const;    // NOT_FOUND: is not over
  Result<std::vector<AttemptId>> List() const;  // of all folders, sorted; other names are skipped
  // REQUIRES: over, or never started. OK if there is none.
  Status Remove(const AttemptId& id) const;

 private:
  AttemptStore(std::string root, std::unique_ptr<SpareFolders> spares)
      : root_(std::move(root)), spares_(std::move(spares)) {}
  std::string root_;
  std::shared_ptr<SpareFolders> spares_;
};

// The status in the terms of the model. Cause: kTimeLimit and kCancelled by the order that was in
// force (who cancelled and why is the caller's to add), kNotFound, kNotExecutable, kSpawnFailed
// (the worker's fault, uncharged), kWorkerLost (StartStep::kMonitor or StopOrder::kShutdown),
// kOutOfMemory (the main program was killed, and the attempt's cgroup counts a kill by the kernel),
// kSignal, kProgram. Its text says what happened, for people.
Outcome OutcomeOf(const AttemptStatus& status);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_ATTEMPT_DIR_H_
