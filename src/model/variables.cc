#include "model/variables.h"

#include <algorithm>
#include <iterator>

namespace gpulayer {

bool IsSetByGpulayer(std::string_view variable) {
  static constexpr std::string_view kNames[] = {
      "GPULAYER_JOB_ID",         "GPULAYER_TASK",      "GPULAYER_ATTEMPT",    "GPULAYER_ATTEMPT_ID",
      "GPULAYER_ITEM",           "GPULAYER_WORKER",    "GPULAYER_OUTPUT_DIR", "GPULAYER_INPUT_DIR",
      "GPULAYER_CHECKPOINT_DIR", "GPULAYER_CACHE_DIR", "GPULAYER_NODES"};
  return std::find(std::begin(kNames), std::end(kNames), variable) != std::end(kNames);
}

Status CheckVariables(const JobSpec& spec) {
  for (const EnvVar& var : spec.env) {
    if (IsSetByGpulayer(var.name)) {
      return InvalidArgument("job: environment variable " + var.name +
                             ": GPUlayer sets it itself. Choose another name.");
    }
  }
  return OkStatus();
}

}  // namespace gpulayer
