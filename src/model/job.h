// Jobs, tasks and attempts: what was asked, in which state it is, how it ended.
// Enumerators' numbers are on the wire and in the database: do not change them.
#ifndef GPULAYER_MODEL_JOB_H_
#define GPULAYER_MODEL_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "model/ids.h"
#include "model/interval_set.h"
#include "model/limits.h"
#include "model/resources.h"

namespace gpulayer {

enum class TaskState : std::int32_t {
  kBlocked = 1,
  kQueued = 2,
  kPreparing = 3,
  kRunning = 4,
  kFinishing = 5,
  kSucceeded = 6,
  kFailed = 7,
  kCancelled = 8,
  kTimedOut = 9,
};
std::string_view ToString(TaskState state);  // "queued"
std::optional<TaskState> TaskStateFromString(std::string_view text);
bool IsTerminal(TaskState state);
bool IsActive(TaskState state);  // preparing, running, finishing
// The job's state from how many tasks are in each: any active > queued > blocked; when all ended
// failed > timed_out > cancelled > succeeded. Of several active ones the least advanced is shown:
// running > finishing > preparing.
struct StateCounts {
  std::int64_t count[10] = {};  // indexed by TaskState
  std::int64_t& operator[](TaskState s) { return count[static_cast<int>(s)]; }
  std::int64_t operator[](TaskState s) const { return count[static_cast<int>(s)]; }
  friend bool operator==(const StateCounts&, const StateCounts&) = default;
};
TaskState JobStateOf(const StateCounts& counts);

enum class AttemptState : std::int32_t {
  kPreparing = 1,
  kRunning = 2,
  kFinishing = 3,
  kEnded = 4,
  kLost = 5,
};
std::string_view ToString(AttemptState state);

// Who or what ended it. A program's own 124 has kind kProgram; a time limit has kTimeLimit.
enum class CauseKind : std::int32_t {
  kNone = 0,               // not ended
  kProgram = 1,            // the program ended by itself with an exit code
  kSignal = 2,             // a signal that was not ours ended it
  kOutOfMemory = 3,        // the kernel or the cgroup says so
  kTimeLimit = 4,          // --time
  kCancelled = 5,          // a user's cancel
  kNotExecutable = 6,      // 126
  kNotFound = 7,           // 127
  kPreparation = 8,        // source or environment could not be made ready; charged to the job
  kSpawnFailed = 9,        // the worker could not start it; charged to the worker
  kWorkerLost = 10,        // machine or daemon gone
  kOutputsNotStored = 11,  // a good program whose outputs could not be stored
  kCrashLimit = 12,
  kDependencyFailed = 13,
  kServerStopped = 14,
};
std::string_view ToString(CauseKind kind);  // "time_limit"

struct Cause {
  CauseKind kind = CauseKind::kNone;
  std::string text;  // for people: "cancelled by ann", "time limit of 10s reached"; may be empty
  friend bool operator==(const Cause&, const Cause&) = default;
};

// How a program ended. At most one of exit_code and signal is set.
struct Outcome {
  std::optional<std::int32_t> exit_code;
  std::optional<std::int32_t> signal;
  Cause cause;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// The terminal state that an outcome means.
TaskState TerminalStateOf(const Outcome& outcome);
// What a shell sees: the program's code; 128+N; 124; 125; 126; 127; 130. `state` must be terminal.
int ShellExitCode(TaskState state, const Outcome& outcome);

struct EnvVar {
  std::string name;   // bytes without '=' and NUL
  std::string value;  // bytes without NUL
  friend bool operator==(const EnvVar&, const EnvVar&) = default;
};

struct OutputRules {
  bool collect = true;             // --no-outputs: false
  std::vector<std::string> globs;  // --output; empty: everything that the ignore rules let through
  std::int64_t limit_bytes = std::int64_t{4} << 30;
  friend bool operator==(const OutputRules&, const OutputRules&) = default;
};

// The numbers of a job's tasks: first, first + step, and so on. `count` of them.
struct TaskNumbers {
  std::int64_t first = 0;
  std::int64_t step = 1;  // at least 1
  std::int64_t count = 1;

  TaskIndex At(std::int64_t position) const { return TaskIndex(first + position * step); }
  // REQUIRES: Contains(task).
  std::int64_t PositionOf(TaskIndex task) const { return (task.value() - first) / step; }
  bool Contains(TaskIndex task) const {
    const std::int64_t from_first = task.value() - first;
    return from_first >= 0 && from_first % step == 0 && from_first / step < count;
  }
  friend bool operator==(const TaskNumbers&, const TaskNumbers&) = default;
};

// One job as submitted; never changes afterwards.
struct JobSpec {
  std::string name;                  // UTF-8
  std::vector<std::string> command;  // argv, bytes; never empty
  std::vector<EnvVar> env;
  // Names of variables whose values are sealed apart from all records, sorted, each once.
  std::vector<std::string> secrets;
  std::string secrets_ref;  // where the server keeps them; of no request and no message
  Requirements requirements;
  Hash source_tree;  // empty: no source
  Hash stdin_blob;   // empty: end of input at once
  OutputRules outputs;
  std::optional<Duration> time_limit;
  Duration grace = std::chrono::seconds(15);
  std::int64_t log_limit_bytes =
      limits::kLogLimitBytes;  // an attempt's; its head and tail are kept
  bool keep = false;           // the work folder of an attempt that fails stays on its worker
  bool array = false;          // else one task, number 0
  TaskNumbers tasks;
  Hash items;                     // blob of lines, a task's own by its position; empty: no items
  IntervalSet only;               // positions of those that are tasks of this job; empty: all
  std::int64_t max_parallel = 0;  // tasks that hold a place at the same time; 0: no limit
  JobId retry_of;                 // what it repeats; 0: nothing
  bool wait_for_worker = false;
  RequestId request_id;  // never empty

  std::int64_t task_count() const { return only.empty() ? tasks.count : only.size(); }
  bool HasTask(TaskIndex task) const {
    return tasks.Contains(task) && (only.empty() || only.Contains(tasks.PositionOf(task)));
  }
  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

struct LeftOut {
  std::string path;  // bytes
  std::int64_t size_bytes = 0;
  std::string reason;
  friend bool operator==(const LeftOut&, const LeftOut&) = default;
};

// What a worker could bring home of an attempt.
struct OutputResult {
  Hash tree;  // empty: nothing to bring home
  std::int64_t files = 0;
  std::int64_t bytes = 0;
  std::vector<LeftOut> left_out;  // the first 100
  std::int64_t left_out_count = 0;
  friend bool operator==(const OutputResult&, const OutputResult&) = default;
};

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_JOB_H_
