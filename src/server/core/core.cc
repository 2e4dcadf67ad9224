#include "server/core/core.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/core/lifecycle.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

bool AllEnded(const StateCounts& counts) {
  std::int64_t live = 0;
  for (const TaskState s : {TaskState::kBlocked, TaskState::kQueued, TaskState::kPreparing,
                            TaskState::kRunning, TaskState::kFinishing}) {
    live += counts[s];
  }
  return live == 0;
}

// Leases are extended by the time that the server itself stood still: reports may lie unread.
void ExtendLeases(State& state, Instant now) {
  const Duration gap = now.mono - state.last_event;
  if (gap > kServerStoodStill) {
    for (auto& [id, worker] : state.workers) worker.last_heard += gap;
  }
  state.last_event = std::max(state.last_event, now.mono);
}

}  // namespace

std::vector<Effect> Turn::Finish() {
  std::vector<Effect> effects;
  std::vector<Effect> notes;
  changed.insert(inserted.begin(), inserted.end());
  for (const JobId id : changed) {
    Job& job = state.jobs.at(id);
    job.record.state = JobStateOf(job.record.counts);
    const bool ended = AllEnded(job.record.counts);
    if (ended) {
      job.record.ended = std::min(now.wall, job.last_end.value_or(now.wall));
      if (job.worst) job.record.outcome = job.worst->outcome;
    }
    if (inserted.contains(id)) {
      effects.emplace_back(InsertJob{job.record});
    } else {
      effects.emplace_back(UpdateJob{job.record});
    }
    notes.emplace_back(JobChanged{id, ended, ended ? job.record.spec->secrets_ref : ""});
    if (ended) state.jobs.erase(id);
  }
  for (auto& [ref, record] : tasks) effects.emplace_back(PutTask{std::move(record)});
  for (auto& [ref, record] : attempts) effects.emplace_back(PutAttempt{std::move(record)});
  for (const WorkerId& id : workers) effects.emplace_back(PutWorker{state.workers.at(id).record});
  std::move(sends.begin(), sends.end(), std::back_inserter(effects));
  std::move(notes.begin(), notes.end(), std::back_inserter(effects));
  return effects;
}

Core::Core(Options options, Snapshot snapshot, Instant now)
    : state_(std::make_unique<State>(Restore(options, std::move(snapshot), now))) {}
Core::~Core() = default;
Core::Core(Core&&) noexcept = default;
Core& Core::operator=(Core&&) noexcept = default;

std::vector<Effect> Core::Apply(const Event& event, Instant now) {
  ExtendLeases(*state_, now);
  Turn turn{*state_, now};
  std::visit(Overloaded{[&](const SubmitJobs& e) { OnSubmit(turn, e); },
                        [&](const CancelTasks& e) { OnCancel(turn, e); },
                        [&](const WorkerConnected& e) { OnConnected(turn, e); },
                        [&](const WorkerDisconnected& e) { OnDisconnected(turn, e); },
                        [&](const WorkerRevoked& e) { OnRevoked(turn, e); },
                        [&](const WorkerHeard& e) { OnHeard(turn, e); },
                        [&](const AttemptProgress& e) { OnProgress(turn, e); },
                        [&](const AttemptEnded& e) { OnEnded(turn, e); },
                        [&](const Tick&) { OnTick(turn); }},
             event);
  if (turn.schedule) Schedule(turn);
  return turn.Finish();
}

std::vector<WorkerView> Core::Workers() const {
  std::vector<WorkerView> views;
  for (const auto& [id, worker] : state_->workers) {
    WorkerView view;
    view.record = worker.record;
    view.state = worker.state;
    view.slots_used = worker.slots_used;
    view.memory_used_bytes = worker.memory_used;
    view.devices_used.assign(worker.devices_used.begin(), worker.devices_used.end());
    view.running = std::count_if(
        worker.attempts.begin(), worker.attempts.end(),
        [&](const TaskRef& ref) { return state_->jobs.at(ref.job).tasks.at(ref.task).holds; });
    view.quarantine = worker.quarantine;
    views.push_back(std::move(view));
  }
  return views;
}

Result<Explanation> Core::Explain(JobId job, Instant now) const {
  const auto it = state_->jobs.find(job);
  if (it == state_->jobs.end()) {
    return NotFound("explain job " + ToString(job) +
                    ": it is neither queued nor active. `gpulayer job show` has what ended");
  }
  return ExplainJob(*state_, it->second, now);
}

StateCounts Core::TotalCounts() const {
  StateCounts total;
  for (const auto& [id, job] : state_->jobs) {
    for (int i = 0; i < 10; ++i) total.count[i] += job.record.counts.count[i];
  }
  return total;
}

bool Core::IsCurrent(SessionId session, const AttemptKey& key) const {
  const auto it = state_->sessions.find(session);
  if (it == state_->sessions.end()) return false;
  const Worker& worker = state_->workers.at(it->second);
  return key.epoch == worker.record.epoch && FindCurrent(*state_, worker, key) != nullptr;
}

std::vector<std::string> Core::CheckInvariants() const { return FindBrokenInvariants(*state_); }

}  // namespace gpulayer::core
