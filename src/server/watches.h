// Who wants to know that a job changed.
//
// Threads:  Add and Remove from any thread, Fire from one.
// Blocking: Remove waits for a call of this watch that is under way, unless it is called from
// inside
//           such a call. A caller must not hold a lock that the callback takes.
#ifndef GPULAYER_SERVER_WATCHES_H_
#define GPULAYER_SERVER_WATCHES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "model/ids.h"

namespace gpulayer {

class Watches {
 public:
  using ChangeFn = std::function<void(JobId, bool ended)>;

  std::int64_t Add(JobId job, ChangeFn changed);
  void Remove(std::int64_t id);  // an unknown one is none any more
  void Fire(JobId job, bool ended);

 private:
  struct Watch {
    JobId job;
    std::shared_ptr<const ChangeFn> changed;
  };

  Mutex mutex_;  // not held while a callback runs
  CondVar returned_;
  std::int64_t last_id_ GPULAYER_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::int64_t, Watch> watches_ GPULAYER_GUARDED_BY(mutex_);
  std::unordered_map<JobId, std::vector<std::int64_t>> by_job_ GPULAYER_GUARDED_BY(mutex_);
  std::int64_t running_ GPULAYER_GUARDED_BY(mutex_) = 0;  // 0: none
  std::thread::id runner_ GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_WATCHES_H_
