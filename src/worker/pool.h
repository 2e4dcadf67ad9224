// A few threads that do jobs in order of arrival.
#ifndef GPULAYER_WORKER_POOL_H_
#define GPULAYER_WORKER_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace gpulayer::worker {

// Threads:   Submit() from any thread.
// Blocking:  Submit() never waits; its caller bounds how much is under way. Stop() waits for the
//            jobs that run and drops the others.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~Pool() { Stop(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void Submit(std::function<void()> job) {
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      jobs_.push_back(std::move(job));
    }
    changed_.NotifyOne();
  }

  void Stop() {
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      jobs_.clear();
    }
    changed_.NotifyAll();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void Run() {
    for (;;) {
      std::function<void()> job;
      {
        MutexLock lock(mutex_);
        while (jobs_.empty() && !stopped_) changed_.Wait(mutex_);
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> jobs_ GPULAYER_GUARDED_BY(mutex_);
  bool stopped_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_POOL_H_
