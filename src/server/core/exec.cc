// Where a command inside a running attempt goes.
#include <algorithm>
#include <string>
#include <utility>

#include "server/core/core.h"
#include "server/core/lifecycle.h"
#include "server/core/requests.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

// Of several tasks the one that an error gives as an example: the first whose program runs.
TaskIndex Example(const Job& job) {
  for (const auto& [index, task] : job.tasks) {
    if (task.record.state == TaskState::kRunning) return index;
  }
  const IntervalSet& only = job.record.spec->only;
  return job.At(only.empty() ? 0 : only.First());
}

// None: it is over.
std::optional<TaskState> StateOf(const Job& job, TaskIndex index) {
  if (const auto it = job.tasks.find(index); it != job.tasks.end()) return it->second.record.state;
  const std::int64_t position = job.PositionOf(index);
  const bool queued = job.record.queued.Contains(position) || job.requeued.Contains(position);
  return queued ? std::optional(TaskState::kQueued) : std::nullopt;
}

Status NothingRuns(const std::string& name, JobId job, TaskState state) {
  const std::string none =
      name + " is " + std::string(ToString(state)) + ", there is nothing to run a command in";
  switch (state) {
    case TaskState::kPreparing: return FailedPrecondition(none + " yet. Try again in a moment");
    case TaskState::kFinishing: return FailedPrecondition(none + " any more: its program is over");
    default:
      return FailedPrecondition(none + " yet. `gpulayer job explain " + ToString(job) +
                                "` says what it waits for");
  }
}

}  // namespace

Status NothingRunsAnyMore(const std::string& name) {
  return FailedPrecondition(name + " is over, there is nothing to run a command in");
}

Result<RunningPlace> Core::FindRunning(JobId id, std::optional<TaskIndex> asked,
                                       const Caller& caller) const {
  const std::string what = "run a command in job " + ToString(id);
  const auto it = state_->jobs.find(id);
  if (it == state_->jobs.end()) {
    return NotFound(what + ": no such job. `gpulayer job list` shows the jobs");
  }
  const Job& job = it->second;
  const JobSpec& spec = *job.record.spec;
  if (!caller.admin && caller.user != job.record.user) {
    const std::string& owner = job.record.user.value();
    return PermissionDenied(what + ": it is a job of " + owner +
                            ", and a command in it sees all that it sees, its secrets too. Ask " +
                            owner + " or an admin");
  }
  if (!asked && spec.task_count() > 1) {
    return InvalidArgument(what + ": it has " + std::to_string(spec.task_count()) +
                           " tasks. Name one, as " + ToString(TaskRef{id, Example(job)}));
  }
  const TaskRef ref{id, asked.value_or(spec.only.empty() ? job.At(0) : job.At(spec.only.First()))};
  if (!spec.HasTask(ref.task)) return NoSuchTask(what, ref, spec);
  const std::string name = asked ? "task " + ToString(ref) : "job " + ToString(id);
  const std::optional<TaskState> task_state = StateOf(job, ref.task);
  if (!task_state) return NothingRunsAnyMore(name);
  if (*task_state != TaskState::kRunning) return NothingRuns(name, id, *task_state);
  const AttemptRecord& attempt = *job.tasks.at(ref.task).attempt;
  const Worker& worker = state_->workers.at(attempt.worker);
  if (worker.session.value() == 0) {
    return Unavailable(name + " runs on worker " + worker.record.profile.name +
                       ", which is not connected to the server now. The job goes on there; try "
                       "again when `gpulayer worker list` shows it online");
  }
  return RunningPlace{worker.session, KeyOf(*state_, worker, attempt), attempt.worker,
                      worker.record.profile.name};
}

}  // namespace gpulayer::core
