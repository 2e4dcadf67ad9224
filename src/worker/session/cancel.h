// A wish to break off what another thread is doing.
#ifndef GPULAYER_WORKER_SESSION_CANCEL_H_
#define GPULAYER_WORKER_SESSION_CANCEL_H_

#include <functional>
#include <utility>

#include "base/mutex.h"

namespace gpulayer::worker {

// Threads:   every method from any thread.
// Blocking:  Cancel() runs the hook that is set, with the lock held: a hook must not wait and must
//            not call back.
class Cancel {
 public:
  void Request() {
    MutexLock lock(mutex_);
    requested_ = true;
    if (hook_) hook_();
  }
  bool requested() {
    MutexLock lock(mutex_);
    return requested_;
  }

  // While it lives Request() calls `hook`, at once if it was called before.
  class Scope {
   public:
    Scope(Cancel& cancel, std::function<void()> hook) : cancel_(cancel) {
      MutexLock lock(cancel_.mutex_);
      if (cancel_.requested_) hook();
      cancel_.hook_ = std::move(hook);
    }
    ~Scope() {
      MutexLock lock(cancel_.mutex_);
      cancel_.hook_ = nullptr;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancel& cancel_;
  };

 private:
  Mutex mutex_;
  bool requested_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::function<void()> hook_ GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_CANCEL_H_
