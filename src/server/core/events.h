// What can happen to the scheduler. Plain data: everything the core may use is inside.
#ifndef GPULAYER_SERVER_CORE_EVENTS_H_
#define GPULAYER_SERVER_CORE_EVENTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/ids.h"
#include "model/job.h"
#include "model/records.h"
#include "model/resources.h"

namespace gpulayer::core {

// Finds the waiting caller again; drawn by the engine, not stored. 0: nobody waits.
using ReplyTag = Strong<struct ReplyTagTag, std::int64_t>;

struct Caller {
  UserName user;
  bool admin = false;
};

// All or nothing; a job whose (user, request id) is known already is answered with that job.
struct SubmitJobs {
  ReplyTag tag;
  Caller caller;
  std::vector<std::shared_ptr<const JobSpec>> specs;
};

// Ends tasks: queued ones at once, active ones by a stop order. Either `tasks` or `request` is
// given.
struct CancelTasks {
  struct Selector {
    JobId job;
    std::optional<TaskIndex> task;  // none: all of the job
  };
  ReplyTag tag;
  Caller caller;
  std::vector<Selector> tasks;
  RequestId request;  // of the caller's own submit; it need not have arrived: a later submit with
                      // it is refused
  bool now = false;   // no grace: SIGKILL
};

// A worker opened a session and said Hello. An older session of the same worker is superseded.
struct WorkerConnected {
  struct Held {
    AttemptKey key;  // with the epoch under which the worker got it
    AttemptState state = AttemptState::kPreparing;
  };
  SessionId session;
  WorkerProfile profile;
  std::string boot_id;
  std::vector<Held> held;  // every attempt whose end has not been acknowledged
};

struct WorkerDisconnected {
  SessionId session;
};

// Its credential was revoked: it will not be let in again as what it was, so there is no lease to
// wait for.
struct WorkerRevoked {
  WorkerId worker;
};

// Anything heard on a session that is no other event; the profile if it changed.
struct WorkerHeard {
  SessionId session;
  std::optional<Resources> resources;
};

// The attempt moved to `running` (program started) or `finishing` (program over, tree gone: the
// allocation is free; `outcome` is known).
struct AttemptProgress {
  SessionId session;
  AttemptKey key;
  AttemptState state = AttemptState::kRunning;
  Outcome outcome;
  std::optional<Duration> started_ago = {};  // by the worker's clock; none: an older worker
};

// The attempt is over, its log and outputs are stored.
struct AttemptEnded {
  SessionId session;
  AttemptKey key;
  bool started = false;  // the user's program ran
  Outcome outcome;
  OutputResult outputs;
  std::int64_t log_bytes = 0;
  std::optional<Duration> started_ago = {};  // as AttemptProgress
  std::optional<Duration> ended_ago = {};    // since the program's end
  std::string kept_folder = {};              // AttemptRecord's
};

// Time passed. The engine sends one at least every second.
struct Tick {};

using Event = std::variant<SubmitJobs, CancelTasks, WorkerConnected, WorkerDisconnected,
                           WorkerRevoked, WorkerHeard, AttemptProgress, AttemptEnded, Tick>;

}  // namespace gpulayer::core

#endif  // GPULAYER_SERVER_CORE_EVENTS_H_
