// The inside of api::Interrupt: whoever waits registers here how it is woken.
#ifndef GPULAYER_CLIENT_INTERRUPT_STATE_H_
#define GPULAYER_CLIENT_INTERRUPT_STATE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "gpulayer/interrupt.h"

namespace gpulayer {

// Threads:   every method from any thread. A waker runs on the thread that throws, with the lock
//            held: it must be quick and must not come back here.
// Blocking:  SleepFor waits for its time or the throw.
class api::Interrupt::State {
 public:
  void Throw();
  bool thrown() const;
  // Runs `waker` at the throw (at once if it was thrown already). 0 is no registration.
  int Add(std::function<void()> waker);
  void Remove(int id);  // after it returns the waker does not run any more
  // False: thrown before the time was over.
  bool SleepFor(Duration d);

 private:
  mutable Mutex mutex_;
  CondVar cv_;
  std::atomic<bool> thrown_{false};  // set under mutex_
  int next_ GPULAYER_GUARDED_BY(mutex_) = 1;
  std::map<int, std::function<void()>> wakers_ GPULAYER_GUARDED_BY(mutex_);
};

namespace client {

using InterruptPtr = std::shared_ptr<api::Interrupt::State>;

// Registers a waker for a scope. A null interrupt is one that is never thrown.
class WakeScope {
 public:
  WakeScope(InterruptPtr interrupt, std::function<void()> waker)
      : interrupt_(std::move(interrupt)) {
    if (interrupt_) id_ = interrupt_->Add(std::move(waker));
  }
  ~WakeScope() {
    if (interrupt_) interrupt_->Remove(id_);
  }
  WakeScope(const WakeScope&) = delete;
  WakeScope& operator=(const WakeScope&) = delete;

 private:
  InterruptPtr interrupt_;
  int id_ = 0;
};

// Throws an interrupt after a while, unless destroyed before.
class Alarm {
 public:
  Alarm(InterruptPtr target, Duration after);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  bool set() const { return thread_.joinable(); }  // false: no thread was to be had
  bool rang() const { return rang_; }

 private:
  api::Interrupt::State stop_;
  std::atomic<bool> rang_{false};
  std::thread thread_;
};

inline bool Thrown(const InterruptPtr& interrupt) { return interrupt && interrupt->thrown(); }

}  // namespace client
}  // namespace gpulayer

#endif  // GPULAYER_CLIENT_INTERRUPT_STATE_H_
