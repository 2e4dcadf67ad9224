// worker.toml: what a machine's owner says about it once.
#ifndef GPULAYER_WORKER_CONFIG_H_
#define GPULAYER_WORKER_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/job.h"

namespace gpulayer::worker {

// Each is absent if the file does not say it.
struct WorkerFile {
  std::optional<std::string> name;
  std::optional<std::int32_t> slots;
  std::optional<std::string> zone;
  std::optional<std::string> region;
  std::optional<std::int64_t> cache_bytes;
  std::map<std::string, std::string> labels;
  std::vector<EnvVar> env;
};

// `[worker] name slots zone region cache_size`, `[labels]`, `[env]`. INVALID_ARGUMENT names the
// place: a key that is not known is an error, since a wish that is silently not met is worse.
Result<WorkerFile> ParseWorkerFile(std::string_view text, const std::string& path);

// NOT_FOUND if there is none.
Result<WorkerFile> ReadWorkerFile(const std::string& path);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_CONFIG_H_
