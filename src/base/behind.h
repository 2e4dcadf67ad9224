// Work that goes on behind who hands it over: items are used in order by a thread of its own, a few
// items later, so that making the next one and using the last one take the time of the slower.
#ifndef GPULAYER_BASE_BEHIND_H_
#define GPULAYER_BASE_BEHIND_H_

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"

namespace gpulayer {

// Threads:   one hands over; the object's own thread calls `use`, or Put() itself where there is no
//            thread to be had.
// Blocking:  Put() waits while two items are queued, Flush() until none is.
// Errors:    `use` returns false when it wants no more: what is queued is dropped, Put() and
//            Flush() return false from then on. What went wrong is for `use` to keep.
template <typename T>
class Behind {
 public:
  using Use = std::function<bool(T& item)>;

  explicit Behind(Use use) : use_(std::move(use)), thread_(TryThread([this] { Run(); })) {}
  // Waits for the item in use; those queued are dropped.
  ~Behind() {
    {
      MutexLock lock(mutex_);
      done_ = true;
    }
    changed_.NotifyAll();
    if (thread_.joinable()) thread_.join();
  }
  Behind(const Behind&) = delete;
  Behind& operator=(const Behind&) = delete;

  // Takes `item` and leaves one that was used before, for its memory, or a new one.
  bool Put(T& item) {
    if (!thread_.joinable()) return UseHere(item);
    MutexLock lock(mutex_);
    while (queue_.size() >= kQueued && !done_) changed_.Wait(mutex_);
    if (done_) return false;
    queue_.push_back(std::move(item));
    item = T();
    if (!used_.empty()) {
      item = std::move(used_.back());
      used_.pop_back();
    }
    changed_.NotifyAll();
    return true;
  }

  // What `use` wrote may be read when this returns.
  bool Flush() {
    MutexLock lock(mutex_);
    while ((!queue_.empty() || busy_) && !done_) changed_.Wait(mutex_);
    return !done_;
  }

 private:
  static constexpr std::size_t kQueued = 2;

  bool UseHere(T& item) {
    {
      MutexLock lock(mutex_);
      if (done_) return false;
    }
    const bool more = use_(item);
    MutexLock lock(mutex_);
    done_ = !more;
    return more;
  }

  void Run() {
    for (;;) {
      T item;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !done_) changed_.Wait(mutex_);
        if (done_) return;
        item = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        changed_.NotifyAll();
      }
      const bool more = use_(item);
      MutexLock lock(mutex_);
      used_.push_back(std::move(item));
      busy_ = false;
      if (!more) done_ = true;
      changed_.NotifyAll();
    }
  }

  const Use use_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<T> queue_ GPULAYER_GUARDED_BY(mutex_);
  std::vector<T> used_ GPULAYER_GUARDED_BY(mutex_);
  bool busy_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool done_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpulayer

#endif  // GPULAYER_BASE_BEHIND_H_
