#include "wire/status_code.h"

namespace gpulayer::wire {

int ToWireCode(StatusCode code) {
  if (code == StatusCode::kRejected) return static_cast<int>(StatusCode::kFailedPrecondition);
  return static_cast<int>(code);
}

StatusCode FromWireCode(int code) {
  if (code < 0 || code > static_cast<int>(StatusCode::kUnauthenticated))
    return StatusCode::kUnknown;
  return static_cast<StatusCode>(code);
}

}  // namespace gpulayer::wire
