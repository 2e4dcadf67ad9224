// What is known of jobs, workers, tokens and the server. Plain values, as they were when they were
// asked for.
#ifndef GPULAYER_JOB_INFO_H_
#define GPULAYER_JOB_INFO_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulayer/export.h"
#include "gpulayer/job_spec.h"

namespace gpulayer {
GPULAYER_API_BEGIN

// Wall clock, microseconds since 1970 UTC.
using Time = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

// Of a job and of a task. Numbers are on the wire: do not change them.
enum class JobState : std::int32_t {
  kBlocked = 1,    // waits for another job
  kQueued = 2,     // waits for a worker
  kPreparing = 3,  // source and environment are made ready
  kRunning = 4,
  kFinishing = 5,  // program over, outputs travel
  kSucceeded = 6,  // from here on nothing changes any more
  kFailed = 7,
  kCancelled = 8,
  kTimedOut = 9,
};
GPULAYER_EXPORT const char* ToString(
    JobState state);  // "queued"; "unknown" for a number not known here
GPULAYER_EXPORT std::optional<JobState> JobStateFromString(const std::string& text);
inline bool IsTerminal(JobState state) { return state >= JobState::kSucceeded; }

enum class AttemptState : std::int32_t {
  kPreparing = 1,
  kRunning = 2,
  kFinishing = 3,
  kEnded = 4,
  kLost = 5
};
GPULAYER_EXPORT const char* ToString(AttemptState state);

// Who or what ended it. Numbers are on the wire: do not change them.
enum class CauseKind : std::int32_t {
  kNone = 0,  // not ended
  kProgram = 1,
  kSignal = 2,
  kOutOfMemory = 3,  // its --memory was a limit, and the kernel ended it there
  kTimeLimit = 4,
  kCancelled = 5,
  kNotExecutable = 6,
  kNotFound = 7,
  kPreparation = 8,
  kSpawnFailed = 9,
  kWorkerLost = 10,
  kOutputsNotStored = 11,
  kCrashLimit = 12,
  kDependencyFailed = 13,
  kServerStopped = 14,
};
GPULAYER_EXPORT const char* ToString(CauseKind kind);    // "time_limit"
GPULAYER_EXPORT const char* ToString(Accelerator kind);  // "cuda"

// How it ended. A program's own exit code 124 has cause kProgram; a time limit has kTimeLimit.
struct Outcome {
  std::optional<std::int32_t> exit_code;  // none after a signal
  std::optional<std::int32_t> signal;
  CauseKind cause = CauseKind::kNone;
  std::string cause_text;  // for people; may be empty
};

// What Wait() returns: a job that is over.
struct JobResult {
  std::int64_t job = 0;
  JobState state = JobState::kQueued;
  std::optional<std::int32_t> exit_code;
  std::optional<std::int32_t> signal;
  CauseKind cause = CauseKind::kNone;
  std::string cause_text;
  int shell_exit_code = 0;  // what `gpulayer submit` exits with: 0..255
  Time created{};
  std::optional<Time> started;  // the first program's start
  std::optional<Time> ended;
};

struct AttemptInfo {
  std::int32_t number = 0;  // 1, 2, ...
  std::string id;           // unique in the world
  std::string worker_id;
  std::string worker;
  AttemptState state = AttemptState::kPreparing;
  std::int32_t slots = 0;
  std::int64_t memory_bytes = 0;
  std::vector<std::string> devices;
  Outcome outcome;
  Time created{};
  std::optional<Time> started;
  std::optional<Time> ended;
  std::int64_t log_bytes = 0;
  // Bytes; of an attempt that failed with JobSpec::keep: where its work folder is, on its worker, until
  // newer ones take its place or its time is over. Empty: it is gone.
  std::string kept_folder;
};

// An output that did not come home, and why.
struct LeftOutFile {
  std::string path;  // bytes
  std::int64_t size_bytes = 0;
  std::string reason;
};

struct TaskInfo {
  std::int64_t index = 0;
  std::optional<std::string> item;  // bytes; of a job that has items, as Client::Get tells it
  JobState state = JobState::kQueued;
  Outcome outcome;
  std::vector<AttemptInfo> attempts;
  bool has_outputs = false;
  std::int64_t output_files = 0;
  std::int64_t output_bytes = 0;
  std::vector<LeftOutFile> left_out;  // the first 100
  std::int64_t left_out_count = 0;
};

struct JobInfo {
  std::int64_t id = 0;
  std::string user;
  JobState state = JobState::kQueued;
  Outcome outcome;  // once over
  // As submitted; source_dir and stdin_file are of the submitting machine and empty here, and items
  // are at their tasks.
  JobSpec request;
  std::string source_hash;  // 64 hex digits; empty: no source
  Time created{};
  std::optional<Time> started;
  std::optional<Time> ended;
  std::int64_t retry_of = 0;  // the job that it repeats; 0: none
  bool is_array = false;      // several tasks, or one with a number of its own
  bool has_items = false;
  std::int64_t task_count = 1;
  std::map<JobState, std::int64_t> task_states;  // how many tasks are in each; none where 0
  std::vector<TaskInfo> tasks;                   // those that have left `queued`; empty in lists
  std::optional<std::int64_t> next_task;         // there are more: ask again from this one
};

// REQUIRES: IsTerminal(info.state). What a shell sees of it.
GPULAYER_EXPORT int ShellExitCode(const JobInfo& info);
GPULAYER_EXPORT JobResult ResultOf(const JobInfo& info);

// Why a job is where it is: per worker what is short.
struct Explanation {
  enum class Kind : std::int32_t { kNever = 1, kNotNow = 2, kHeld = 3, kFits = 4 };
  struct Worker {
    std::string name;
    Kind kind = Kind::kNever;
    std::vector<std::string> lacks;
  };
  std::int64_t job = 0;
  JobState state = JobState::kQueued;
  std::string needs;  // "4 slots, 16GiB"
  std::optional<Time> waiting_since;
  std::int64_t ahead = 0;  // queued tasks before it
  std::vector<Worker> workers;
  std::string summary;  // one sentence
};
GPULAYER_EXPORT const char* ToString(Explanation::Kind kind);  // "never", "not now", "held", "fits"

struct DeviceInfo {
  std::string id;  // UUID
  Accelerator kind = Accelerator::kNone;
  std::string model;
  std::int64_t memory_bytes = 0;
};

struct MachineResources {
  std::int32_t slots = 0;
  std::int64_t memory_bytes = 0;
  std::vector<DeviceInfo> devices;
  // DetectResources() alone. Why a job's memory is a reservation here and no limit; empty: it is one.
  std::string no_memory_limit;
};

enum class WorkerState : std::int32_t { kOnline = 1, kSuspect = 2, kOffline = 3 };
GPULAYER_EXPORT const char* ToString(WorkerState state);

struct WorkerInfo {
  std::string id;
  std::string name;
  std::string zone;
  std::string region;
  std::map<std::string, std::string> labels;
  MachineResources resources;
  WorkerState state = WorkerState::kOffline;
  std::int32_t slots_used = 0;
  std::int64_t memory_used_bytes = 0;
  std::vector<std::string> devices_used;
  std::int64_t running = 0;  // attempts
  std::string version;
  Time first_seen{};
  Time last_seen{};
  // Why the server gives it no work until it connects again; empty: it does.
  std::string held;
};

struct ServerInfo {
  std::string version;
  std::string uuid;
  std::int64_t incarnation = 0;
  std::string role;  // the caller's
  std::string user;  // the caller's
  Time started{};
  std::map<std::string, std::int64_t> task_counts;  // by state, of tasks that are not over
  std::int64_t workers_online = 0;
  std::int64_t workers_known = 0;
  std::int64_t slots_total = 0;
  std::int64_t slots_used = 0;
  std::int64_t blobs_received = 0;  // since its start
  std::int64_t blob_bytes_received = 0;
  std::vector<std::string> addresses;  // where other machines reach it: "192.168.1.5:7461"
  std::string data_dir;                // for an admin
};

struct NewToken {
  std::string token;  // shown this once
  std::string id;
};

struct TokenInfo {
  std::string id;
  bool credential = false;  // what a token was exchanged for, by one machine or login
  std::string role;
  std::string user;
  std::string subject;  // worker id or host name
  std::string parent;   // the token it came from
  Time created{};
  std::optional<Time> expires;
  std::optional<Time> revoked;
};

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_JOB_INFO_H_
