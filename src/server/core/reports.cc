// What workers say of attempts. A report that is not current changes nothing.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "server/core/lifecycle.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

// The user's program must have run for its end to have this cause.
bool ProgramRan(const Outcome& outcome) {
  switch (outcome.cause.kind) {
    case CauseKind::kProgram:
    case CauseKind::kSignal:
    case CauseKind::kOutOfMemory:
    case CauseKind::kTimeLimit:
    case CauseKind::kOutputsNotStored: return true;
    default: return false;
  }
}

void NoteStart(Turn& turn, Job& job, AttemptRecord& attempt) {
  if (!attempt.started) attempt.started = turn.now.wall;
  if (!job.record.started) job.record.started = turn.now.wall;
}

// The worker that speaks on this session; hears it too.
Worker* Speaker(Turn& turn, SessionId session) {
  const auto it = turn.state.sessions.find(session);
  if (it == turn.state.sessions.end()) return nullptr;
  OnHeard(turn, WorkerHeard{session, std::nullopt});
  return &turn.state.workers.at(it->second);
}

void CountSpawnFailure(Worker& worker, JobId job, const Cause& cause) {
  worker.spawn_failed_jobs.insert(job);
  ++worker.spawn_failures_in_row;
  if (worker.spawn_failed_jobs.size() < kSpawnFailedJobs &&
      worker.spawn_failures_in_row < kSpawnFailuresInRow) {
    return;
  }
  worker.quarantine = std::to_string(worker.spawn_failures_in_row) + " starts failed in a row";
  if (!cause.text.empty()) worker.quarantine += ", the last one: " + cause.text;
}

// The worker could not start it, which is not the job's fault: another worker is tried, or the same
// ones once more after a while. Quarantine ends this for a worker, kStartTries for a task.
void RetryElsewhere(Turn& turn, Job& job, Task& task, Worker& worker, const Outcome& outcome) {
  CountSpawnFailure(worker, job.record.id, outcome.cause);
  task.failed_on.insert(worker.record.profile.id);
  task.failed_names.insert(worker.record.profile.name);
  const Duration delay = kStartDelay * (1 << std::min(task.failed_starts, 10));
  task.retry_at = turn.now.mono + std::min(delay, kMaxStartDelay);
  if (++task.failed_starts < kStartTries) return Requeue(turn, job, task);
  const std::vector<std::string> names(task.failed_names.begin(), task.failed_names.end());
  Outcome failed;
  failed.cause = {CauseKind::kSpawnFailed, "no worker could start it in " +
                                               std::to_string(kStartTries) + " tries (" +
                                               Join(names, ", ") + "): " + outcome.cause.text};
  EndTask(turn, job, task, failed);
}

}  // namespace

void OnProgress(Turn& turn, const AttemptProgress& event) {
  const Worker* worker = Speaker(turn, event.session);
  if (worker == nullptr || event.key.epoch != worker->record.epoch) return;
  Task* task = FindCurrent(turn.state, *worker, event.key);
  if (task == nullptr) return;
  Job& job = turn.state.jobs.at(event.key.ref.task.job);
  AttemptRecord& attempt = *task->attempt;
  if (event.state == AttemptState::kRunning && attempt.state == AttemptState::kPreparing) {
    MarkRunning(turn, job, *task);
  } else if (event.state == AttemptState::kFinishing && attempt.state != AttemptState::kFinishing) {
    if (ProgramRan(event.outcome)) NoteStart(turn, job, attempt);
    MarkFinishing(turn, job, *task, event.outcome);
  }
}

void OnEnded(Turn& turn, const AttemptEnded& event) {
  Worker* worker = Speaker(turn, event.session);
  Task* task = worker == nullptr || event.key.epoch != worker->record.epoch
                   ? nullptr
                   : FindCurrent(turn.state, *worker, event.key);
  turn.sends.push_back(SendEndAck{event.session, event.key, task != nullptr});
  if (task == nullptr) return;

  Job& job = turn.state.jobs.at(event.key.ref.task.job);
  AttemptRecord& attempt = *task->attempt;
  if (event.started) NoteStart(turn, job, attempt);
  attempt.log_bytes = event.log_bytes;
  if (event.outcome.cause.kind == CauseKind::kWorkerLost) {
    return LoseAttempt(turn, task->record.ref, event.outcome.cause.text);
  }
  attempt.outcome = event.outcome;
  const Cause stop = attempt.stop;
  const bool started = attempt.started.has_value();
  CloseAttempt(turn, *task, AttemptState::kEnded);

  const bool handed_back = event.outcome.cause.kind == CauseKind::kServerStopped ||
                           (event.outcome.cause.kind == CauseKind::kSpawnFailed && !started);
  if (handed_back && stop.kind != CauseKind::kNone) {
    EndTask(turn, job, *task, Outcome{{}, {}, stop});
  } else if (event.outcome.cause.kind == CauseKind::kServerStopped) {
    worker->leaving = true;  // or it would get the same task at once
    Requeue(turn, job, *task);
  } else if (handed_back) {
    RetryElsewhere(turn, job, *task, *worker, event.outcome);
  } else {
    task->record.outputs = event.outputs;
    if (TerminalStateOf(event.outcome) == TaskState::kFailed) ++task->record.failures;
    EndTask(turn, job, *task, event.outcome);
  }
}

}  // namespace gpulayer::core
