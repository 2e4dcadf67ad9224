#include "base/drop_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace gpulayer {

Result<UniqueFd> OpenDropFolder(const std::string& dir, const std::string& proof) {
  if (dir.empty()) return FailedPrecondition("hand over: the server is on another machine");
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat st = {};
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus("look at " + dir, errno);
  const bool ours = st.st_uid == geteuid() && (st.st_mode & 0077) == 0 &&
                    proof.find('/') == std::string::npos &&
                    fstatat(fd.get(), proof.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISREG(st.st_mode) && st.st_uid == geteuid();
  if (!ours) return FailedPrecondition("hand over: " + dir + " is not this server's");
  return fd;
}

Status LinkInto(int fd, int dir, const std::string& name) {
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  if (linkat(AT_FDCWD, self.c_str(), dir, name.c_str(), AT_SYMLINK_FOLLOW) == 0) return OkStatus();
  return ErrnoStatus("link " + name, errno);
}

}  // namespace gpulayer
