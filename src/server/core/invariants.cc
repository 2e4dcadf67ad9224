#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/core/state.h"

namespace gpulayer::core {
namespace {

class Finder {
 public:
  explicit Finder(const State& state) : state_(state) {}

  std::vector<std::string> Find() {
    for (const auto& [id, job] : state_.jobs) CheckJob(id, job);
    for (const auto& [id, worker] : state_.workers) CheckWorker(id, worker);
    CheckQueue();
    for (const auto& [session, id] : state_.sessions) {
      Expect(state_.workers.at(id).session == session,
             "session " + std::to_string(session.value()) + " is not its worker's");
    }
    return std::move(broken_);
  }

 private:
  struct Use {
    std::int32_t slots = 0;
    std::int64_t memory = 0;
    std::set<std::string> devices;
    std::set<TaskRef> attempts;
  };

  void Expect(bool holds, const std::string& what) {
    if (!holds) broken_.push_back(what);
  }

  void CheckJob(JobId id, const Job& job) {
    const std::string name = "job " + ToString(id);
    Expect(job.record.id == id, name + ": stored under another id");
    Expect(id <= state_.last_job, name + ": beyond the last job");
    StateCounts counted = job.record.counts;
    std::int64_t all = 0;
    for (const std::int64_t n : counted.count) {
      Expect(n >= 0, name + ": a negative count");
      all += n;
    }
    Expect(all == job.record.spec->task_count(), name + ": counts do not add up");
    const std::int64_t limit = job.record.spec->max_parallel;
    Expect(limit == 0 || counted[TaskState::kPreparing] + counted[TaskState::kRunning] <= limit,
           name + ": more at work than it may have");
    Expect(job.record.state == JobStateOf(job.record.counts), name + ": state is not its counts'");
    Expect(!IsTerminal(job.record.state), name + ": ended, but kept");
    StateCounts live;
    live[TaskState::kQueued] = job.record.queued.size() + job.requeued.size();
    for (const auto& [index, task] : job.tasks) {
      CheckTask({id, index}, job, task);
      if (IsActive(task.record.state)) ++live[task.record.state];
    }
    for (const TaskState s : {TaskState::kBlocked, TaskState::kQueued, TaskState::kPreparing,
                              TaskState::kRunning, TaskState::kFinishing}) {
      Expect(live[s] == counted[s], name + ": miscounted " + std::string(ToString(s)));
    }
    Expect(job.worst.has_value() ==
               (counted[TaskState::kSucceeded] + counted[TaskState::kFailed] +
                    counted[TaskState::kCancelled] + counted[TaskState::kTimedOut] >
                0),
           name + ": an end is not noted");
  }

  void CheckTask(TaskRef ref, const Job& job, const Task& task) {
    const std::string name = "task " + ToString(ref);
    Expect(task.record.ref == ref, name + ": stored under another number");
    Expect(!IsTerminal(task.record.state), name + ": ended, but kept");
    Expect(!job.record.queued.Contains(job.PositionOf(ref.task)),
           name + ": has left queued, yet is there");
    Expect(job.requeued.Contains(job.PositionOf(ref.task)) ==
               (task.record.state == TaskState::kQueued),
           name + ": queued in one place only");
    Expect(task.attempt.has_value() == IsActive(task.record.state),
           name + ": active and attempt differ");
    if (!task.attempt) return;
    const AttemptRecord& attempt = *task.attempt;
    Expect(attempt.ref.task == ref && attempt.ref.number == task.record.attempts,
           name + ": its attempt is not its latest");
    Expect(static_cast<int>(attempt.state) + 2 == static_cast<int>(task.record.state),
           name + ": state is not its attempt's");
    Expect(task.holds == (attempt.state != AttemptState::kFinishing),
           name + ": holds what it must not, or the reverse");
    Use& use = uses_[attempt.worker];
    use.attempts.insert(ref);
    if (!task.holds) return;
    use.slots += attempt.allocation.slots;
    use.memory += attempt.allocation.memory_bytes;
    for (const std::string& device : attempt.allocation.device_ids) {
      Expect(use.devices.insert(device).second, name + ": device " + device + " is held twice");
    }
  }

  void CheckWorker(const WorkerId& id, const Worker& worker) {
    const std::string name = "worker " + id.value();
    const Use& use = uses_[id];
    Expect(worker.slots_used == use.slots && worker.memory_used == use.memory &&
               worker.devices_used == use.devices,
           name + ": use is miscounted");
    Expect(std::set<TaskRef>(worker.attempts.begin(), worker.attempts.end()) == use.attempts &&
               worker.attempts.size() == use.attempts.size(),
           name + ": its attempts are not those of the tasks");
    const Resources& has = worker.record.profile.resources;
    Expect(worker.shrunk || (use.slots <= has.slots && use.memory <= has.memory_bytes),
           name + ": more is given out than there is");
    Expect(worker.session.value() == 0 || state_.sessions.contains(worker.session),
           name + ": its session is unknown");
    Expect(worker.state != WorkerState::kOnline || worker.session.value() != 0,
           name + ": online without a session");
    Expect(worker.state != WorkerState::kOffline || worker.attempts.empty(),
           name + ": given up, but not its attempts");
  }

  void CheckQueue() {
    std::size_t queued = 0;
    for (const auto& [id, job] : state_.jobs) queued += job.HasQueued() ? 1 : 0;
    for (const auto& [needs, queue_class] : state_.queue) {
      Expect(!queue_class.jobs.empty(), "an empty class is kept");
      for (const JobId id : queue_class.jobs) {
        const auto it = state_.jobs.find(id);
        Expect(it != state_.jobs.end() && it->second.HasQueued() &&
                   it->second.record.spec->requirements == needs,
               "job " + ToString(id) + ": in a wrong class");
        --queued;
      }
    }
    Expect(queued == 0, "a job with queued tasks is in no class");
  }

  const State& state_;
  std::map<WorkerId, Use> uses_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> FindBrokenInvariants(const State& state) { return Finder(state).Find(); }

}  // namespace gpulayer::core
