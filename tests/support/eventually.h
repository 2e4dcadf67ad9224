// Waiting for what another process or thread does: a condition and a deadline, never a sleep by
// guess.
#ifndef GPULAYER_TESTS_SUPPORT_EVENTUALLY_H_
#define GPULAYER_TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace gpulayer::testing {

// True as soon as `condition()` is; false when the time is over.
template <typename Condition>
bool Eventually(Condition condition,
                std::chrono::milliseconds patience = std::chrono::seconds(10)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_EVENTUALLY_H_
