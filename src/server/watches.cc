#include "server/watches.h"

#include <algorithm>
#include <utility>

namespace gpulayer {

std::int64_t Watches::Add(JobId job, ChangeFn changed) {
  auto shared = std::make_shared<const ChangeFn>(std::move(changed));
  MutexLock lock(mutex_);
  const std::int64_t id = ++last_id_;
  watches_[id] = {job, std::move(shared)};
  by_job_[job].push_back(id);
  return id;
}

void Watches::Remove(std::int64_t id) {
  Watch removed;  // destroyed after the lock is gone: what a callback holds may take locks, too
  MutexLock lock(mutex_);
  if (const auto it = watches_.find(id); it != watches_.end()) {
    removed = std::move(it->second);
    watches_.erase(it);
    const auto of_job = by_job_.find(removed.job);
    std::erase(of_job->second, id);
    if (of_job->second.empty()) by_job_.erase(of_job);
  }
  if (runner_ == std::this_thread::get_id()) return;
  while (running_ == id) returned_.Wait(mutex_);
}

void Watches::Fire(JobId job, bool ended) {
  std::vector<std::int64_t> ids;
  {
    MutexLock lock(mutex_);
    const auto of_job = by_job_.find(job);
    if (of_job == by_job_.end()) return;
    ids = of_job->second;
  }
  for (const std::int64_t id : ids) {
    std::shared_ptr<const ChangeFn> changed;
    {
      MutexLock lock(mutex_);
      const auto it = watches_.find(id);
      if (it == watches_.end()) continue;  // removed by an earlier callback or another thread
      changed = it->second.changed;
      running_ = id;
      runner_ = std::this_thread::get_id();
    }
    (*changed)(job, ended);
    changed.reset();
    {
      MutexLock lock(mutex_);
      running_ = 0;
      runner_ = std::thread::id();
    }
    returned_.NotifyAll();
  }
}

}  // namespace gpulayer
