#include "client/doctor_rules.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "model/blob_file.h"
#include "model/limits.h"

namespace gpulayer::client {

using api::Finding;
using api::WorkerInfo;
using api::WorkerState;

std::string Counted(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

Finding OfDaemons(const DaemonsView& view) {
  const std::string check = "data directory";
  const auto failed = [&](const std::string& what, const std::string& verb) {
    return Finding{check, false,
                   view.dir + ": " + what + ". See " + view.dir + "/log, and run `gpulayer " +
                       verb + "`, which starts again what has died."};
  };
  if (!view.record || view.record->down()) {
    if (view.socket_left && !view.server_lives) {
      return failed("server.sock is there and nobody listens on it: the server has died", "up");
    }
    return {check, true, view.dir + ": nothing is up"};
  }
  const DaemonRecord& record = *view.record;
  if (record.kind == DaemonRecord::Kind::kJoin) {
    if (!view.worker_lives) return failed("the worker of " + record.address + " has ended", "join");
    return {check, true, view.dir + ": a worker of " + record.address + " is up"};
  }
  if (!view.server_lives) return failed("the server has died", "up");
  if (record.worker && !view.worker_lives) return failed("the worker has died", "up");
  return {
      check, true,
      view.dir + ": " + (view.worker_lives ? "server and worker are" : "the server is") + " up"};
}

Finding OfDisk(const std::string& dir, std::int64_t free_bytes) {
  const std::string free = FormatSize(free_bytes);
  if (free_bytes >= kBlobDiskFloorBytes) return {"disk", true, free + " free for " + dir};
  return {"disk", false,
          dir + ": " + free + " free, and the server takes nothing below " +
              FormatSize(kBlobDiskFloorBytes) + ". Make room there."};
}

std::vector<Finding> OfServer(const std::string& target, const ServerView& view) {
  std::string tasks;
  for (const auto& [state, count] : view.server.task_counts) {
    if (count > 0) tasks += (tasks.empty() ? "" : ", ") + std::to_string(count) + " " + state;
  }
  std::vector<Finding> out;
  out.push_back({"server", true,
                 target + " (" + view.address + "), version " + view.server.version +
                     "; tasks: " + (tasks.empty() ? "none" : tasks)});
  const auto count = [&](WorkerState state) {
    return static_cast<std::size_t>(
        std::count_if(view.workers.begin(), view.workers.end(),
                      [&](const WorkerInfo& w) { return w.state == state; }));
  };
  const std::size_t online = count(WorkerState::kOnline);
  if (view.workers.empty()) {
    out.push_back({"workers", false,
                   "the server knows none: nothing can run. Run `gpulayer join` on a machine, or "
                   "`gpulayer up --worker` on the server's."});
    return out;
  }
  std::string wrong;
  for (const WorkerInfo& w : view.workers) {
    const std::string name = Printable(w.name);
    std::string what;
    if (w.state == WorkerState::kSuspect) {
      what = name + " does not answer any more: look at the machine and its network";
    } else if (w.state == WorkerState::kOnline && !w.held.empty()) {
      what = name + " is given no work: " + Printable(w.held);
    } else {
      continue;
    }
    wrong += (wrong.empty() ? "" : "; ") + what;
  }
  if (!wrong.empty()) {
    out.push_back({"workers", false, wrong + "."});
  } else if (online == 0) {
    out.push_back({"workers", false,
                   "none of " + Counted(view.workers.size(), "worker") +
                       " is online: nothing can run. Run `gpulayer join` on their machines, or "
                       "`gpulayer up` on the server's."});
  } else {
    out.push_back(
        {"workers", true,
         std::to_string(online) + " of " + std::to_string(view.workers.size()) + " online"});
  }
  return out;
}

std::optional<Finding> OfClock(const ServerView& view) {
  using std::chrono::microseconds;
  using std::chrono::seconds;
  std::optional<api::Time> newest;
  for (const WorkerInfo& w : view.workers) {
    if (w.state == WorkerState::kOnline)
      newest = std::max(newest.value_or(w.last_seen), w.last_seen);
  }
  if (!newest) return std::nullopt;
  // The server's own time lies up to that much later.
  const microseconds range = limits::kSuspectAfter;
  const microseconds least = view.asked - *newest - range;  // how far ahead we are, at least
  const microseconds most = view.asked - *newest;
  constexpr seconds kClose{5};
  if (least <= kClose && most >= -kClose) {
    return Finding{"clock", true, "as the server's, within some seconds"};
  }
  const bool ahead = least > kClose;
  const microseconds off = ahead ? least : -most;
  return Finding{"clock", false,
                 "this machine's is at least " +
                     FormatDuration(std::chrono::duration_cast<seconds>(off)) +
                     (ahead ? " ahead of" : " behind") +
                     " the server's: times and certificates are judged wrongly. Set both by a time "
                     "server."};
}

}  // namespace gpulayer::client
