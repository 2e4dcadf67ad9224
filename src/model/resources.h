// What a machine has and what a task asks of one node.
#ifndef GPULAYER_MODEL_RESOURCES_H_
#define GPULAYER_MODEL_RESOURCES_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/ids.h"

namespace gpulayer {

// Numbers are on the wire and stored: do not change.
enum class AcceleratorKind : std::int32_t {
  kNone = 0,  // in a request: no wish
  kCpu = 1,   // in a request: no device, said on purpose
  kCuda = 2,
  kRocm = 3,
  kMetal = 4,
  kAnyGpu = 5,  // only in a request
};
std::string_view ToString(AcceleratorKind kind);  // "cuda"; kNone: "none"; kAnyGpu: "gpu"

struct Device {
  std::string id;  // UUID
  AcceleratorKind kind = AcceleratorKind::kNone;
  std::string model;
  std::int64_t memory_bytes = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// The whole of a machine, as its worker reports it.
struct Resources {
  std::int32_t slots = 0;
  std::int64_t memory_bytes = 0;
  std::vector<Device> devices;
  friend bool operator==(const Resources&, const Resources&) = default;
};

// Part of a machine, held by one attempt until its process tree is gone.
struct Allocation {
  std::int32_t slots = 0;
  std::int64_t memory_bytes = 0;
  std::vector<std::string> device_ids;
  friend bool operator==(const Allocation&, const Allocation&) = default;
};

// What one node of a task needs. Equal requirements form one scheduling class, so everything that
// decides where a task may run stands here and nothing else does.
struct Requirements {
  std::int32_t slots = 1;
  std::int64_t memory_bytes = 0;  // 0: no reservation
  AcceleratorKind accelerator = AcceleratorKind::kNone;
  std::int32_t devices = 0;
  std::int64_t device_memory_bytes = 0;
  std::string device_model;                   // glob; empty: any
  std::map<std::string, std::string> labels;  // each must be equal
  std::string zone;                           // empty: any
  std::string region;
  std::vector<std::string> workers;  // names or ids, sorted; empty: any
  bool secrets = false;              // only a worker that keeps them off its disk
  friend auto operator<=>(const Requirements&, const Requirements&) = default;
  friend bool operator==(const Requirements&, const Requirements&) = default;
};

// "1 slot", "4 slots, 16GiB, zone eu": for messages.
std::string Describe(const Requirements& r);

// What a worker is, apart from what it does now.
struct WorkerProfile {
  WorkerId id;
  std::string name;
  std::string zone;
  std::string region;
  std::map<std::string, std::string> labels;
  Resources resources;
  std::string version;         // of the program
  bool takes_secrets = false;  // older ones do not
  friend bool operator==(const WorkerProfile&, const WorkerProfile&) = default;
};

// Whether this device is of the kind, size and model asked for.
bool DeviceFits(const Requirements& need, const Device& device);

// What keeps this machine from ever satisfying `need`, even when empty: "2 slots, 4GiB of memory"
// reads as what it has beside what was asked. Empty: it can.
std::vector<std::string> NeverReasons(const Requirements& need, const WorkerProfile& worker);

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_RESOURCES_H_
