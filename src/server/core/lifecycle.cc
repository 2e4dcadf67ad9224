#include "server/core/lifecycle.h"

#include <algorithm>
#include <utility>

namespace gpulayer::core {
namespace {

int Rank(TaskState state) {
  switch (state) {
    case TaskState::kFailed: return 3;
    case TaskState::kTimedOut: return 2;
    case TaskState::kCancelled: return 1;
    default: return 0;
  }
}

void Move(Turn& turn, Job& job, Task& task, TaskState to) {
  --job.record.counts[task.record.state];
  ++job.record.counts[to];
  task.record.state = to;
  turn.Put(task.record);
  turn.changed.insert(job.record.id);
}

// Frees the allocation once, at `finishing` or at the end.
void Release(Turn& turn, Task& task) {
  if (!task.holds) return;
  task.holds = false;
  turn.schedule = true;
  Worker& worker = turn.state.workers.at(task.attempt->worker);
  worker.slots_used -= task.attempt->allocation.slots;
  worker.memory_used -= task.attempt->allocation.memory_bytes;
  for (const std::string& id : task.attempt->allocation.device_ids) worker.devices_used.erase(id);
  if (worker.slots_used <= worker.record.profile.resources.slots &&
      worker.memory_used <= worker.record.profile.resources.memory_bytes) {
    worker.shrunk = false;
  }
}

// Unique in the world and the same in every replay: which server, which life of it, which attempt.
AttemptId MakeAttemptId(const ServerIdentity& server, const AttemptRef& ref) {
  return AttemptId(server.uuid.substr(0, 12) + "-" + std::to_string(server.incarnation) + "-" +
                   ToString(ref.task) + "-" + std::to_string(ref.number.value()));
}

}  // namespace

void SyncQueue(State& state, const Job& job) {
  const Requirements& needs = job.record.spec->requirements;
  if (job.HasQueued()) {
    state.queue[needs].jobs.insert(job.record.id);
    return;
  }
  const auto it = state.queue.find(needs);
  if (it == state.queue.end()) return;
  it->second.jobs.erase(job.record.id);
  if (it->second.jobs.empty()) state.queue.erase(it);
}

AttemptKey KeyOf(const State& state, const Worker& worker, const AttemptRecord& attempt) {
  return {state.server, attempt.ref, attempt.id, worker.record.epoch};
}

Task* FindCurrent(State& state, const Worker& worker, const AttemptKey& key) {
  if (key.server != state.server) return nullptr;
  const auto job = state.jobs.find(key.ref.task.job);
  if (job == state.jobs.end()) return nullptr;
  const auto task = job->second.tasks.find(key.ref.task.task);
  if (task == job->second.tasks.end() || !task->second.attempt) return nullptr;
  const AttemptRecord& attempt = *task->second.attempt;
  const bool current =
      attempt.ref == key.ref && attempt.id == key.id && attempt.worker == worker.record.profile.id;
  return current ? &task->second : nullptr;
}

void StartAttempt(Turn& turn, Job& job, TaskIndex index, Worker& worker, Allocation allocation) {
  job.record.queued.Remove(job.PositionOf(index));
  job.requeued.Remove(job.PositionOf(index));
  const auto [it, is_new] = job.tasks.try_emplace(index);
  Task& task = it->second;
  if (is_new) {
    task.record.ref = {job.record.id, index};
    task.record.state = TaskState::kQueued;
  }
  task.record.attempts = AttemptNo(task.record.attempts.value() + 1);
  task.holds = true;
  task.stop_now = false;
  task.start_guessed = false;

  AttemptRecord attempt;
  attempt.ref = {task.record.ref, task.record.attempts};
  attempt.id = MakeAttemptId(turn.state.server, attempt.ref);
  attempt.worker = worker.record.profile.id;
  attempt.worker_name = worker.record.profile.name;
  attempt.allocation = std::move(allocation);
  attempt.created = turn.now.wall;

  worker.slots_used += attempt.allocation.slots;
  worker.memory_used += attempt.allocation.memory_bytes;
  worker.devices_used.insert(attempt.allocation.device_ids.begin(),
                             attempt.allocation.device_ids.end());
  worker.attempts.push_back(task.record.ref);

  Move(turn, job, task, TaskState::kPreparing);
  SyncQueue(turn.state, job);
  turn.Put(attempt);
  turn.sends.push_back(SendAssign{worker.session, KeyOf(turn.state, worker, attempt),
                                  job.record.user, job.record.spec, attempt.allocation});
  task.attempt = std::move(attempt);
}

void NoteStarts(Turn& turn, Job& job, const AttemptRecord& attempt) {
  turn.state.workers.at(attempt.worker).spawn_failed_jobs.clear();
  job.rests.erase(attempt.worker);
}

void MarkRunning(Turn& turn, Job& job, Task& task, WallTime at) {
  AttemptRecord& attempt = *task.attempt;
  attempt.state = AttemptState::kRunning;
  attempt.started = at;
  if (!job.record.started) job.record.started = at;
  task.failed_on.clear();
  task.failed_names.clear();
  task.failed_starts = 0;
  NoteStarts(turn, job, attempt);
  turn.Put(attempt);
  Move(turn, job, task, TaskState::kRunning);
}

void MarkFinishing(Turn& turn, Job& job, Task& task, const Outcome& outcome) {
  task.attempt->state = AttemptState::kFinishing;
  task.attempt->outcome = outcome;
  Release(turn, task);
  turn.Put(*task.attempt);
  Move(turn, job, task, TaskState::kFinishing);
}

void CloseAttempt(Turn& turn, Task& task, AttemptState state, WallTime at) {
  Release(turn, task);
  AttemptRecord& attempt = *task.attempt;
  attempt.state = state;
  attempt.ended = at;
  std::erase(turn.state.workers.at(attempt.worker).attempts, task.record.ref);
  turn.Put(attempt);
  task.attempt.reset();
}

void NoteEnd(Job& job, TaskIndex task, TaskState state, const Outcome& outcome, WallTime at) {
  job.last_end = std::max(at, job.last_end.value_or(at));
  const bool worse = !job.worst || Rank(state) > Rank(job.worst->state) ||
                     (Rank(state) == Rank(job.worst->state) && task < job.worst->task);
  if (worse) job.worst = Worst{state, task, outcome};
}

void EndTask(Turn& turn, Job& job, Task& task, const Outcome& outcome, WallTime at) {
  const TaskIndex index = task.record.ref.task;
  task.record.outcome = outcome;
  Move(turn, job, task, TerminalStateOf(outcome));
  NoteEnd(job, index, task.record.state, outcome, at);
  job.requeued.Remove(job.PositionOf(index));
  job.tasks.erase(index);
  SyncQueue(turn.state, job);
}

void Requeue(Turn& turn, Job& job, Task& task) {
  if (!job.HasQueued()) job.waiting_since = turn.now.wall;
  job.requeued.Add(job.PositionOf(task.record.ref.task));
  Move(turn, job, task, TaskState::kQueued);
  SyncQueue(turn.state, job);
  turn.schedule = true;
}

void LoseAttempt(Turn& turn, TaskRef ref, const std::string& why) {
  Job& job = turn.state.jobs.at(ref.job);
  Task& task = job.tasks.at(ref.task);
  AttemptRecord& attempt = *task.attempt;
  const bool started = attempt.started.has_value();
  const Outcome known = attempt.outcome;
  const Cause stop = attempt.stop;
  const std::string worker = attempt.worker_name;
  if (known.cause.kind == CauseKind::kNone) attempt.outcome.cause = {CauseKind::kWorkerLost, why};
  const WallTime now = turn.now.wall;
  CloseAttempt(turn, task, AttemptState::kLost, now);

  // A program known to have failed has failed; one that succeeded runs again, because its outputs
  // and the end of its log are gone with the machine.
  if (known.cause.kind != CauseKind::kNone && known.cause.kind != CauseKind::kWorkerLost &&
      TerminalStateOf(known) != TaskState::kSucceeded) {
    return EndTask(turn, job, task, known, now);
  }
  if (stop.kind != CauseKind::kNone) return EndTask(turn, job, task, Outcome{{}, {}, stop}, now);
  if (started) {
    ++task.record.losses;
    // Kept in the row, so that a restart of the server forgets no machine's name.
    Cause& last = task.record.outcome.cause;
    const bool first = last.kind != CauseKind::kWorkerLost;
    last = {CauseKind::kWorkerLost, first ? "lost on " + worker : last.text + ", " + worker};
    if (task.record.losses > kCrashLimit) {
      Outcome outcome;
      outcome.cause = {CauseKind::kCrashLimit, "crash limit: its machine was lost " +
                                                   std::to_string(task.record.losses) +
                                                   " times: " + last.text};
      return EndTask(turn, job, task, outcome, now);
    }
  }
  Requeue(turn, job, task);
}

}  // namespace gpulayer::core
