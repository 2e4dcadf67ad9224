// Time, chance and order of a simulated run: the same seed gives the same run on every machine.
#ifndef GPULAYER_TESTS_SIM_TIMELINE_H_
#define GPULAYER_TESTS_SIM_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace gpulayer::sim {

using namespace std::chrono_literals;  // NOLINT: simulated times everywhere

class Timeline {
 public:
  explicit Timeline(std::uint64_t seed) : random_(seed) {}

  Instant now() const { return now_; }
  Duration elapsed() const { return now_.mono - kStart; }

  void After(Duration delay, std::function<void()> what) {
    queue_.emplace(std::pair(now_.mono + delay, next_++), std::move(what));
  }
  // Runs what is next in time. REQUIRES: something is left, as the ticking parts see to.
  void Step() {
    auto node = queue_.extract(queue_.begin());
    const Duration passed = node.key().first - now_.mono;
    now_.mono += passed;
    now_.wall += std::chrono::duration_cast<std::chrono::microseconds>(passed);
    node.mapped()();
  }

  // From `low` to `high`, both included. Not std::uniform_int_distribution: it differs by library.
  std::int64_t Draw(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool Chance(int percent) { return Draw(1, 100) <= percent; }
  Duration Between(Duration low, Duration high) {
    return Duration(Draw(low.count(), high.count()));
  }

  // What happened, for whoever looks at a failed seed.
  void Note(const std::string& line) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed()).count();
    trace_.push_back(std::to_string(ms) + " ms  " + line);
  }
  const std::vector<std::string>& trace() const { return trace_; }

 private:
  static constexpr TimePoint kStart = TimePoint(1h);
  Instant now_{kStart, FromMicros(1'800'000'000'000'000)};
  std::map<std::pair<TimePoint, std::uint64_t>, std::function<void()>> queue_;
  std::uint64_t next_ = 0;
  std::mt19937_64 random_;
  std::vector<std::string> trace_;
};

}  // namespace gpulayer::sim

#endif  // GPULAYER_TESTS_SIM_TIMELINE_H_
