// Who this worker is, and that nobody else is it at the same time.
#ifndef GPULAYER_WORKER_IDENTITY_H_
#define GPULAYER_WORKER_IDENTITY_H_

#include <string>

#include "base/fs.h"
#include "base/status.h"
#include "model/ids.h"

namespace gpulayer::worker {

// The one worker of a data directory, as long as it lives. FAILED_PRECONDITION names the process
// that has it.
Result<FileLock> LockDataDir(const std::string& data_dir);

// From `<data dir>/worker.json`; drawn and written there the first time, so a worker keeps its id
// whatever its name, its address or its server. DATA_LOSS: the file is damaged.
Result<WorkerId> LoadIdentity(const std::string& data_dir);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_IDENTITY_H_
