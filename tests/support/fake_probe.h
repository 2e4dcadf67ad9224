// A machine as a test wants it, devices by id included; may change while a worker runs.
#ifndef GPULAYER_TESTS_SUPPORT_FAKE_PROBE_H_
#define GPULAYER_TESTS_SUPPORT_FAKE_PROBE_H_

#include <string>
#include <utility>

#include "base/mutex.h"
#include "worker/probe/probe.h"

namespace gpulayer::testing {

// Threads: any.
class FakeProbe : public Probe {
 public:
  explicit FakeProbe(Resources resources) : answer_(std::move(resources)) {}

  // `count` CUDA devices with the ids "GPU-0", "GPU-1", ...
  static Resources Machine(std::int32_t slots, std::int64_t memory_bytes, int count = 0,
                           std::int64_t device_memory_bytes = std::int64_t{16} << 30) {
    Resources r;
    r.slots = slots;
    r.memory_bytes = memory_bytes;
    for (int i = 0; i < count; ++i) {
      r.devices.push_back(
          {"GPU-" + std::to_string(i), AcceleratorKind::kCuda, "Fake 16G", device_memory_bytes});
    }
    return r;
  }

  Result<Resources> Detect() override {
    MutexLock lock(mutex_);
    return answer_;
  }
  void Set(Result<Resources> answer) {
    MutexLock lock(mutex_);
    answer_ = std::move(answer);
  }
  // As when a device falls off the bus.
  void Lose(const std::string& device_id) {
    MutexLock lock(mutex_);
    if (answer_.ok()) {
      std::erase_if(answer_->devices, [&](const Device& d) { return d.id == device_id; });
    }
  }

 private:
  Mutex mutex_;
  Result<Resources> answer_ GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_FAKE_PROBE_H_
