// Sessions and leases of workers.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "server/core/lifecycle.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

void DropSession(Turn& turn, Worker& worker) {
  turn.state.sessions.erase(worker.session);
  worker.session = SessionId();
}

// Its attempts are lost for `why`; its session, if it has one, ends with `farewell`.
void GiveUp(Turn& turn, Worker& worker, const std::string& why, Status farewell) {
  worker.state = WorkerState::kOffline;
  if (worker.session.value() != 0) {
    turn.sends.push_back(CloseSession{worker.session, std::move(farewell)});
    DropSession(turn, worker);
  }
  const std::vector<TaskRef> attempts = worker.attempts;
  for (const TaskRef& ref : attempts) LoseAttempt(turn, ref, why);
  turn.workers.insert(worker.record.profile.id);  // when it was last seen
}

// The lease: a worker not heard of is first given no more work, then given up.
void Refresh(Turn& turn, Worker& worker) {
  const Options& options = turn.state.options;
  const Duration silent = turn.now.mono - worker.last_heard;
  const bool connected = worker.session.value() != 0;
  if (!connected && worker.state == WorkerState::kOffline) return;  // until it connects
  WorkerState state = WorkerState::kOnline;
  if (silent >= options.lost_after ||
      (silent >= options.suspect_after && !connected && worker.attempts.empty())) {
    state = WorkerState::kOffline;  // one that runs nothing has no lease to wait for
  } else if (silent >= options.suspect_after || !connected) {
    state = WorkerState::kSuspect;
  }
  if (state == worker.state) return;
  worker.state = state;
  if (state == WorkerState::kOnline) turn.schedule = true;
  if (state != WorkerState::kOffline) return;

  const std::string why = "worker " + worker.record.profile.name + " was not heard of for " +
                          FormatDuration(options.lost_after);
  GiveUp(turn, worker, why, Unavailable(why + ": connect again"));
}

void Hear(Turn& turn, Worker& worker) {
  worker.last_heard = turn.now.mono;
  worker.record.last_seen = turn.now.wall;
  Refresh(turn, worker);
}

void SetProfile(Turn& turn, Worker& worker, const WorkerProfile& profile) {
  worker.record.profile = profile;
  for (auto& [needs, queue_class] : turn.state.queue) queue_class.can_run.erase(profile.id);
  worker.shrunk = worker.slots_used > profile.resources.slots ||
                  worker.memory_used > profile.resources.memory_bytes;
  turn.workers.insert(profile.id);
  turn.schedule = true;
}

}  // namespace

void OnConnected(Turn& turn, const WorkerConnected& event) {
  State& state = turn.state;
  if (event.session.value() == 0 || event.profile.id.value().empty()) return;
  if (const auto it = state.sessions.find(event.session);
      it != state.sessions.end() && it->second != event.profile.id) {
    DropSession(turn, state.workers.at(it->second));  // a session speaks for one worker
  }
  const auto [it, is_new] = state.workers.try_emplace(event.profile.id);
  Worker& worker = it->second;
  if (worker.session.value() != 0 && worker.session != event.session) {
    turn.sends.push_back(
        CloseSession{worker.session, {StatusCode::kAborted, "a newer session took over"}});
    DropSession(turn, worker);
  }
  const bool rebooted = !is_new && worker.record.boot_id != event.boot_id;
  if (is_new) worker.record.first_seen = turn.now.wall;
  worker.record.boot_id = event.boot_id;
  worker.record.epoch = WorkerEpoch(worker.record.epoch.value() + 1);
  worker.session = event.session;
  worker.leaving = false;
  worker.spawn_failed_jobs.clear();  // somebody may have mended it
  worker.quarantine.clear();
  state.sessions[event.session] = event.profile.id;
  SetProfile(turn, worker, event.profile);

  SendWelcome welcome{event.session, event.profile.id, worker.record.epoch, {}, {}, {}};
  std::vector<SendStop> stops;
  std::vector<Task*> running;
  std::set<TaskRef> kept;
  for (const WorkerConnected::Held& held : event.held) {
    Task* task = FindCurrent(state, worker, held.key);
    // No process outlives its machine's boot; an outcome on disk does.
    const bool alive =
        !rebooted || held.state == AttemptState::kFinishing || held.state == AttemptState::kEnded;
    if (task == nullptr || !alive) {
      welcome.kill.push_back(held.key);
      continue;
    }
    if (!kept.insert(task->record.ref).second) continue;  // named twice
    const AttemptKey key = KeyOf(state, worker, *task->attempt);
    welcome.keep.push_back(key);
    welcome.log_limits.push_back(state.jobs.at(key.ref.task.job).record.spec->log_limit_bytes);
    if (held.state == AttemptState::kRunning && task->attempt->state == AttemptState::kPreparing) {
      running.push_back(task);  // its report went down with the last session
    }
    if (task->attempt->stop.kind != CauseKind::kNone) {
      const Duration grace =
          task->stop_now ? Duration::zero() : state.jobs.at(key.ref.task.job).record.spec->grace;
      stops.push_back({event.session, key, task->attempt->stop, grace});
    }
  }
  turn.sends.push_back(std::move(welcome));
  for (SendStop& stop : stops) turn.sends.push_back(std::move(stop));
  for (Task* task : running) {
    MarkRunning(turn, state.jobs.at(task->record.ref.job), *task, turn.now.wall);
    task->start_guessed = true;  // since when, the worker says next
  }

  const std::vector<TaskRef> believed = worker.attempts;
  for (const TaskRef& ref : believed) {
    if (kept.contains(ref)) continue;
    LoseAttempt(turn, ref,
                "worker " + event.profile.name + (rebooted ? " was restarted" : " has it no more"));
  }
  Hear(turn, worker);
}

void OnDisconnected(Turn& turn, const WorkerDisconnected& event) {
  const auto it = turn.state.sessions.find(event.session);
  if (it == turn.state.sessions.end()) return;  // superseded or given up before
  Worker& worker = turn.state.workers.at(it->second);
  DropSession(turn, worker);
  turn.workers.insert(worker.record.profile.id);
  // One that runs nothing has no lease to wait for, whether it was stopped or cut off.
  if (worker.attempts.empty()) worker.state = WorkerState::kOffline;
  Refresh(turn, worker);
}

void OnRevoked(Turn& turn, const WorkerRevoked& event) {
  const auto it = turn.state.workers.find(event.worker);
  if (it == turn.state.workers.end()) return;
  const std::string why =
      "the credential of worker " + it->second.record.profile.name + " was revoked";
  GiveUp(turn, it->second, why, Unauthenticated(why));
}

void OnHeard(Turn& turn, const WorkerHeard& event) {
  const auto it = turn.state.sessions.find(event.session);
  if (it == turn.state.sessions.end()) return;
  Worker& worker = turn.state.workers.at(it->second);
  if (event.resources && *event.resources != worker.record.profile.resources) {
    WorkerProfile profile = worker.record.profile;
    profile.resources = *event.resources;
    SetProfile(turn, worker, profile);
  }
  Hear(turn, worker);
}

void OnTick(Turn& turn) {
  for (auto& [id, worker] : turn.state.workers) Refresh(turn, worker);
  if (turn.state.retry_at && turn.now.mono >= *turn.state.retry_at) turn.schedule = true;
}

}  // namespace gpulayer::core
