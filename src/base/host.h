// This machine and this account, as every program of ours sees them.
#ifndef GPULAYER_BASE_HOST_H_
#define GPULAYER_BASE_HOST_H_

#include <string>

#include "base/status.h"

namespace gpulayer {

// `given`, else GPULAYER_DATA_DIR, else the account's own: /var/lib/gpulayer for root, otherwise
// $XDG_STATE_HOME/gpulayer or ~/.local/state/gpulayer. Absolute.
// INVALID_ARGUMENT: no printable UTF-8 (it is told to people and programs, who could not write it
// back). FAILED_PRECONDITION: no home folder is known.
Result<std::string> DataDir(const std::string& given);

std::string BootId();    // of this machine's current boot; empty where there is no such name
std::string HostName();  // never empty

}  // namespace gpulayer

#endif  // GPULAYER_BASE_HOST_H_
