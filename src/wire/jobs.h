// Records of the server as the messages of jobs.proto and workers.proto, and back for the client.
#ifndef GPULAYER_WIRE_JOBS_H_
#define GPULAYER_WIRE_JOBS_H_

#include <vector>

#include "base/status.h"
#include "gpulayer/v1/jobs.pb.h"
#include "gpulayer/v1/workers.pb.h"
#include "model/records.h"

namespace gpulayer::wire {

namespace pb = ::gpulayer::v1;

void ToProto(const JobRecord& in, pb::JobInfo* out);
Result<JobRecord> FromProto(const pb::JobInfo& in);  // `queued` is not sent
void ToProto(const TaskRecord& in, const std::vector<AttemptRecord>& attempts, pb::TaskInfo* out);
struct TaskAndAttempts {
  TaskRecord task;
  std::vector<AttemptRecord> attempts;
};
Result<TaskAndAttempts> FromProto(const pb::TaskInfo& in, JobId job);
void ToProto(const Explanation& in, pb::ExplainReply* out);
Explanation FromProto(const pb::ExplainReply& in);
void ToProto(const WorkerView& in, pb::ListWorkersReply::Worker* out);
Result<WorkerView> FromProto(const pb::ListWorkersReply::Worker& in);

}  // namespace gpulayer::wire

#endif  // GPULAYER_WIRE_JOBS_H_
