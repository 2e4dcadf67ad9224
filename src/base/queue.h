// A queue between threads, bounded in cost (items or bytes), that says so when it is full.
#ifndef GPULAYER_BASE_QUEUE_H_
#define GPULAYER_BASE_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace gpulayer {

// Threads:   every method may be called from any thread.
// Blocking:  TryPush never waits; TakeUpTo waits for an item, `patience` or Close().
// Errors:    TryPush: RESOURCE_EXHAUSTED when full, CANCELLED after Close().
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t max_cost) : max_cost_(max_cost) {}

  // `cost` counts against the bound until the item is taken. One item always fits an empty queue,
  // and one of no cost any queue.
  Status TryPush(T item, std::size_t cost = 1) {
    {
      MutexLock lock(mutex_);
      if (closed_) return Cancelled("queue: closed");
      if (cost > 0 && !items_.empty() && cost_ + cost > max_cost_) {
        return ResourceExhausted("queue: full");
      }
      cost_ += cost;
      items_.emplace_back(std::move(item), cost);
    }
    cv_.NotifyOne();
    return OkStatus();
  }

  // Up to `max` items in order; empty when `patience` is over, or when closed and drained.
  std::vector<T> TakeUpTo(std::size_t max, Duration patience) {
    std::vector<T> out;
    MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (items_.empty() && !closed_) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= Duration::zero() || (!cv_.WaitFor(mutex_, left) && items_.empty())) break;
    }
    while (!items_.empty() && out.size() < max) {
      cost_ -= items_.front().second;
      out.push_back(std::move(items_.front().first));
      items_.pop_front();
    }
    return out;
  }

  // No more pushes; what is inside can still be taken. May be called twice.
  void Close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    cv_.NotifyAll();
  }

  bool closed() {
    MutexLock lock(mutex_);
    return closed_;
  }

 private:
  const std::size_t max_cost_;
  Mutex mutex_;
  CondVar cv_;
  std::deque<std::pair<T, std::size_t>> items_ GPULAYER_GUARDED_BY(mutex_);
  std::size_t cost_ GPULAYER_GUARDED_BY(mutex_) = 0;
  bool closed_ GPULAYER_GUARDED_BY(mutex_) = false;
};

}  // namespace gpulayer

#endif  // GPULAYER_BASE_QUEUE_H_
