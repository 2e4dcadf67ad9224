#include "model/names.h"

#include "base/text.h"
#include "model/limits.h"

namespace gpulayer {

Status CheckName(const std::string& what, const std::string& text, std::size_t least) {
  if (text.size() >= least && text.size() <= limits::kMaxNameBytes && Printable(text) == text) {
    return OkStatus();
  }
  return InvalidArgument(what + ": " + std::to_string(least) + " to " +
                         std::to_string(limits::kMaxNameBytes) +
                         " bytes of printable UTF-8 are needed");
}

Status CheckNames(const WorkerProfile& profile) {
  GPULAYER_RETURN_IF_ERROR(CheckName("name", profile.name, 1));
  GPULAYER_RETURN_IF_ERROR(CheckName("zone", profile.zone, 0));
  GPULAYER_RETURN_IF_ERROR(CheckName("region", profile.region, 0));
  for (const auto& [key, value] : profile.labels) {
    GPULAYER_RETURN_IF_ERROR(CheckName("label", key, 1));
    GPULAYER_RETURN_IF_ERROR(CheckName("label " + key, value, 0));
  }
  return OkStatus();
}

}  // namespace gpulayer
