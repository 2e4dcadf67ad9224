// Named points where a test stops or kills this process. One relaxed load when off.
//
// GPULAYER_FAULT="server.before_commit=kill;worker.after_start=stop:3" arms points at start: `kill`
// ends the process with SIGKILL, `exit` leaves with kFaultExitCode, `stop` sends it SIGSTOP, `fail`
// makes FaultPointFails() true; `:N` means at the N-th pass (from 1), and only then.
#ifndef GPULAYER_BASE_FAULT_POINT_H_
#define GPULAYER_BASE_FAULT_POINT_H_

#include <atomic>

namespace gpulayer {

inline constexpr int kFaultExitCode = 93;  // "injected": no other path of ours leaves with it

namespace internal {
extern std::atomic<bool> fault_points_armed;
bool HitFaultPoint(const char* name);
}  // namespace internal

// Reads GPULAYER_FAULT; each program's main calls it once. An unknown action aborts with a message.
void ArmFaultPointsFromEnvironment();
// The same from a test's own text; an empty text disarms all.
void ArmFaultPointsForTest(const char* text);

// True only where the point is armed with `fail`.
inline bool FaultPointFails(const char* name) {
  return internal::fault_points_armed.load(std::memory_order_relaxed) &&
         internal::HitFaultPoint(name);
}
inline void FaultPoint(const char* name) { (void)FaultPointFails(name); }

}  // namespace gpulayer

#endif  // GPULAYER_BASE_FAULT_POINT_H_
