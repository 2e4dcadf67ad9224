// Where one node of a task fits. Pure functions over a machine's resources.
#ifndef GPULAYER_SERVER_CORE_PLACEMENT_H_
#define GPULAYER_SERVER_CORE_PLACEMENT_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/resources.h"

namespace gpulayer::core {

// What nobody holds on a machine. Never negative; the devices point into the machine's Resources.
struct FreeCapacity {
  std::int32_t slots = 0;
  std::int64_t memory_bytes = 0;
  std::vector<const Device*> devices;
};

FreeCapacity FreeOf(const Resources& total, std::int32_t slots_used, std::int64_t memory_used,
                    const std::set<std::string>& devices_used);

// The part that `need` would take, of devices the smallest that do; none: it does not fit.
std::optional<Allocation> Fit(const Requirements& need, const FreeCapacity& free);

// Takes away what `need` would use of what is free, as far as there is any: the rest stays usable
// by others without making `need` wait longer.
void SetAside(const Requirements& need, FreeCapacity& free);

// How tight a fit is; the lowest is best. A task without devices goes rather to a machine without
// free ones, then where the least is left over.
struct Tightness {
  std::size_t devices_idle = 0;
  std::int32_t slots_left = 0;
  std::int64_t memory_left = 0;
  friend auto operator<=>(const Tightness&, const Tightness&) = default;
};
Tightness TightnessOf(const Requirements& need, const FreeCapacity& free);

}  // namespace gpulayer::core

#endif  // GPULAYER_SERVER_CORE_PLACEMENT_H_
