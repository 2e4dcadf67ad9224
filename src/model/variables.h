// The environment variables that a job gets from GPUlayer itself.
#ifndef GPULAYER_MODEL_VARIABLES_H_
#define GPULAYER_MODEL_VARIABLES_H_

#include <string_view>

#include "base/status.h"
#include "model/job.h"

namespace gpulayer {

// A user's value of one would be lost.
bool IsSetByGpulayer(std::string_view variable);

// Of a spec that is submitted. INVALID_ARGUMENT names the variable.
Status CheckVariables(const JobSpec& spec);

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_VARIABLES_H_
