// From the store's rows back to the scheduler's memory.
#include <utility>

#include "server/core/lifecycle.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

void RestoreTask(State& state, const TaskRecord& record) {
  const auto it = state.jobs.find(record.ref.job);
  if (it == state.jobs.end()) return;
  Job& job = it->second;
  if (IsTerminal(record.state)) {
    NoteEnd(job, record.ref.task, record.state, record.outcome, WallTime::max());
    return;
  }
  job.tasks[record.ref.task].record = record;
  if (record.state == TaskState::kQueued) job.requeued.Add(job.PositionOf(record.ref.task));
}

void RestoreAttempt(State& state, const AttemptRecord& record) {
  const auto job = state.jobs.find(record.ref.task.job);
  const auto worker = state.workers.find(record.worker);
  if (job == state.jobs.end() || worker == state.workers.end()) return;
  const auto it = job->second.tasks.find(record.ref.task.task);
  if (it == job->second.tasks.end() || record.ref.number != it->second.record.attempts) return;
  Task& task = it->second;
  task.attempt = record;
  task.holds = record.state != AttemptState::kFinishing;
  worker->second.attempts.push_back(record.ref.task);
  if (!task.holds) return;
  worker->second.slots_used += record.allocation.slots;
  worker->second.memory_used += record.allocation.memory_bytes;
  worker->second.devices_used.insert(record.allocation.device_ids.begin(),
                                     record.allocation.device_ids.end());
}

}  // namespace

State Restore(Options options, Snapshot snapshot, Instant now) {
  State state;
  state.options = options;
  state.server = std::move(snapshot.server);
  state.last_job = snapshot.last_job;
  state.last_event = now.mono;
  for (WorkerRecord& record : snapshot.workers) {
    Worker& worker = state.workers[record.profile.id];
    worker.record = std::move(record);
    worker.state = WorkerState::kSuspect;
    worker.last_heard = now.mono;  // a full lease: it may be connecting right now
  }
  for (JobRecord& record : snapshot.jobs) {
    const JobId id = record.id;
    state.jobs[id].record = std::move(record);
  }
  for (const TaskRecord& record : snapshot.tasks) RestoreTask(state, record);
  for (const AttemptRecord& record : snapshot.attempts) RestoreAttempt(state, record);
  for (auto& [id, worker] : state.workers) {
    worker.shrunk = worker.slots_used > worker.record.profile.resources.slots ||
                    worker.memory_used > worker.record.profile.resources.memory_bytes;
  }
  for (auto& [id, job] : state.jobs) {
    // Tasks cancelled by the thousand have no rows; one that has a row knows better who did it.
    if (job.record.counts[TaskState::kCancelled] > 0) {
      Outcome cancelled;
      cancelled.cause = {CauseKind::kCancelled, "cancelled"};
      NoteEnd(job, job.At(job.record.spec->tasks.count), TaskState::kCancelled, cancelled,
              WallTime::max());
    }
    SyncQueue(state, job);
  }
  for (const Snapshot::Request& request : snapshot.requests) {
    state.requests[RequestKey(request.user, request.id)] = request.job;
  }
  return state;
}

}  // namespace gpulayer::core
