#include "server/rpc/timer.h"

#include <pthread.h>

#include <utility>

namespace gpulayer::rpc {

Timer::Timer() : thread_([this] { Run(); }) {}

Timer::~Timer() { Stop(); }

void Timer::After(Duration delay, std::function<void()> call) {
  const SteadyTime when =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<SteadyTime::duration>(delay);
  bool first = false;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    const auto it = calls_.emplace(when, std::move(call));
    first =
        it == calls_.begin();  // in a statement of its own: begin() is asked after the insertion
  }
  if (first) cv_.NotifyOne();
}

void Timer::Stop() {
  std::multimap<SteadyTime, std::function<void()>> dropped;  // destroyed outside the lock
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(calls_);
  }
  cv_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Timer::Run() {
  pthread_setname_np(pthread_self(), "gl-timer");
  for (;;) {
    std::function<void()> call;
    {
      MutexLock lock(mutex_);
      for (;;) {
        if (stopped_) return;
        if (calls_.empty()) {
          cv_.Wait(mutex_);
          continue;
        }
        const auto left = calls_.begin()->first - std::chrono::steady_clock::now();
        if (left <= Duration::zero()) break;
        cv_.WaitFor(mutex_, left);
      }
      call = std::move(calls_.begin()->second);
      calls_.erase(calls_.begin());
    }
    call();
  }
}

}  // namespace gpulayer::rpc
