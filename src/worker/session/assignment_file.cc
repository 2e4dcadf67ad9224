#include "worker/session/assignment_file.h"

#include <utility>

#include "base/fs.h"
#include "base/own_file.h"
#include "gpulayer/v1/workers.pb.h"
#include "wire/convert.h"

namespace gpulayer::worker {

Status WriteAssignment(const std::string& attempt_dir, const Assignment& assignment) {
  v1::Assign out;
  wire::ToProto(assignment.key, out.mutable_key());
  out.set_user(assignment.user.value());
  wire::ToProto(*assignment.spec, out.mutable_spec());
  wire::ToProto(assignment.allocation, out.mutable_allocation());
  return ReplaceFile(JoinPath(attempt_dir, kAssignmentFile), out.SerializeAsString());
}

Result<Assignment> ReadAssignment(const std::string& attempt_dir) {
  const std::string path = JoinPath(attempt_dir, kAssignmentFile);
  GPULAYER_ASSIGN_OR_RETURN(const std::string bytes, ReadOwnFile(path, kNoLimit));
  v1::Assign in;
  if (!in.ParseFromString(bytes)) return DataLoss(path + ": damaged");
  GPULAYER_ASSIGN_OR_RETURN(AttemptKey key, wire::FromProto(in.key()));
  GPULAYER_ASSIGN_OR_RETURN(JobSpec spec, wire::FromProto(in.spec()));
  return Assignment{std::move(key),
                    UserName(in.user()),
                    std::make_shared<const JobSpec>(std::move(spec)),
                    wire::FromProto(in.allocation()),
                    {}};
}

}  // namespace gpulayer::worker
