// What the core says of a request and of a task; the handlers say it of jobs that are over, which
// only the store still knows.
#ifndef GPULAYER_SERVER_CORE_REQUESTS_H_
#define GPULAYER_SERVER_CORE_REQUESTS_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "model/ids.h"
#include "model/job.h"

namespace gpulayer::core {

// A submit with the request id of a job that there is. ALREADY_EXISTS: it asks for something else.
// Not empty: the same with other files, said as a warning.
Result<std::string> SameRequest(const JobSpec& asked, const JobSpec& known, JobId job);

// NOT_FOUND; `what` is what was asked for, as "cancel job 42".
Status NoSuchTask(const std::string& what, TaskRef task, const JobSpec& spec);

// FAILED_PRECONDITION, of a command inside what is over; `name` as "job 42".
Status NothingRunsAnyMore(const std::string& name);

}  // namespace gpulayer::core

#endif  // GPULAYER_SERVER_CORE_REQUESTS_H_
