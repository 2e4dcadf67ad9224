#include "base/account_limits.h"

#include <sys/resource.h>

#include <string>

#include "base/text.h"

namespace gpulayer {

Status CheckAccountLimits(std::uint64_t address_bytes, std::uint64_t files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < address_bytes) {
    return ResourceExhausted(
        "an address space of " + FormatSize(static_cast<std::int64_t>(limit.rlim_cur)) +
        " is too little, " + FormatSize(static_cast<std::int64_t>(address_bytes)) +
        " are needed. " + kRaiseLimits);
  }
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < files) {
    return ResourceExhausted(std::to_string(limit.rlim_cur) + " open files are too few, " +
                             std::to_string(files) + " are needed. " + kRaiseLimits);
  }
  return OkStatus();
}

}  // namespace gpulayer
