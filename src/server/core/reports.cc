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

// What was so long ago, as far as it can be: not before the attempt was made. A report may come
// long after what it tells; the worker's wall clock is none of ours.
WallTime Before(const Turn& turn, const AttemptRecord& attempt, std::optional<Duration> ago) {
  const WallTime now = turn.now.wall;
  if (!ago) return now;
  const auto then = now - std::chrono::duration_cast<WallTime::duration>(*ago);
  return std::min(now, std::max(then, attempt.created));
}

void NoteStart(Turn& turn, Job& job, Task& task, std::optional<Duration> ago) {
  AttemptRecord& attempt = *task.attempt;
  const bool better = task.start_guessed && ago;
  if (attempt.started && !better) return;
  NoteStarts(turn, job, attempt);  // a short program is never reported as running
  const WallTime at = Before(turn, attempt, ago);
  if (better) job.record.started = std::min(at, job.record.started.value_or(at));
  attempt.started = at;
  task.start_guessed = false;
  if (!job.record.started) job.record.started = at;
  turn.Put(attempt);
  turn.changed.insert(job.record.id);
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
  if (worker.spawn_failed_jobs.size() < kSpawnFailedJobs) return;
  worker.quarantine =
      "starts of " + std::to_string(worker.spawn_failed_jobs.size()) + " jobs failed in a row";
  if (!cause.text.empty()) worker.quarantine += ", the last one: " + cause.text;
}

Duration DelayAfter(std::int32_t failures) {
  const Duration delay = kStartDelay * (1 << std::min(failures, 10));
  return std::min(delay, kMaxStartDelay);
}

// Or a worker that fails quickly would be given all tasks of an array in turn.
void LetRest(Rest& rest, TimePoint now) {
  if (now < rest.until) return;  // of others that were started together with one that failed
  rest.until = now + DelayAfter(rest.failures++);
}

// The worker could not start it, which is not the job's fault: another worker is tried, or the same
// ones once more after a while. Quarantine ends this for a worker, kStartTries for a task.
void RetryElsewhere(Turn& turn, Job& job, Task& task, Worker& worker, const Outcome& outcome) {
  CountSpawnFailure(worker, job.record.id, outcome.cause);
  task.failed_on.insert(worker.record.profile.id);
  task.failed_names.insert(worker.record.profile.name);
  task.retry_at = turn.now.mono + DelayAfter(task.failed_starts);
  LetRest(job.rests[worker.record.profile.id], turn.now.mono);
  if (++task.failed_starts < kStartTries) return Requeue(turn, job, task);
  const std::vector<std::string> names(task.failed_names.begin(), task.failed_names.end());
  Outcome failed;
  failed.cause = {CauseKind::kSpawnFailed, "no worker could start it in " +
                                               std::to_string(kStartTries) + " tries (" +
                                               Join(names, ", ") + "): " + outcome.cause.text};
  EndTask(turn, job, task, failed, turn.now.wall);
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
    MarkRunning(turn, job, *task, Before(turn, attempt, event.started_ago));
  } else if (event.state == AttemptState::kRunning && task->start_guessed) {
    NoteStart(turn, job, *task, event.started_ago);
  } else if (event.state == AttemptState::kFinishing && attempt.state != AttemptState::kFinishing) {
    if (ProgramRan(event.outcome)) NoteStart(turn, job, *task, event.started_ago);
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
  if (event.started) NoteStart(turn, job, *task, event.started_ago);
  attempt.log_bytes = event.log_bytes;
  attempt.kept_folder = event.kept_folder;
  if (event.outcome.cause.kind == CauseKind::kWorkerLost) {
    return LoseAttempt(turn, task->record.ref, event.outcome.cause.text);
  }
  attempt.outcome = event.outcome;
  const Cause stop = attempt.stop;
  const bool started = attempt.started.has_value();
  const WallTime at =
      std::max(Before(turn, attempt, event.ended_ago), attempt.started.value_or(attempt.created));
  CloseAttempt(turn, *task, AttemptState::kEnded, at);

  const bool handed_back = event.outcome.cause.kind == CauseKind::kServerStopped ||
                           (event.outcome.cause.kind == CauseKind::kSpawnFailed && !started);
  if (handed_back && stop.kind != CauseKind::kNone) {
    EndTask(turn, job, *task, Outcome{{}, {}, stop}, at);
  } else if (event.outcome.cause.kind == CauseKind::kServerStopped) {
    worker->leaving = true;  // or it would get the same task at once
    Requeue(turn, job, *task);
  } else if (handed_back) {
    RetryElsewhere(turn, job, *task, *worker, event.outcome);
  } else {
    task->record.outputs = event.outputs;
    if (TerminalStateOf(event.outcome) == TaskState::kFailed) ++task->record.failures;
    EndTask(turn, job, *task, event.outcome, at);
  }
}

}  // namespace gpulayer::core
