#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core/lifecycle.h"
#include "server/core/requests.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

// Remembers a request that has not arrived; forgets the oldest one.
void Refuse(State& state, const std::string& key) {
  if (!state.refused.insert(key).second) return;
  state.refused_order.push_back(key);
  if (state.refused_order.size() <= kRefusedRequests) return;
  state.refused.erase(state.refused_order.front());
  state.refused_order.pop_front();
}

Status CheckSelector(const State& state, const Caller& caller, CancelTasks::Selector selector) {
  const std::string what = "cancel job " + ToString(selector.job);
  if (selector.job.value() < 1 || selector.job > state.last_job) {
    return NotFound(what + ": no such job. `gpulayer job list` shows the jobs");
  }
  const auto it = state.jobs.find(selector.job);
  if (it == state.jobs.end()) return OkStatus();  // ended: whoever asks, nothing happens
  const JobRecord& job = it->second.record;
  if (!caller.admin && caller.user != job.user) {
    return PermissionDenied(what + ": it is a job of " + job.user.value() + ". Ask " +
                            job.user.value() + " or an admin");
  }
  if (selector.task && !job.spec->HasTask(*selector.task)) {
    return NoSuchTask(what, {selector.job, *selector.task}, *job.spec);
  }
  return OkStatus();
}

// What is named twice, or by its job too, counts once.
void DropRepeated(std::vector<CancelTasks::Selector>* selectors) {
  std::set<std::pair<JobId, std::optional<TaskIndex>>> seen;
  std::vector<CancelTasks::Selector> kept;
  for (const CancelTasks::Selector& selector : *selectors) {
    if (!selector.task && seen.emplace(selector.job, std::nullopt).second) kept.push_back(selector);
  }
  for (const CancelTasks::Selector& selector : *selectors) {
    if (selector.task && !seen.contains({selector.job, std::nullopt}) &&
        seen.emplace(selector.job, selector.task).second) {
      kept.push_back(selector);
    }
  }
  *selectors = std::move(kept);
}

// A task that has never left `queued`.
void EndUnstarted(Turn& turn, Job& job, TaskIndex index, const Outcome& outcome) {
  Task& task = job.tasks[index];
  task.record.ref = {job.record.id, index};
  job.record.queued.Remove(job.PositionOf(index));
  EndTask(turn, job, task, outcome, turn.now.wall);
}

std::int64_t CancelUnstarted(Turn& turn, Job& job, const Outcome& outcome) {
  const IntervalSet queued = job.record.queued;
  if (queued.empty()) return 0;
  if (queued.size() <= kRowsPerCancel) {
    for (const auto& [begin, end] : queued.runs()) {
      for (std::int64_t i = begin; i < end; ++i) EndUnstarted(turn, job, job.At(i), outcome);
    }
    return queued.size();
  }
  job.record.queued = IntervalSet();
  job.record.counts[TaskState::kQueued] -= queued.size();
  job.record.counts[TaskState::kCancelled] += queued.size();
  NoteEnd(job, job.At(queued.First()), TaskState::kCancelled, outcome, turn.now.wall);
  SyncQueue(turn.state, job);
  turn.changed.insert(job.record.id);
  return queued.size();
}

enum class Stopped { kOrdered, kFinishing };

Stopped OrderStop(Turn& turn, const Job& job, Task& task, const Cause& cause, bool at_once) {
  AttemptRecord& attempt = *task.attempt;
  const bool over = attempt.state == AttemptState::kFinishing;
  const bool is_new = attempt.stop.kind == CauseKind::kNone;
  if (!over && !is_new && (task.stop_now || !at_once)) return Stopped::kOrdered;  // said before
  if (is_new) {
    attempt.stop = cause;
    turn.Put(attempt);
    turn.changed.insert(job.record.id);
  }
  // There is nothing to stop, but it is kept in mind: if the outputs are lost with their machine,
  // what a user has cancelled does not run again.
  if (over) return Stopped::kFinishing;
  task.stop_now = at_once;
  const Worker& worker = turn.state.workers.at(attempt.worker);
  if (worker.session.value() != 0) {
    turn.sends.push_back(SendStop{worker.session, KeyOf(turn.state, worker, attempt), attempt.stop,
                                  at_once ? Duration::zero() : job.record.spec->grace});
  }
  return Stopped::kOrdered;
}

void CancelOne(Turn& turn, Job& job, TaskIndex index, const Outcome& outcome, bool at_once,
               CancelReply& reply) {
  if (job.record.queued.Contains(job.PositionOf(index))) {
    EndUnstarted(turn, job, index, outcome);
    ++reply.cancelled;
    return;
  }
  const auto it = job.tasks.find(index);
  if (it == job.tasks.end()) {
    ++reply.already_ended;
  } else if (!it->second.attempt) {
    EndTask(turn, job, it->second, outcome, turn.now.wall);
    ++reply.cancelled;
  } else {
    const Stopped stopped = OrderStop(turn, job, it->second, outcome.cause, at_once);
    ++(stopped == Stopped::kOrdered ? reply.cancelled : reply.finishing);
  }
}

}  // namespace

Status NoSuchTask(const std::string& what, TaskRef task, const JobSpec& spec) {
  const TaskNumbers& tasks = spec.tasks;
  const std::string last = std::to_string(tasks.At(tasks.count - 1).value());
  std::string its = "Its only one is " + last;
  if (!spec.only.empty()) {
    its = "`gpulayer job show " + ToString(task.job) + "` lists its tasks";
  } else if (tasks.count > 1) {
    its = "It has " + std::to_string(tasks.first) + " to " + last;
    if (tasks.step > 1) its += " in steps of " + std::to_string(tasks.step);
  }
  return NotFound(what + ": it has no task " + std::to_string(task.task.value()) + ". " + its);
}

void OnCancel(Turn& turn, const CancelTasks& event) {
  State& state = turn.state;
  std::vector<CancelTasks::Selector> selectors = event.tasks;
  if (!event.request.value().empty()) {
    const std::string key = RequestKey(event.caller.user, event.request);
    const auto known = state.requests.find(key);
    if (known == state.requests.end()) {
      Refuse(state, key);
    } else {
      selectors.push_back({known->second, std::nullopt});
    }
  }
  for (const CancelTasks::Selector& selector : selectors) {
    if (Status status = CheckSelector(state, event.caller, selector); !status.ok()) {
      return turn.Answer(event.tag, std::move(status));
    }
  }
  DropRepeated(&selectors);

  Outcome outcome;
  outcome.cause = {CauseKind::kCancelled, "cancelled by " + event.caller.user.value()};
  CancelReply reply;
  for (const CancelTasks::Selector& selector : selectors) {
    const auto it = state.jobs.find(selector.job);
    if (it == state.jobs.end()) {
      ++reply.already_ended;
      continue;
    }
    Job& job = it->second;
    if (selector.task) {
      CancelOne(turn, job, *selector.task, outcome, event.now, reply);
      continue;
    }
    reply.cancelled += CancelUnstarted(turn, job, outcome);
    std::vector<TaskIndex> rest;
    for (const auto& [index, task] : job.tasks) rest.push_back(index);
    for (const TaskIndex index : rest) CancelOne(turn, job, index, outcome, event.now, reply);
  }
  turn.schedule = true;  // what was waited for may be gone
  turn.Answer(event.tag, reply);
}

}  // namespace gpulayer::core
