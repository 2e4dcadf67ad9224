#include "model/resources.h"

#include <algorithm>

#include "base/text.h"

namespace gpulayer {
namespace {

bool KindMatches(AcceleratorKind wanted, AcceleratorKind has) {
  switch (wanted) {
    case AcceleratorKind::kNone:
    case AcceleratorKind::kAnyGpu:
      return has == AcceleratorKind::kCuda || has == AcceleratorKind::kRocm ||
             has == AcceleratorKind::kMetal;
    default: return wanted == has;
  }
}

std::string Count(std::int64_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

}  // namespace

std::string_view ToString(AcceleratorKind kind) {
  switch (kind) {
    case AcceleratorKind::kNone: return "none";
    case AcceleratorKind::kCpu: return "cpu";
    case AcceleratorKind::kCuda: return "cuda";
    case AcceleratorKind::kRocm: return "rocm";
    case AcceleratorKind::kMetal: return "metal";
    case AcceleratorKind::kAnyGpu: return "gpu";
  }
  return "unknown";
}

std::string Describe(const Requirements& r) {
  std::vector<std::string> parts = {Count(r.slots, "slot")};
  if (r.memory_bytes > 0) parts.push_back(FormatSize(r.memory_bytes) + " of memory");
  if (r.devices > 0) {
    std::string text = r.devices == 1 ? "" : std::to_string(r.devices) + " x ";
    text += r.accelerator == AcceleratorKind::kNone ? "gpu" : std::string(ToString(r.accelerator));
    if (r.device_memory_bytes > 0) text += " with " + FormatSize(r.device_memory_bytes);
    if (!r.device_model.empty()) text += " (" + r.device_model + ")";
    parts.push_back(text);
  }
  for (const auto& [key, value] : r.labels) parts.push_back("label " + key + "=" + value);
  if (!r.zone.empty()) parts.push_back("zone " + r.zone);
  if (!r.region.empty()) parts.push_back("region " + r.region);
  if (!r.workers.empty()) parts.push_back("worker " + Join(r.workers, " or "));
  if (r.secrets) parts.emplace_back("secrets");
  return Join(parts, ", ");
}

bool DeviceFits(const Requirements& need, const Device& device) {
  return KindMatches(need.accelerator, device.kind) &&
         device.memory_bytes >= need.device_memory_bytes &&
         (need.device_model.empty() || GlobMatch(need.device_model, device.model));
}

std::vector<std::string> NeverReasons(const Requirements& need, const WorkerProfile& worker) {
  std::vector<std::string> reasons;
  if (need.slots > worker.resources.slots) reasons.push_back(Count(worker.resources.slots, "slot"));
  if (need.memory_bytes > worker.resources.memory_bytes) {
    reasons.push_back(FormatSize(worker.resources.memory_bytes) + " of memory");
  }
  if (need.devices > 0) {
    std::int64_t fit = 0;
    for (const Device& device : worker.resources.devices) fit += DeviceFits(need, device) ? 1 : 0;
    if (fit < need.devices) {
      std::string has;
      for (const Device& device : worker.resources.devices) {
        if (!has.empty()) has += ", ";
        has += std::string(ToString(device.kind)) + " " + FormatSize(device.memory_bytes);
      }
      reasons.push_back(has.empty() ? "no device" : has);
    }
  }
  for (const auto& [key, value] : need.labels) {
    const auto it = worker.labels.find(key);
    if (it == worker.labels.end()) {
      reasons.push_back("no label " + key);
    } else if (it->second != value) {
      reasons.push_back("label " + key + "=" + it->second);
    }
  }
  if (!need.zone.empty() && need.zone != worker.zone) {
    reasons.push_back(worker.zone.empty() ? "no zone" : "zone " + worker.zone);
  }
  if (!need.region.empty() && need.region != worker.region) {
    reasons.push_back(worker.region.empty() ? "no region" : "region " + worker.region);
  }
  if (!need.workers.empty() &&
      std::none_of(need.workers.begin(), need.workers.end(), [&](const std::string& w) {
        return w == worker.name || w == worker.id.value();
      })) {
    reasons.push_back("not the worker asked for");
  }
  if (need.secrets && !worker.takes_secrets) {
    reasons.push_back("its version " + worker.version + " knows no secrets, upgrade it");
  }
  return reasons;
}

}  // namespace gpulayer
