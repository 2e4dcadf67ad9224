// One pass over the queue: who starts where.
//
// Order: submit order, across classes. A task that cannot start now lets later ones of other
// classes pass, so that a machine never idles for want of the right work. That alone would starve
// large tasks: a stream of small ones would take every slot that becomes free. So the first task in
// order that cannot start has what it needs set aside on the one worker where it is expected to fit
// soonest; later tasks get only what it does not need there. "Soonest" is where the fewest of the
// running attempts, oldest first, have to end. The choice is made anew in each pass and cannot
// wander for ever: what is set aside is never given to others, so the number of ends to wait for on
// the best worker only shrinks, and another worker is chosen only if it needs fewer.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "server/core/lifecycle.h"
#include "server/core/placement.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

struct Place {
  Worker* worker;
  Allocation allocation;
};

bool CanRun(QueueClass& queue_class, const Requirements& need, const Worker& worker) {
  const auto [it, is_new] = queue_class.can_run.try_emplace(worker.record.profile.id, false);
  if (is_new) it->second = NeverReasons(need, worker.record.profile).empty();
  return it->second;
}

FreeCapacity FreeFor(const State& state, JobId job, const Worker& worker) {
  FreeCapacity free = FreeOf(worker.record.profile.resources, worker.slots_used, worker.memory_used,
                             worker.devices_used);
  const auto& reservation = state.reservation;
  if (reservation && reservation->job != job && reservation->worker == worker.record.profile.id) {
    SetAside(state.jobs.at(reservation->job).record.spec->requirements, free);
  }
  return free;
}

// Whether a worker that takes work and is not in `failed` can run it, now or later.
bool AnotherCanRun(State& state, QueueClass& queue_class, const Requirements& need,
                   const std::set<WorkerId>& failed) {
  for (const auto& [id, worker] : state.workers) {
    if (worker.TakesWork() && !failed.contains(id) && CanRun(queue_class, need, worker))
      return true;
  }
  return false;
}

// Best fit among the workers that take work, without those in `avoid`.
std::optional<Place> Choose(State& state, QueueClass& queue_class, const Job& job,
                            const std::set<WorkerId>* avoid) {
  const Requirements& need = job.record.spec->requirements;
  std::optional<Place> best;
  Tightness best_tightness;
  for (auto& [id, worker] : state.workers) {
    if (!worker.TakesWork() || !CanRun(queue_class, need, worker)) continue;
    if (avoid != nullptr && avoid->contains(id)) continue;
    const FreeCapacity free = FreeFor(state, job.record.id, worker);
    std::optional<Allocation> allocation = Fit(need, free);
    if (!allocation) continue;
    const Tightness tightness = TightnessOf(need, free);
    if (best && best_tightness <= tightness) continue;
    best = Place{&worker, *std::move(allocation)};
    best_tightness = tightness;
  }
  return best;
}

// How many attempts have to end, oldest first, until `need` fits on the worker.
std::size_t EndsUntilFit(const State& state, const Worker& worker, const Requirements& need,
                         std::size_t give_up) {
  std::int32_t slots = worker.slots_used;
  std::int64_t memory = worker.memory_used;
  std::set<std::string> devices = worker.devices_used;
  std::size_t ends = 0;
  const auto fits = [&] {
    return Fit(need, FreeOf(worker.record.profile.resources, slots, memory, devices)).has_value();
  };
  if (fits()) return 0;
  for (const TaskRef& ref : worker.attempts) {
    if (ends >= give_up) break;
    const Task& task = state.jobs.at(ref.job).tasks.at(ref.task);
    if (!task.holds) continue;
    ++ends;
    slots -= task.attempt->allocation.slots;
    memory -= task.attempt->allocation.memory_bytes;
    for (const std::string& id : task.attempt->allocation.device_ids) devices.erase(id);
    if (fits()) return ends;
  }
  return std::numeric_limits<std::size_t>::max();
}

void Reserve(State& state, QueueClass& queue_class, const Job& job) {
  const Requirements& need = job.record.spec->requirements;
  std::size_t best = std::numeric_limits<std::size_t>::max();
  for (const auto& [id, worker] : state.workers) {
    if (!worker.TakesWork() || !CanRun(queue_class, need, worker)) continue;
    const std::size_t ends = EndsUntilFit(state, worker, need, best);
    if (ends >= best) continue;
    best = ends;
    state.reservation = Reservation{job.record.id, id};
  }
}

// The first position >= from in either set.
std::optional<std::int64_t> NextQueued(const Job& job, std::int64_t from) {
  std::optional<std::int64_t> next;
  for (const IntervalSet* set : {&job.record.queued, &job.requeued}) {
    std::optional<std::int64_t> found;
    if (set->Contains(from)) {
      found = from;
    } else if (const auto it = set->runs().lower_bound(from); it != set->runs().end()) {
      found = it->first;
    }
    if (found && (!next || *found < *next)) next = found;
  }
  return next;
}

void WakeAt(State& state, TimePoint at) {
  state.retry_at = std::min(state.retry_at.value_or(at), at);
}

// Workers that the job is not tried on now. A pass is due when the first of them may be again.
std::set<WorkerId> Resting(Turn& turn, const Job& job) {
  std::set<WorkerId> out;
  for (const auto& [worker, rest] : job.rests) {
    if (rest.until <= turn.now.mono) continue;
    out.insert(worker);
    WakeAt(turn.state, rest.until);
  }
  return out;
}

// False: the rest of the class cannot start either.
bool StartTasks(Turn& turn, QueueClass& queue_class, Job& job) {
  const Requirements& need = job.record.spec->requirements;
  const std::set<WorkerId> resting = Resting(turn, job);
  std::int64_t from = 0;
  while (const std::optional<std::int64_t> position = NextQueued(job, from)) {
    if (job.AtItsLimit()) return true;
    from = *position + 1;
    const TaskIndex index = job.At(*position);
    const auto task = job.tasks.find(index);
    std::set<WorkerId> avoid = resting;
    if (task != job.tasks.end() && !task->second.failed_on.empty()) {
      std::set<WorkerId>& failed_on = task->second.failed_on;
      avoid.insert(failed_on.begin(), failed_on.end());
      if (!AnotherCanRun(turn.state, queue_class, need, avoid)) {
        const TimePoint retry_at = task->second.retry_at;
        if (turn.now.mono < retry_at) {  // later ones may pass it
          WakeAt(turn.state, retry_at);
          continue;
        }
        failed_on.clear();  // from the start: who failed first may have been mended
        avoid = resting;
      }
    }
    std::optional<Place> place = Choose(turn.state, queue_class, job, &avoid);
    if (place) {
      StartAttempt(turn, job, index, *place->worker, std::move(place->allocation));
    } else if (avoid.empty() || !Choose(turn.state, queue_class, job, nullptr)) {
      return false;
    } else if (avoid == resting) {
      return true;  // none of its tasks can; other jobs may pass
    }
  }
  return true;
}

}  // namespace

void Schedule(Turn& turn) {
  State& state = turn.state;
  state.reservation.reset();
  state.retry_at.reset();
  std::map<JobId, QueueClass*> next;  // each class by its first job
  for (auto& [needs, queue_class] : state.queue) {
    queue_class.blocked = false;
    next.emplace(*queue_class.jobs.begin(), &queue_class);
  }
  while (!next.empty()) {
    const auto [id, queue_class] = *next.begin();
    next.erase(next.begin());
    // Looked up before anything starts: a class ends with its last queued task.
    const auto after = queue_class->jobs.upper_bound(id);
    const JobId follower = after == queue_class->jobs.end() ? JobId() : *after;
    Job& job = state.jobs.at(id);
    if (StartTasks(turn, *queue_class, job)) {
      if (follower != JobId()) next.emplace(follower, queue_class);
      continue;
    }
    queue_class->blocked = true;
    if (!state.reservation) Reserve(state, *queue_class, job);
  }
}

}  // namespace gpulayer::core
