// What the scheduler wants done. The engine stores the Put* of a whole batch in one transaction,
// and only after the commit carries out the others, in order.
#ifndef GPULAYER_SERVER_CORE_EFFECTS_H_
#define GPULAYER_SERVER_CORE_EFFECTS_H_

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "model/records.h"
#include "server/core/events.h"

namespace gpulayer::core {

// Stored.
struct InsertJob {
  JobRecord record;
};
struct UpdateJob {
  JobRecord record;
};  // everything but the spec
struct PutTask {
  TaskRecord record;
};
struct PutAttempt {
  AttemptRecord record;
};
struct PutWorker {
  WorkerRecord record;
};

// Sent to a worker.
struct SendWelcome {
  SessionId session;
  WorkerId worker;
  WorkerEpoch epoch;
  std::vector<AttemptKey> keep;          // with the new epoch: to be used from now on
  std::vector<AttemptKey> kill;          // not current any more: end it, drop its log and outputs
  std::vector<std::int64_t> log_limits;  // of `keep`, in its order; not sent
};
struct SendAssign {
  SessionId session;
  AttemptKey key;
  UserName user;
  std::shared_ptr<const JobSpec> spec;
  Allocation allocation;
};
struct SendStop {
  SessionId session;
  AttemptKey key;
  Cause cause;       // reported back as the outcome's cause if the stop is what ended it
  Duration grace{};  // zero: SIGKILL at once
};
// The end is stored, or the attempt is not current: the worker may forget it.
struct SendEndAck {
  SessionId session;
  AttemptKey key;
  bool current = true;
};
struct CloseSession {
  SessionId session;
  Status reason;
};

// Answers.
struct Submitted {
  JobId job;
  bool existed = false;  // the request id was known
  std::string warning;   // "no worker is known yet: the job waits"
};
struct SubmitReply {
  std::vector<Submitted> jobs;
};
struct CancelReply {
  std::int64_t cancelled = 0;
  std::int64_t already_ended = 0;
  std::int64_t finishing = 0;  // the program is over, its outputs are on their way
};
using ReplyBody = std::variant<Status, SubmitReply, CancelReply>;
struct Reply {
  ReplyTag tag;
  ReplyBody body;
};

// Something that `job show` would print differently now.
struct JobChanged {
  JobId job;
  bool ended = false;            // for good
  std::string secrets_ref = {};  // then: JobSpec's, which nobody needs any more
};

using Effect = std::variant<InsertJob, UpdateJob, PutTask, PutAttempt, PutWorker, SendWelcome,
                            SendAssign, SendStop, SendEndAck, CloseSession, Reply, JobChanged>;

}  // namespace gpulayer::core

#endif  // GPULAYER_SERVER_CORE_EFFECTS_H_
