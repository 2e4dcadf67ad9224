#include "base/clock.h"

#include <ctime>

namespace gpulayer {
namespace {

#ifdef CLOCK_BOOTTIME
constexpr clockid_t kMonotonic = CLOCK_BOOTTIME;
#else
constexpr clockid_t kMonotonic = CLOCK_MONOTONIC;  // macOS: also goes on during sleep
#endif

class SystemClock final : public Clock {
 public:
  Instant Now() override {
    timespec t{};
    clock_gettime(kMonotonic, &t);
    const auto wall = std::chrono::system_clock::now();
    return {TimePoint(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec)),
            std::chrono::time_point_cast<std::chrono::microseconds>(wall)};
  }
};

}  // namespace

Clock& Clock::System() {
  static SystemClock clock;
  return clock;
}

}  // namespace gpulayer
