// A folder in which a process of this account on this machine hands files over to another one, which
// said its path and the name of a file that is in it.
#ifndef GPULAYER_BASE_DROP_FOLDER_H_
#define GPULAYER_BASE_DROP_FOLDER_H_

#include <string>

#include "base/fs.h"
#include "base/status.h"

namespace gpulayer {

// FAILED_PRECONDITION: it is not that folder, or not this account's alone; others may have said the
// path of one on another machine.
Result<UniqueFd> OpenDropFolder(const std::string& dir, const std::string& proof);

// Gives the open file `fd` the name `name` in the folder `dir`: that very file, whatever its own
// name means by now, if it has one.
Status LinkInto(int fd, int dir, const std::string& name);

}  // namespace gpulayer

#endif  // GPULAYER_BASE_DROP_FOLDER_H_
