// What a machine may be called by its owner: looked at before anybody is asked, and by the server.
#ifndef GPULAYER_MODEL_NAMES_H_
#define GPULAYER_MODEL_NAMES_H_

#include <cstddef>
#include <string>

#include "base/status.h"
#include "model/resources.h"

namespace gpulayer {

// Printable UTF-8 of `least` bytes up to limits::kMaxNameBytes. INVALID_ARGUMENT: `what` is not.
Status CheckName(const std::string& what, const std::string& text, std::size_t least);
// Name, zone, region and labels. A name and a label's key have a byte at least.
Status CheckNames(const WorkerProfile& profile);

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_NAMES_H_
