// Why a job waits: per worker what is short now, or what it will never have.
#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "server/core/placement.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

constexpr std::size_t kJobsNamed = 3;

std::string Plural(std::int64_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

// "job 7", "jobs 7, 9, 12 and 4 more": who holds something on the worker.
std::string Occupants(const State& state, const Worker& worker) {
  std::set<JobId> jobs;
  for (const TaskRef& ref : worker.attempts) {
    if (state.jobs.at(ref.job).tasks.at(ref.task).holds) jobs.insert(ref.job);
  }
  std::vector<std::string> names;
  for (const JobId job : jobs) {
    if (names.size() == kJobsNamed) break;
    names.push_back(ToString(job));
  }
  std::string out = (jobs.size() == 1 ? "job " : "jobs ") + Join(names, ", ");
  if (jobs.size() > kJobsNamed) {
    out += " and " + std::to_string(jobs.size() - kJobsNamed) + " more";
  }
  return out;
}

std::vector<std::string> InUse(const State& state, const Worker& worker, const Requirements& need) {
  const Resources& has = worker.record.profile.resources;
  const FreeCapacity free = FreeOf(has, worker.slots_used, worker.memory_used, worker.devices_used);
  if (Fit(need, free)) return {};
  const std::string by = " in use by " + Occupants(state, worker);
  std::vector<std::string> lacks;
  if (need.slots > free.slots) {
    lacks.push_back(std::to_string(worker.slots_used) + " of " + Plural(has.slots, "slot") + by);
  }
  if (need.memory_bytes > free.memory_bytes) {
    lacks.push_back(FormatSize(worker.memory_used) + " of " + FormatSize(has.memory_bytes) +
                    " of memory" + by);
  }
  Requirements devices_only;
  devices_only.slots = 0;
  devices_only.accelerator = need.accelerator;
  devices_only.devices = need.devices;
  devices_only.device_memory_bytes = need.device_memory_bytes;
  devices_only.device_model = need.device_model;
  if (!Fit(devices_only, free)) {
    lacks.push_back(std::to_string(worker.devices_used.size()) + " of " +
                    Plural(std::ssize(has.devices), "device") + by);
  }
  return lacks;
}

WorkerReason ReasonOf(const State& state, const Job& job, const Task* task, const Worker& worker,
                      TimePoint now) {
  const Requirements& need = job.record.spec->requirements;
  const WorkerProfile& profile = worker.record.profile;
  WorkerReason reason;
  reason.worker = profile.name;
  reason.lacks = NeverReasons(need, profile);
  if (!reason.lacks.empty()) return reason;  // never
  reason.kind = WorkerReason::Kind::kNotNow;
  if (!worker.quarantine.empty()) {
    reason.kind = WorkerReason::Kind::kHeld;
    reason.lacks.push_back("given no work: " + worker.quarantine);
  } else if (worker.state == WorkerState::kOffline) {
    reason.lacks.push_back("offline");
  } else if (worker.state == WorkerState::kSuspect) {
    reason.lacks.push_back("not heard of lately");
  } else if (worker.leaving) {
    reason.lacks.push_back("stopping");
  } else if (task != nullptr && task->failed_on.contains(profile.id)) {
    reason.kind = WorkerReason::Kind::kHeld;
    reason.lacks.push_back("could not start this task before; it is tried again later");
  } else if (job.RestsOn(profile.id, now)) {
    reason.kind = WorkerReason::Kind::kHeld;
    reason.lacks.push_back("could not start another task of this job; it is tried again later");
  } else {
    reason.lacks = InUse(state, worker, need);
    if (!reason.lacks.empty()) return reason;
    const auto& reservation = state.reservation;
    if (reservation && reservation->worker == profile.id && reservation->job != job.record.id) {
      reason.kind = WorkerReason::Kind::kHeld;
      reason.lacks.push_back("kept free for job " + ToString(reservation->job));
    } else {
      reason.kind = WorkerReason::Kind::kFits;
    }
  }
  return reason;
}

std::string Summary(const Explanation& explanation, Instant now) {
  if (!explanation.waiting_since) return "no task of it waits";
  const auto since =
      std::chrono::duration_cast<std::chrono::seconds>(now.wall - *explanation.waiting_since);
  const std::string waited = since.count() > 0 ? " (" + FormatDuration(since) + ")" : "";
  if (explanation.workers.empty()) return "waits" + waited + ": no worker is known yet";
  using Kind = WorkerReason::Kind;
  const auto count = [&](Kind kind) {
    return std::count_if(explanation.workers.begin(), explanation.workers.end(),
                         [&](const WorkerReason& r) { return r.kind == kind; });
  };
  if (count(Kind::kNever) == std::ssize(explanation.workers)) {
    return "waits" + waited + ": never, with the workers of now; it needs " + explanation.needs;
  }
  if (count(Kind::kFits) > 0) return "starts next";
  std::string out = "waits" + waited + ": ";
  if (explanation.ahead > 0) out += Plural(explanation.ahead, "task") + " ahead; ";
  for (const WorkerReason& reason : explanation.workers) {
    if (reason.kind == Kind::kNever) continue;
    out += reason.worker + ": " + Join(reason.lacks, ", ");
    break;
  }
  return out;
}

// The workers with tasks of it from which nothing is heard.
std::string Unheard(const State& state, const Job& job) {
  std::map<std::string, std::string> found;
  for (const auto& [index, task] : job.tasks) {
    if (!task.attempt) continue;
    const Worker& worker = state.workers.at(task.attempt->worker);
    const std::string& name = worker.record.profile.name;
    if (worker.state == WorkerState::kOffline) found[name] = "is offline";
    if (worker.state == WorkerState::kSuspect) found[name] = "was not heard of lately";
  }
  std::string out;
  for (const auto& [name, what] : found) out += "; " + name + ", where it runs, " + what;
  return out;
}

}  // namespace

Explanation ExplainJob(const State& state, const Job& job, Instant now) {
  Explanation out;
  out.job = job.record.id;
  out.state = job.record.state;
  out.needs = Describe(job.record.spec->requirements);
  if (!job.HasQueued()) {
    out.summary = Summary(out, now) + Unheard(state, job);
    return out;
  }
  out.waiting_since = job.waiting_since.value_or(job.record.created);
  for (const auto& [id, other] : state.jobs) {
    if (id >= job.record.id) break;
    out.ahead += other.record.queued.size() + other.requeued.size();
  }
  // The first queued task: the one whose turn is next.
  std::int64_t first = job.record.queued.empty() ? job.requeued.First() : job.record.queued.First();
  if (!job.requeued.empty()) first = std::min(first, job.requeued.First());
  const auto task = job.tasks.find(job.At(first));
  for (const auto& [id, worker] : state.workers) {
    out.workers.push_back(
        ReasonOf(state, job, task == job.tasks.end() ? nullptr : &task->second, worker, now.mono));
  }
  out.summary = Summary(out, now);
  if (job.AtItsLimit()) {
    out.summary = "goes on when one of its tasks ends: it may have " +
                  Plural(job.record.spec->max_parallel, "task") + " at work at the same time";
  }
  return out;
}

}  // namespace gpulayer::core
