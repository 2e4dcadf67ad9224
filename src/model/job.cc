#include "model/job.h"

#include <array>

namespace gpulayer {
namespace {

constexpr std::array<std::pair<TaskState, std::string_view>, 9> kTaskStates = {{
    {TaskState::kBlocked, "blocked"},
    {TaskState::kQueued, "queued"},
    {TaskState::kPreparing, "preparing"},
    {TaskState::kRunning, "running"},
    {TaskState::kFinishing, "finishing"},
    {TaskState::kSucceeded, "succeeded"},
    {TaskState::kFailed, "failed"},
    {TaskState::kCancelled, "cancelled"},
    {TaskState::kTimedOut, "timed_out"},
}};

}  // namespace

std::string_view ToString(TaskState state) {
  for (const auto& [s, text] : kTaskStates) {
    if (s == state) return text;
  }
  return "unknown";
}

std::optional<TaskState> TaskStateFromString(std::string_view text) {
  for (const auto& [s, name] : kTaskStates) {
    if (name == text) return s;
  }
  return std::nullopt;
}

bool IsTerminal(TaskState state) { return state >= TaskState::kSucceeded; }

bool IsActive(TaskState state) {
  return state == TaskState::kPreparing || state == TaskState::kRunning ||
         state == TaskState::kFinishing;
}

TaskState JobStateOf(const StateCounts& counts) {
  for (const TaskState s :
       {TaskState::kRunning, TaskState::kFinishing, TaskState::kPreparing, TaskState::kQueued,
        TaskState::kBlocked, TaskState::kFailed, TaskState::kTimedOut, TaskState::kCancelled}) {
    if (counts[s] > 0) return s;
  }
  return TaskState::kSucceeded;
}

std::string_view ToString(AttemptState state) {
  switch (state) {
    case AttemptState::kPreparing: return "preparing";
    case AttemptState::kRunning: return "running";
    case AttemptState::kFinishing: return "finishing";
    case AttemptState::kEnded: return "ended";
    case AttemptState::kLost: return "lost";
  }
  return "unknown";
}

std::string_view ToString(CauseKind kind) {
  switch (kind) {
    case CauseKind::kNone: return "none";
    case CauseKind::kProgram: return "program";
    case CauseKind::kSignal: return "signal";
    case CauseKind::kOutOfMemory: return "out_of_memory";
    case CauseKind::kTimeLimit: return "time_limit";
    case CauseKind::kCancelled: return "cancelled";
    case CauseKind::kNotExecutable: return "not_executable";
    case CauseKind::kNotFound: return "not_found";
    case CauseKind::kPreparation: return "preparation";
    case CauseKind::kSpawnFailed: return "spawn_failed";
    case CauseKind::kWorkerLost: return "worker_lost";
    case CauseKind::kOutputsNotStored: return "outputs_not_stored";
    case CauseKind::kCrashLimit: return "crash_limit";
    case CauseKind::kDependencyFailed: return "dependency_failed";
    case CauseKind::kServerStopped: return "server_stopped";
  }
  return "unknown";
}

TaskState TerminalStateOf(const Outcome& outcome) {
  switch (outcome.cause.kind) {
    case CauseKind::kCancelled:
    case CauseKind::kDependencyFailed: return TaskState::kCancelled;
    case CauseKind::kTimeLimit: return TaskState::kTimedOut;
    case CauseKind::kProgram:
      return outcome.exit_code == 0 ? TaskState::kSucceeded : TaskState::kFailed;
    default: return TaskState::kFailed;
  }
}

int ShellExitCode(TaskState state, const Outcome& outcome) {
  switch (outcome.cause.kind) {
    case CauseKind::kCancelled: return 130;
    case CauseKind::kTimeLimit: return 124;
    case CauseKind::kNotExecutable: return 126;
    case CauseKind::kNotFound: return 127;
    case CauseKind::kPreparation:
    case CauseKind::kSpawnFailed:
    case CauseKind::kWorkerLost:
    case CauseKind::kOutputsNotStored:
    case CauseKind::kCrashLimit:
    case CauseKind::kDependencyFailed:
    case CauseKind::kServerStopped: return 125;
    case CauseKind::kNone:
    case CauseKind::kProgram:
    case CauseKind::kSignal:
    case CauseKind::kOutOfMemory: break;
  }
  if (outcome.signal) return 128 + *outcome.signal;
  if (outcome.exit_code) return *outcome.exit_code;
  return state == TaskState::kSucceeded ? 0 : 125;
}

}  // namespace gpulayer
