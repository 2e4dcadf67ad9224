// A clock that moves only when told.
#ifndef GPULAYER_TESTS_SUPPORT_FAKE_CLOCK_H_
#define GPULAYER_TESTS_SUPPORT_FAKE_CLOCK_H_

#include "base/clock.h"
#include "base/mutex.h"

namespace gpulayer::testing {

class FakeClock : public Clock {
 public:
  Instant Now() override {
    MutexLock lock(mutex_);
    return now_;
  }
  void Advance(Duration d) {
    MutexLock lock(mutex_);
    now_.mono += d;
    now_.wall += std::chrono::duration_cast<std::chrono::microseconds>(d);
  }

 private:
  Mutex mutex_;
  Instant now_ GPULAYER_GUARDED_BY(mutex_) = {TimePoint(std::chrono::hours(1)),
                                              FromMicros(1'800'000'000'000'000)};
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_FAKE_CLOCK_H_
