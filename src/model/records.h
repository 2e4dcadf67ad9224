// What the server remembers of jobs, tasks, attempts and workers: decided by the core, kept by the
// store, shown by the handlers.
#ifndef GPULAYER_MODEL_RECORDS_H_
#define GPULAYER_MODEL_RECORDS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/ids.h"
#include "model/interval_set.h"
#include "model/job.h"
#include "model/resources.h"

namespace gpulayer {

struct JobRecord {
  JobId id;
  UserName user;
  std::shared_ptr<const JobSpec> spec;
  // Positions (TaskNumbers::At) of the tasks still in `queued`; they have no TaskRecord yet.
  IntervalSet queued;
  StateCounts counts;  // over all tasks, the queued ones too
  TaskState state = TaskState::kQueued;
  Outcome outcome;  // once terminal: that of the lowest task in the worst state
  WallTime created;
  std::optional<WallTime> started;  // first program start
  std::optional<WallTime> ended;
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// A task that has left `queued` at least once; one that is queued again keeps its row, in state
// `queued`. A task that is neither here nor in JobRecord::queued was cancelled before it ever left
// `queued`, together with more others than get a row each.
struct TaskRecord {
  TaskRef ref;
  TaskState state = TaskState::kQueued;
  Outcome outcome;     // once terminal; before that the machines it was lost with, if there are any
  AttemptNo attempts;  // number of the latest attempt
  std::int32_t failures = 0;  // charged to the job
  std::int32_t losses = 0;    // started attempts that died with their machine
  OutputResult outputs;
  friend bool operator==(const TaskRecord&, const TaskRecord&) = default;
};

struct AttemptRecord {
  AttemptRef ref;
  AttemptId id;
  WorkerId worker;
  std::string worker_name;
  AttemptState state = AttemptState::kPreparing;
  Allocation allocation;
  Outcome outcome;  // known from `finishing` on
  Cause stop;  // kind != kNone: a stop was ordered and why; kept so that a reconnect repeats it
  WallTime created;
  std::optional<WallTime> started;  // the program's start
  std::optional<WallTime> ended;
  std::int64_t log_bytes = 0;  // whole log, once ended
  std::string kept_folder;     // bytes; on its worker, of a failure with --keep; empty: none
  friend bool operator==(const AttemptRecord&, const AttemptRecord&) = default;
};

struct WorkerRecord {
  WorkerProfile profile;
  WorkerEpoch epoch;
  std::string boot_id;
  WallTime first_seen;
  WallTime last_seen;
  friend bool operator==(const WorkerRecord&, const WorkerRecord&) = default;
};

enum class WorkerState : std::int32_t { kOnline = 1, kSuspect = 2, kOffline = 3 };
std::string_view ToString(WorkerState state);

// A worker as it is now.
struct WorkerView {
  WorkerRecord record;
  WorkerState state = WorkerState::kOffline;
  std::int32_t slots_used = 0;
  std::int64_t memory_used_bytes = 0;
  std::vector<std::string> devices_used;
  std::int64_t running = 0;  // attempts that hold an allocation
  std::string quarantine;    // why it is given no work until it connects again; empty: it is
};

// Why one worker does not run the first queued task of a job now.
struct WorkerReason {
  std::string worker;  // name
  enum class Kind : std::int32_t {
    kNever = 1,
    kNotNow = 2,
    kHeld = 3,
    kFits = 4
  } kind = Kind::kNever;
  std::vector<std::string> lacks;  // "2 slots (needs 4)", "4 of 4 slots in use by job 7"
};

struct Explanation {
  JobId job;
  TaskState state = TaskState::kQueued;
  std::string needs;  // Describe(requirements)
  std::optional<WallTime> waiting_since;
  std::int64_t ahead = 0;  // queued tasks before it
  std::vector<WorkerReason> workers;
  std::string summary;  // one sentence
};

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_RECORDS_H_
