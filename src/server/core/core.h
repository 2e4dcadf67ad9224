// The scheduler: decides everything about jobs and workers, and does nothing.
//
// Threads:  not thread-safe; the engine thread owns it.
// Purity:   same state, event and time: same effects. No clock, lock, log, file, id maker or RPC
//           inside.
// Errors:   an event never fails; a caller's mistake is a Reply with a Status, a stale or unknown
//           report changes nothing and is answered as the effects say.
// Rows:     at most one Put* of each row in the effects of one event, before everything that is
//           sent.
#ifndef GPULAYER_SERVER_CORE_CORE_H_
#define GPULAYER_SERVER_CORE_CORE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/records.h"
#include "server/core/effects.h"
#include "server/core/events.h"

namespace gpulayer::core {

// What the store gives back after a restart: every job that is not terminal with its tasks and the
// attempts that are not over, every worker, and the counters.
struct Snapshot {
  ServerIdentity server;
  JobId last_job;
  std::vector<JobRecord> jobs;
  std::vector<TaskRecord> tasks;
  std::vector<AttemptRecord> attempts;
  std::vector<WorkerRecord> workers;
  struct Request {
    UserName user;
    RequestId id;
    JobId job;
  };
  std::vector<Request> requests;  // of all jobs that the store still has
};

// The attempt of a task whose program runs, and the session that its worker is heard on.
struct RunningPlace {
  SessionId session;
  AttemptKey key;
  WorkerId worker;
  std::string worker_name;
};

struct Options {
  Duration suspect_after;
  Duration lost_after;
};

struct State;

class Core {
 public:
  Core(Options options, Snapshot snapshot, Instant now);
  ~Core();
  Core(Core&&) noexcept;
  Core& operator=(Core&&) noexcept;

  std::vector<Effect> Apply(const Event& event, Instant now);

  // Reads for handlers, run on the engine thread; they change nothing.
  std::vector<WorkerView> Workers() const;
  // NOT_FOUND unless the job is queued or active (ended jobs are the store's to show).
  Result<Explanation> Explain(JobId job, Instant now) const;
  StateCounts TotalCounts() const;  // over the tasks of all jobs that are not over
  // Where a command inside a task runs now; no task: the job's only one. NOT_FOUND: not queued or
  // active here, as Explain(), or no such task. PERMISSION_DENIED: another user's.
  // INVALID_ARGUMENT: several tasks and none named. FAILED_PRECONDITION: its program does not run.
  // UNAVAILABLE: its worker is not connected.
  Result<RunningPlace> FindRunning(JobId job, std::optional<TaskIndex> task,
                                   const Caller& caller) const;
  // Whether this session may speak for this attempt now: asked before log bytes and outputs are
  // taken, which do not pass through Apply.
  bool IsCurrent(SessionId session, const AttemptKey& key) const;

  // Empty, or one line for each thing that is wrong. For tests.
  std::vector<std::string> CheckInvariants() const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace gpulayer::core

#endif  // GPULAYER_SERVER_CORE_CORE_H_
