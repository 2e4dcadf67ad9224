// Calls functions later, on one thread of its own: keepalives of silent streams, retries, patience
// with a peer.
//
// Threads:   After() from any thread. `call` runs on the timer's thread and must not wait.
// Ownership: a call cannot be taken back; it holds a weak pointer to whom it concerns. After Stop()
// none runs.
#ifndef GPULAYER_SERVER_RPC_TIMER_H_
#define GPULAYER_SERVER_RPC_TIMER_H_

#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace gpulayer::rpc {

class Timer {
 public:
  Timer();
  ~Timer();  // Stop()

  void After(Duration delay, std::function<void()> call);
  void Stop();

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  void Run();

  Mutex mutex_;
  CondVar cv_;
  std::multimap<SteadyTime, std::function<void()>> calls_ GPULAYER_GUARDED_BY(mutex_);
  bool stopped_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_TIMER_H_
