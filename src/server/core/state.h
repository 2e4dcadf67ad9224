// The scheduler's memory: plain data, and one Turn that collects what an event has changed.
//
// Everything is in ordered containers where it is walked, so that the same events give the same
// effects in the same order.
#ifndef GPULAYER_SERVER_CORE_STATE_H_
#define GPULAYER_SERVER_CORE_STATE_H_

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/interval_set.h"
#include "model/records.h"
#include "server/core/core.h"

namespace gpulayer::core {

// A started attempt that dies with its machine is the machine's fault, until it happens this often
// to one task: then the task kills machines.
inline constexpr std::int32_t kCrashLimit = 5;
// A worker is given no more work after failed starts for this many jobs, with none that succeeded
// between. Of fewer it is not known whether they or the worker are to blame: each rests there.
inline constexpr std::size_t kSpawnFailedJobs = 3;
// Starts that fail are the workers' fault, until they are this many of one task in a row: then the
// task must not go round for ever.
inline constexpr std::int32_t kStartTries = 10;
// How long a worker that could not start a task is not tried again with it, nor with others of its
// job: doubled each time.
inline constexpr Duration kStartDelay = std::chrono::seconds(1);
inline constexpr Duration kMaxStartDelay = std::chrono::seconds(30);
// The engine ticks every second: a longer silence means that the server itself stood still, and the
// workers' reports are waiting unread. That time is not held against them.
inline constexpr Duration kServerStoodStill = std::chrono::seconds(5);
// Cancelled request ids that never arrived. Old ones are forgotten: a client repeats for minutes.
inline constexpr std::size_t kRefusedRequests = 10'000;
// A cancel of more queued tasks than this writes no row for each of them (records.h says how they
// are told apart).
inline constexpr std::int64_t kRowsPerCancel = 1'000;

// A task that has left `queued` at least once and is not terminal.
struct Task {
  TaskRecord record;
  std::optional<AttemptRecord> attempt;  // the current one; set exactly while the task is active
  bool holds = false;                    // the attempt's allocation is not free yet
  bool stop_now = false;                 // the ordered stop has no grace any more
  bool start_guessed = false;            // it was found running; since when is not known yet
  // Workers that could not even start it: others go first, and these only from retry_at on. Empty
  // again once it has started, or when all of them have failed and are tried anew.
  std::set<WorkerId> failed_on;
  std::set<std::string> failed_names;  // all of them since its last start
  std::int32_t failed_starts = 0;      // in a row
  TimePoint retry_at;
};

// The lowest task in the worst state so far.
struct Worst {
  TaskState state = TaskState::kSucceeded;
  TaskIndex task;
  Outcome outcome;
};

// A job is not tried on a worker that has just failed to start one of its tasks.
struct Rest {
  TimePoint until;
  std::int32_t failures = 0;  // in a row; those of one moment are one
};

struct Job {
  JobRecord record;
  std::map<TaskIndex, Task> tasks;
  // Positions, as record.queued, of tasks that are queued again: these have a TaskRecord.
  IntervalSet requeued;
  std::optional<Worst> worst;
  // Of its tasks that are over, the last end; none: none is. What is not known any more after a
  // restart counts as now.
  std::optional<WallTime> last_end;
  // Since when tasks of it wait again, none: since the submit. Not known any more after a restart.
  std::optional<WallTime> waiting_since;
  std::map<WorkerId, Rest> rests;  // until one of its tasks starts there

  bool RestsOn(const WorkerId& worker, TimePoint now) const {
    const auto it = rests.find(worker);
    return it != rests.end() && now < it->second.until;
  }
  bool HasQueued() const { return !record.queued.empty() || !requeued.empty(); }
  std::int64_t PositionOf(TaskIndex task) const { return record.spec->tasks.PositionOf(task); }
  TaskIndex At(std::int64_t position) const { return record.spec->tasks.At(position); }
  // As many of its tasks as it may have at work are.
  bool AtItsLimit() const {
    const std::int64_t limit = record.spec->max_parallel;
    return limit > 0 &&
           record.counts[TaskState::kPreparing] + record.counts[TaskState::kRunning] >= limit;
  }
};

// All queued tasks with equal requirements: if the first cannot start, none of them can.
struct QueueClass {
  std::set<JobId> jobs;              // with queued tasks, in order of submit
  std::map<WorkerId, bool> can_run;  // what NeverReasons said; dropped when the worker changes
  bool blocked = false;  // the last pass found no room: until something is freed there is none
};

struct Worker {
  WorkerRecord record;
  WorkerState state = WorkerState::kOffline;
  SessionId session;  // 0: not connected
  TimePoint last_heard;
  std::vector<TaskRef> attempts;  // current ones, oldest first; those in `finishing` too
  std::int32_t slots_used = 0;
  std::int64_t memory_used = 0;
  std::set<std::string> devices_used;
  bool shrunk = false;                // has less than it had when work was given to it
  bool leaving = false;               // handed work back because it stops; until its next session
  std::set<JobId> spawn_failed_jobs;  // since the last start
  std::string quarantine;             // why it is given no work

  bool TakesWork() const {
    return session.value() != 0 && state == WorkerState::kOnline && quarantine.empty() && !leaving;
  }
};

// What the first task that cannot start waits for is set aside on one worker.
struct Reservation {
  JobId job;
  WorkerId worker;
};

struct State {
  Options options;
  ServerIdentity server;
  JobId last_job;
  std::map<JobId, Job> jobs;  // not terminal
  std::map<Requirements, QueueClass> queue;
  std::map<WorkerId, Worker> workers;
  std::map<SessionId, WorkerId> sessions;           // current ones only
  std::unordered_map<std::string, JobId> requests;  // by RequestKey; of ended jobs too
  std::unordered_set<std::string> refused;          // cancelled before they arrived
  std::deque<std::string> refused_order;
  TimePoint last_event;
  std::optional<Reservation> reservation;  // as of the last pass
  std::optional<TimePoint> retry_at;       // of the next task that waits for its retry_at
};

std::string RequestKey(const UserName& user, const RequestId& request);

// The work of one event: rows are written once, however often they change.
struct Turn {
  State& state;
  Instant now;
  bool schedule = false;  // a queued task may be able to start now
  std::set<JobId> inserted;
  std::set<JobId> changed;
  std::map<TaskRef, TaskRecord> tasks;
  std::map<AttemptRef, AttemptRecord> attempts;
  std::set<WorkerId> workers;
  std::vector<Effect> sends;  // everything that is not stored, in order

  void Put(const TaskRecord& record) { tasks[record.ref] = record; }
  void Put(const AttemptRecord& record) { attempts[record.ref] = record; }
  void Answer(ReplyTag tag, ReplyBody body) {
    if (tag.value() != 0) sends.push_back(Reply{tag, std::move(body)});
  }
  // Ends jobs whose last task has ended, and gives all effects: rows first.
  std::vector<Effect> Finish();
};

// One function for each event.
void OnSubmit(Turn& turn, const SubmitJobs& event);
void OnCancel(Turn& turn, const CancelTasks& event);
void OnConnected(Turn& turn, const WorkerConnected& event);
void OnDisconnected(Turn& turn, const WorkerDisconnected& event);
void OnRevoked(Turn& turn, const WorkerRevoked& event);
void OnHeard(Turn& turn, const WorkerHeard& event);
void OnProgress(Turn& turn, const AttemptProgress& event);
void OnEnded(Turn& turn, const AttemptEnded& event);
void OnTick(Turn& turn);

// Starts every queued task that can start now.
void Schedule(Turn& turn);

State Restore(Options options, Snapshot snapshot, Instant now);
Explanation ExplainJob(const State& state, const Job& job, Instant now);
std::vector<std::string> FindBrokenInvariants(const State& state);

}  // namespace gpulayer::core

#endif  // GPULAYER_SERVER_CORE_STATE_H_
