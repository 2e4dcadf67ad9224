// An assignment on disk, so that the next life of the daemon knows what it finds running.
//
// Threads:   pure, but for the file.
// Errors:    NOT_FOUND; DATA_LOSS: damaged.
#ifndef GPULAYER_WORKER_SESSION_ASSIGNMENT_FILE_H_
#define GPULAYER_WORKER_SESSION_ASSIGNMENT_FILE_H_

#include <string>

#include "base/status.h"
#include "worker/agent/agent.h"

namespace gpulayer::worker {

inline constexpr char kAssignmentFile[] = "assignment";  // in the attempt's folder; do not change

// Readable by the owner alone: a job's environment is inside, without the values of its secrets. A crash leaves all of it or none.
// Begun by a free name (kFreeSuffix), as ReplaceFile() does.
Status WriteAssignment(const std::string& attempt_dir, const Assignment& assignment);
Result<Assignment> ReadAssignment(const std::string& attempt_dir);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_ASSIGNMENT_FILE_H_
