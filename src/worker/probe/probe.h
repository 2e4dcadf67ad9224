// What this machine has.
#ifndef GPULAYER_WORKER_PROBE_PROBE_H_
#define GPULAYER_WORKER_PROBE_PROBE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "model/resources.h"

namespace gpulayer {

// Threads:   Detect() from one thread at a time.
// Blocking:  reads a few files of /proc and /sys (CpuProbe); a device probe may take seconds.
// Errors:    what could not be read and why. The caller keeps the last answer.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual Result<Resources> Detect() = 0;
};

struct CpuProbeOptions {
  std::optional<std::int32_t> slots;         // instead of the CPUs found
  std::optional<std::int64_t> memory_bytes;  // instead of the memory found
  std::string root;                          // in front of /proc and /sys: a test's own tree
};

// Slots: CPUs this process may use (affinity mask), limited by the cgroup's CPU quota rounded up,
// at least 1. Memory: MemTotal, limited by the memory limit of this process's cgroup and those
// above it. cgroup v1, v2 and both side by side. No devices.
class CpuProbe : public Probe {
 public:
  explicit CpuProbe(CpuProbeOptions options = {}) : options_(std::move(options)) {}
  Result<Resources> Detect() override;

 private:
  const CpuProbeOptions options_;
};

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_PROBE_PROBE_H_
