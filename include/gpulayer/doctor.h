// What is usually in the way when something does not work, looked at from this machine and account.
#ifndef GPULAYER_DOCTOR_H_
#define GPULAYER_DOCTOR_H_

#include <chrono>
#include <string>
#include <vector>

#include "gpulayer/export.h"

namespace gpulayer {
GPULAYER_API_BEGIN

struct DiagnoseOptions {
  // As ClientOptions.
  std::string target;
  std::string data_dir;
  std::string config_dir;
  std::chrono::milliseconds patience{5'000};  // for each server that is asked
};

// One thing that was looked at.
struct Finding {
  // "install", "limits", "configuration", "login NAME", "data directory", "disk", "server here" (if it
  // does not answer), "server", "workers", "clock"
  std::string check;
  bool ok = true;
  std::string text;  // what was found; else what is wrong, why, and what to do
};

// In this order; what depends on something that failed is left out. Changes nothing, here or there.
// Blocking: asks the target's server, the one here and that of each login: `patience` each.
GPULAYER_EXPORT std::vector<Finding> Diagnose(const DiagnoseOptions& options);

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_DOCTOR_H_
