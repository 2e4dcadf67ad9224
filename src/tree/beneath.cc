#include "tree/beneath.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/own_file.h"

#if defined(__linux__)
#include <linux/openat2.h>
#include <sys/syscall.h>
#endif

namespace gpulayer::tree {
namespace {

// Part by part, for kernels without openat2.
UniqueFd OpenByParts(int root, const std::string& path, int flags) {
  UniqueFd held;
  int dir = root;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t slash = path.find('/', begin);
    const std::string part = path.substr(begin, slash - begin);
    if (slash == std::string::npos) return UniqueFd(openat(dir, part.c_str(), flags));
    UniqueFd next(openat(dir, part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid()) return next;
    held = std::move(next);
    dir = held.get();
    begin = slash + 1;
  }
}

}  // namespace

UniqueFd OpenBeneath(int root, const std::string& path, int flags) {
  // O_NONBLOCK: a FIFO that took a file's place must not stop us. It changes nothing for files.
  flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const std::string name = path.empty() ? "." : path;
#if defined(__linux__) && defined(SYS_openat2)
  struct open_how how = {};
  how.flags = static_cast<std::uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long fd = syscall(SYS_openat2, root, name.c_str(), &how, sizeof(how));
  // EPERM: seccomp filters of older container runtimes answer so.
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return UniqueFd(static_cast<int>(fd));
#endif
  return OpenByParts(root, name, flags);
}

Result<UniqueFd> OpenRegular(int root, const std::string& path) {
  UniqueFd fd = OpenBeneath(root, path, O_RDONLY);
  if (!fd.valid()) {
    switch (errno) {
      case EACCES:
      case EPERM: return PermissionDenied("not readable");
      case ENOENT:
      case ENOTDIR: return NotFound("it is gone");
      case ELOOP: return FailedPrecondition("it became a link");
      case ENXIO: return FailedPrecondition("a socket");
      default: return ErrnoStatus("open " + path, errno);
    }
  }
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus("stat " + path, errno);
  if (!S_ISREG(info.st_mode)) return FailedPrecondition("it is no file any more");
  return fd;
}

std::string ReadLink(int dir, const std::string& path) {
  char buffer[4097];
  const ssize_t n = readlinkat(dir, path.c_str(), buffer, sizeof(buffer));
  return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : std::string();
}

std::string ReadIgnoreFile(int root, const std::string& path) {
  // Nobody writes more rules by hand; a data file of that name must not fill the memory.
  constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
  Result<UniqueFd> fd = OpenRegular(root, path);
  if (!fd.ok()) return "";
  std::string content;
  char buffer[16384];
  while (content.size() < kMaxBytes) {
    Result<std::size_t> n = ReadSome(fd->get(), buffer, sizeof(buffer));
    if (!n.ok()) return "";
    if (*n == 0) break;
    content.append(buffer, *n);
  }
  return content;
}

FileStamp StampOf(const struct stat& info) {
  FileStamp stamp;
  stamp.size = info.st_size;
#if defined(__APPLE__)
  const timespec m = info.st_mtimespec, c = info.st_ctimespec;
#else
  const timespec m = info.st_mtim, c = info.st_ctim;
#endif
  stamp.mtime_ns = std::int64_t{m.tv_sec} * 1'000'000'000 + m.tv_nsec;
  stamp.ctime_ns = std::int64_t{c.tv_sec} * 1'000'000'000 + c.tv_nsec;
  stamp.inode = info.st_ino;
  stamp.device = static_cast<std::uint64_t>(info.st_dev);
  return stamp;
}

std::string UnfitKind(const struct stat& info) {
  const bool ships = S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode);
  return ships ? "" : SpecialKind(info.st_mode);
}

Result<std::vector<Name>> ListNames(int dir, const std::string& shown) {
  const int copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
  DIR* stream = copy >= 0 ? fdopendir(copy) : nullptr;
  if (stream == nullptr) {
    const int error = errno;
    if (copy >= 0) close(copy);
    return ErrnoStatus("list " + shown, error);
  }
  std::vector<Name> names;
  errno = 0;
  while (const dirent* entry = readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.push_back({std::string(name), entry->d_type});
    errno = 0;
  }
  const int error = errno;
  closedir(stream);
  if (error != 0) return ErrnoStatus("list " + shown, error);
  return names;
}

}  // namespace gpulayer::tree
