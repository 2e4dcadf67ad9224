#include "client/standard_input.h"

#include <fcntl.h>
#include <unistd.h>

namespace gpulayer::client {

Status CheckStandardInput() {
  const int flags = ::fcntl(STDIN_FILENO, F_GETFL);
  // Our own programs hold the place of a closed one with a file that is open for writing.
  if (flags >= 0 && (flags & O_ACCMODE) != O_WRONLY) return OkStatus();
  return FailedPrecondition("standard input is closed");
}

}  // namespace gpulayer::client
