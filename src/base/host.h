// This machine and this account, as every program of ours sees them.
#ifndef GPULAYER_BASE_HOST_H_
#define GPULAYER_BASE_HOST_H_

#include <string>

#include "base/status.h"

namespace gpulayer {

// `given`, else GPULAYER_DATA_DIR, else the account's own: /var/lib/gpulayer for root, otherwise
// $XDG_STATE_HOME/gpulayer or ~/.local/state/gpulayer. Absolute, and without links as far as it is
// there: one directory has one name, however it was written.
// INVALID_ARGUMENT: no printable UTF-8 (it is told to people and programs, who could not write it
// back). FAILED_PRECONDITION: no home folder is known.
Result<std::string> DataDir(const std::string& given);

std::string Env(const char* name);  // empty if it is not set

Result<std::string> Absolute(const std::string& path);  // a relative one: from the current folder

// Our folder in an XDG base directory: $variable/gpulayer if that is set and absolute (another one
// does not count, says the specification), else ~/<below_home>/gpulayer. Empty: no home is known, or
// HOME is relative, and would mean another place in each folder.
std::string XdgDir(const char* variable, const char* below_home);

std::string BootId();    // of this machine's current boot; empty where there is no such name
std::string HostName();  // never empty

}  // namespace gpulayer

#endif  // GPULAYER_BASE_HOST_H_
