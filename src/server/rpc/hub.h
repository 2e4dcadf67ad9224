// Tells those who follow a task's log that bytes were added to it.
//
// Threads: every method from any thread; a listener is called without a lock held and must not
// wait. One that was
//          just removed may be called once more: it holds a weak pointer to whom it wakes.
#ifndef GPULAYER_SERVER_RPC_HUB_H_
#define GPULAYER_SERVER_RPC_HUB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "model/ids.h"

namespace gpulayer::rpc {

class LogHub {
 public:
  using Listener = std::function<void()>;
  std::int64_t Add(const TaskRef& task, Listener listener);
  void Remove(const TaskRef& task, std::int64_t id);
  void Appended(const TaskRef& task);

 private:
  Mutex mutex_;
  std::int64_t last_ GPULAYER_GUARDED_BY(mutex_) = 0;
  std::unordered_map<TaskRef, std::map<std::int64_t, Listener>> listeners_
      GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_HUB_H_
