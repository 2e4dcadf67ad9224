// Time as the program uses it: one monotonic clock for decisions, one wall clock for people.
#ifndef GPULAYER_BASE_CLOCK_H_
#define GPULAYER_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace gpulayer {

using Duration = std::chrono::nanoseconds;

// CLOCK_BOOTTIME where there is one: goes on while the machine sleeps, never steps, has no date.
// Only points of one boot of one machine may be compared.
struct BootClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
};
using TimePoint = BootClock::time_point;

// Microseconds since 1970 UTC: what is stored and shown. May step; never used for a decision.
using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

// One reading of both clocks, taken together.
struct Instant {
  TimePoint mono;
  WallTime wall;
};

// Threads: every method may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() = 0;

  // The machine's own clocks; lives for ever.
  static Clock& System();
};

inline std::int64_t ToMicros(WallTime t) { return t.time_since_epoch().count(); }
inline WallTime FromMicros(std::int64_t us) { return WallTime(std::chrono::microseconds(us)); }

}  // namespace gpulayer

#endif  // GPULAYER_BASE_CLOCK_H_
