#include "server/core/placement.h"

#include <algorithm>
#include <tuple>

namespace gpulayer::core {
namespace {

// Free devices that `need` may use, the smallest first, so that large ones stay for those who need
// them.
std::vector<const Device*> Suitable(const Requirements& need, const FreeCapacity& free) {
  std::vector<const Device*> out;
  for (const Device* device : free.devices) {
    if (DeviceFits(need, *device)) out.push_back(device);
  }
  std::sort(out.begin(), out.end(), [](const Device* a, const Device* b) {
    return std::tie(a->memory_bytes, a->id) < std::tie(b->memory_bytes, b->id);
  });
  return out;
}

}  // namespace

FreeCapacity FreeOf(const Resources& total, std::int32_t slots_used, std::int64_t memory_used,
                    const std::set<std::string>& devices_used) {
  FreeCapacity free;
  free.slots = std::max(0, total.slots - slots_used);
  free.memory_bytes = std::max<std::int64_t>(0, total.memory_bytes - memory_used);
  for (const Device& device : total.devices) {
    if (!devices_used.contains(device.id)) free.devices.push_back(&device);
  }
  return free;
}

std::optional<Allocation> Fit(const Requirements& need, const FreeCapacity& free) {
  if (need.slots > free.slots || need.memory_bytes > free.memory_bytes) return std::nullopt;
  Allocation allocation{need.slots, need.memory_bytes, {}};
  if (need.devices == 0) return allocation;
  for (const Device* device : Suitable(need, free)) {
    if (std::ssize(allocation.device_ids) == need.devices) break;
    allocation.device_ids.push_back(device->id);
  }
  if (std::ssize(allocation.device_ids) < need.devices) return std::nullopt;
  return allocation;
}

void SetAside(const Requirements& need, FreeCapacity& free) {
  free.slots = std::max(0, free.slots - need.slots);
  free.memory_bytes = std::max<std::int64_t>(0, free.memory_bytes - need.memory_bytes);
  if (need.devices == 0) return;
  std::vector<const Device*> kept = Suitable(need, free);
  if (std::ssize(kept) > need.devices) kept.resize(static_cast<std::size_t>(need.devices));
  std::erase_if(free.devices, [&](const Device* device) {
    return std::find(kept.begin(), kept.end(), device) != kept.end();
  });
}

Tightness TightnessOf(const Requirements& need, const FreeCapacity& free) {
  return {free.devices.size() - static_cast<std::size_t>(need.devices), free.slots - need.slots,
          free.memory_bytes - need.memory_bytes};
}

}  // namespace gpulayer::core
