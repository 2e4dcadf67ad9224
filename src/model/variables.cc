#include "model/variables.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "base/text.h"
#include "model/limits.h"

namespace gpulayer {

bool IsSetByGpulayer(std::string_view variable) {
  static constexpr std::string_view kNames[] = {
      "GPULAYER_JOB_ID",         "GPULAYER_TASK",      "GPULAYER_ATTEMPT",    "GPULAYER_ATTEMPT_ID",
      "GPULAYER_ITEM",           "GPULAYER_WORKER",    "GPULAYER_OUTPUT_DIR", "GPULAYER_INPUT_DIR",
      "GPULAYER_CHECKPOINT_DIR", "GPULAYER_CACHE_DIR", "GPULAYER_NODES"};
  return std::find(std::begin(kNames), std::end(kNames), variable) != std::end(kNames);
}

Status CheckVariables(const JobSpec& spec) {
  std::set<std::string_view> names;
  for (const EnvVar& var : spec.env) names.insert(var.name);
  for (const std::string& secret : spec.secrets) {
    if (!names.insert(secret).second) {
      return InvalidArgument("job: " + Printable(secret) +
                             " is an environment variable and a secret. Give it as one of them.");
    }
  }
  for (const std::string_view name : names) {
    if (IsSetByGpulayer(name)) {
      return InvalidArgument("job: environment variable " + std::string(name) +
                             ": GPUlayer sets it itself. Choose another name.");
    }
  }
  return OkStatus();
}

Status CheckSecrets(const JobSpec& spec, const std::vector<EnvVar>& values) {
  std::set<std::string> missing(spec.secrets.begin(), spec.secrets.end());
  std::size_t total = 0;
  for (const EnvVar& secret : values) {
    const std::string name = Printable(secret.name);
    if (missing.erase(secret.name) == 0) {
      return InvalidArgument("job: a value for the secret " + name + ", which it does not ask for");
    }
    if (secret.value.find('\0') != std::string::npos) {
      return InvalidArgument(
          "job: the secret " + name +
          " holds a NUL byte, which no variable can hold. Encode it, as base64.");
    }
    if (secret.value.size() > limits::kMaxSecretBytes) {
      return ResourceExhausted(
          "job: the secret " + name + " of " + std::to_string(secret.value.size()) +
          " bytes is over the limit of " + FormatSize(limits::kMaxSecretBytes));
    }
    total += secret.name.size() + secret.value.size();
  }
  if (!missing.empty()) {
    std::string options;
    for (const std::string& name : missing) options += " --secret " + Printable(name);
    return InvalidArgument("job: values of its secrets are missing. Give them:" + options);
  }
  if (total > limits::kMaxSecretsBytes) {
    return ResourceExhausted("job: secrets of " + std::to_string(total) +
                             " bytes are over the limit of " +
                             FormatSize(limits::kMaxSecretsBytes));
  }
  if (values.empty()) return OkStatus();
  constexpr std::size_t kBeside = 2 + sizeof(char*);  // what the kernel counts with each
  total += values.size() * kBeside;
  for (const std::string& arg : spec.command) total += arg.size() + kBeside;
  for (const EnvVar& var : spec.env) total += var.name.size() + var.value.size() + kBeside;
  if (total > limits::kMaxArgsAndEnvBytes) {
    return ResourceExhausted("job: arguments, environment and secrets of " + std::to_string(total) +
                             " bytes are over the kernel's limit of " +
                             std::to_string(limits::kMaxArgsAndEnvBytes) +
                             " bytes. Put them into files.");
  }
  return OkStatus();
}

}  // namespace gpulayer
