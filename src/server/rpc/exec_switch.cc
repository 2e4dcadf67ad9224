#include "server/rpc/exec_switch.h"

#include <utility>
#include <vector>

#include "base/random.h"
#include "model/limits.h"

namespace gpulayer::rpc {
namespace {

constexpr std::size_t kTicketBytes = 16;

Status Gone(const std::string& worker_name) {
  return Unavailable("worker " + worker_name +
                     ": its connection to the server was lost. The job goes on there; try again "
                     "when `gpulayer worker list` shows it online");
}

}  // namespace

void ExecSwitch::AddLine(SessionId session, const std::shared_ptr<ExecLine>& line) {
  MutexLock lock(mutex_);
  lines_[session] = line;
}

void ExecSwitch::RemoveLine(SessionId session) {
  std::vector<std::pair<std::shared_ptr<OpenStream>, std::string>> left;
  {
    MutexLock lock(mutex_);
    lines_.erase(session);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (it->second.session != session) {
        ++it;
        continue;
      }
      left.emplace_back(it->second.caller.lock(), std::move(it->second.worker_name));
      it = waiting_.erase(it);
    }
  }
  for (const auto& [caller, worker] : left) {
    if (caller) caller->End(Gone(worker));
  }
}

Result<std::string> ExecSwitch::Ring(const core::RunningPlace& place,
                                     const std::shared_ptr<OpenStream>& caller) {
  const std::string ticket = RandomHex(kTicketBytes);
  std::shared_ptr<ExecLine> line;
  {
    MutexLock lock(mutex_);
    if (const auto it = lines_.find(place.session); it != lines_.end()) line = it->second.lock();
    if (!line) return Gone(place.worker_name);
    if (!line->knows_exec()) {
      return FailedPrecondition("worker " + place.worker_name +
                                ": its version knows no commands inside a job. Upgrade it");
    }
    waiting_[ticket] = {place.session, place.worker, place.worker_name, caller};
  }
  line->OpenExec(place.key, ticket);
  return ticket;
}

Result<std::shared_ptr<OpenStream>> ExecSwitch::Answer(const std::string& ticket,
                                                       const security::Principal& worker) {
  std::shared_ptr<OpenStream> caller;
  {
    MutexLock lock(mutex_);
    const auto it = waiting_.find(ticket);
    if (it == waiting_.end()) return NotFound("exec: nobody waits for this any more");
    if (!worker.admin() && worker.subject != it->second.worker.value()) {
      return PermissionDenied("exec: this is for another worker");
    }
    caller = it->second.caller.lock();
    waiting_.erase(it);
  }
  if (!caller) return NotFound("exec: nobody waits for this any more");
  return caller;
}

bool ExecSwitch::GiveUp(const std::string& ticket) {
  MutexLock lock(mutex_);
  return waiting_.erase(ticket) > 0;
}

Status ExecSwitch::Enter() {
  MutexLock lock(mutex_);
  if (inside_ >= limits::kMaxExecs) {
    return ResourceExhausted(std::to_string(inside_) +
                             " commands run inside jobs now, as many as a server takes "
                             "(kMaxExecs). Try again when one of them is over");
  }
  ++inside_;
  return OkStatus();
}

void ExecSwitch::Leave() {
  MutexLock lock(mutex_);
  --inside_;
}

}  // namespace gpulayer::rpc
