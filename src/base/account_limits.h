// What this account lets a program have, and the words for too little of it.
#ifndef GPULAYER_BASE_ACCOUNT_LIMITS_H_
#define GPULAYER_BASE_ACCOUNT_LIMITS_H_

#include <cstdint>

#include "base/status.h"

namespace gpulayer {

inline constexpr char kRaiseLimits[] =
    "Raise the limits of this account (ulimit -n, -u, -v) and try again.";

// Of a server or a worker.
inline constexpr std::uint64_t kDaemonAddressBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kDaemonFiles = 64;

// RESOURCE_EXHAUSTED where the limits on address space and open files are lower. gRPC does not fail
// for want of either: it waits for a thread that never comes, or aborts.
Status CheckAccountLimits(std::uint64_t address_bytes, std::uint64_t files);

}  // namespace gpulayer

#endif  // GPULAYER_BASE_ACCOUNT_LIMITS_H_
