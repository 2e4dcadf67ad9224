// Records of the server as the messages of jobs.proto and workers.proto.
#ifndef GPULAYER_WIRE_JOBS_H_
#define GPULAYER_WIRE_JOBS_H_

#include <vector>

#include "gpulayer/v1/jobs.pb.h"
#include "gpulayer/v1/workers.pb.h"
#include "model/records.h"
#include "wire/convert.h"

namespace gpulayer::wire {

namespace pb = ::gpulayer::v1;

void ToProto(const JobRecord& in, pb::JobInfo* out, Only only = Only::kWith);
void ToProto(const TaskRecord& in, const std::vector<AttemptRecord>& attempts, pb::TaskInfo* out);
void ToProto(const Explanation& in, pb::ExplainReply* out);
void ToProto(const WorkerView& in, pb::ListWorkersReply::Worker* out);

}  // namespace gpulayer::wire

#endif  // GPULAYER_WIRE_JOBS_H_
