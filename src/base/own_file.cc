#include "base/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/fs.h"

namespace gpulayer {

Status CheckRegularFile(int fd, const std::string& path) {
  struct stat st{};
  if (fstat(fd, &st) != 0) return ErrnoStatus("look at " + path, errno);
  if (S_ISREG(st.st_mode)) return OkStatus();
  return DataLoss(path + ": " + SpecialKind(st.st_mode) +
                  " has the place of a file. Move it away.");
}

std::string SpecialKind(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Result<std::string> ReadOwnFile(const std::string& path, std::size_t limit) {
  Result<UniqueFd> fd = OpenFile(path, O_RDONLY | O_NONBLOCK);
  struct stat st{};
  if (!fd.ok() && stat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode)) {
    return DataLoss(path + ": a socket has the place of a file. Move it away.");
  }
  if (!fd.ok()) return fd.status();
  GPULAYER_RETURN_IF_ERROR(CheckRegularFile(fd->get(), path));
  Result<std::string> data = ReadAll(fd->get(), limit);
  if (data.status().code() == StatusCode::kResourceExhausted) {
    return ResourceExhausted(path + ": " + data.status().message() + ". Move it away.");
  }
  return data.ok() ? data : data.status().Prefixed(path);
}

}  // namespace gpulayer
