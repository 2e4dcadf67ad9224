// Messages of the wire <-> the public, plain values.
#ifndef GPULAYER_CLIENT_CONVERT_H_
#define GPULAYER_CLIENT_CONVERT_H_

#include "base/hash.h"
#include "base/status.h"
#include "gpulayer/job_info.h"
#include "gpulayer/job_spec.h"
#include "gpulayer/v1/admin.pb.h"
#include "gpulayer/v1/jobs.pb.h"
#include "gpulayer/v1/workers.pb.h"

namespace gpulayer::client {

// All of a spec but its files, checked against every limit: INVALID_ARGUMENT before anything is
// sent. `request_id` is drawn if empty.
Result<v1::JobSpec> ToProto(const api::JobSpec& spec);

v1::StatusRequest StatusQuestion();  // says who asks: a server refuses versions it does not serve

api::JobInfo ToInfo(const v1::JobInfo& in);
api::JobInfo ToInfo(const v1::GetJobReply& in);
api::Explanation ToInfo(const v1::ExplainReply& in);
api::WorkerInfo ToInfo(const v1::ListWorkersReply::Worker& in);
api::ServerInfo ToInfo(const v1::StatusReply& in);
api::TokenInfo ToInfo(const v1::ListTokensReply::Token& in);

// "train.py is a file here but nothing is shipped: add `--source .`" (FAILED_PRECONDITION) if an
// argument names a file of the current directory that the job would not see, or would see by
// another name: its path inside the source.
Status CheckFilesHere(const api::JobSpec& spec);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_CONVERT_H_
