// Files of our own: records, keys, configurations. Whatever has taken the place of one, reading it
// does not wait, nor, within a limit, fill the memory.
#ifndef GPULAYER_BASE_OWN_FILE_H_
#define GPULAYER_BASE_OWN_FILE_H_

#include <sys/types.h>

#include <limits>
#include <string>

#include "base/status.h"

namespace gpulayer {

inline constexpr std::size_t kOwnFileLimit = std::size_t{4} << 20;
inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Whole. DATA_LOSS: it is no regular file; RESOURCE_EXHAUSTED: too large. Both say what to do.
Result<std::string> ReadOwnFile(const std::string& path, std::size_t limit = kOwnFileLimit);

// DATA_LOSS, of what is open by this name. REQUIRES: opened with O_NONBLOCK.
Status CheckRegularFile(int fd, const std::string& path);

// "a FIFO", "a socket", "a device", "a folder", "a link"; "" of a regular file.
std::string SpecialKind(mode_t mode);

}  // namespace gpulayer

#endif  // GPULAYER_BASE_OWN_FILE_H_
