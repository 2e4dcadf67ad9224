#include "server/rpc/hub.h"

#include <utility>

namespace gpulayer::rpc {

std::int64_t LogHub::Add(const TaskRef& task, Listener listener) {
  MutexLock lock(mutex_);
  listeners_[task].emplace(++last_, std::move(listener));
  return last_;
}

void LogHub::Remove(const TaskRef& task, std::int64_t id) {
  Listener dropped;  // destroyed outside the lock
  MutexLock lock(mutex_);
  const auto it = listeners_.find(task);
  if (it == listeners_.end()) return;
  if (const auto one = it->second.find(id); one != it->second.end()) {
    dropped = std::move(one->second);
    it->second.erase(one);
  }
  if (it->second.empty()) listeners_.erase(it);
}

void LogHub::Appended(const TaskRef& task) {
  std::vector<Listener> awake;
  {
    MutexLock lock(mutex_);
    const auto it = listeners_.find(task);
    if (it == listeners_.end()) return;
    for (const auto& [id, listener] : it->second) awake.push_back(listener);
  }
  for (const Listener& listener : awake) listener();
}

}  // namespace gpulayer::rpc
