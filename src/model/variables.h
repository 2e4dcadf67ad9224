// The environment variables that a job gets from GPUlayer itself.
#ifndef GPULAYER_MODEL_VARIABLES_H_
#define GPULAYER_MODEL_VARIABLES_H_

#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/job.h"

namespace gpulayer {

// A user's value of one would be lost.
bool IsSetByGpulayer(std::string_view variable);

// Of a spec that is submitted. INVALID_ARGUMENT names the variable.
Status CheckVariables(const JobSpec& spec);

// Whether `values` are those that the spec names, each once, and a kernel starts a program with them:
// INVALID_ARGUMENT, RESOURCE_EXHAUSTED; no value is repeated.
Status CheckSecrets(const JobSpec& spec, const std::vector<EnvVar>& values);

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_VARIABLES_H_
