// Jobs as the messages that show them, read from the store.
//
// Threads: those of the reader pool.
#ifndef GPULAYER_SERVER_RPC_JOB_VIEWS_H_
#define GPULAYER_SERVER_RPC_JOB_VIEWS_H_

#include <optional>
#include <vector>

#include "base/line_file.h"
#include "base/status.h"
#include "gpulayer/v1/jobs.pb.h"
#include "server/store/store.h"

namespace gpulayer::rpc {

namespace pb = ::gpulayer::v1;

struct TaskPage {
  std::optional<TaskIndex> only;
  TaskIndex from;
  std::int32_t limit = 0;         // 0: 100
  std::vector<TaskState> states;  // only tasks in one of them; none: any
};

// The job and a page of its tasks, never over a message's size. NOT_FOUND: no such job.
Status ReadJob(StoreReader& reader, JobId id, const TaskPage& page, pb::GetJobReply* out);

// Each task's item, as far as the message has room.
void AddItems(const LineFile& lines, pb::GetJobReply* job);

// A page of jobs, never over a message's size (specs may be large).
Status ReadJobs(StoreReader& reader, const pb::ListJobsRequest& request, pb::ListJobsReply* out);

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_JOB_VIEWS_H_
