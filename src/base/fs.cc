#include "base/fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/openat2.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "base/log.h"
#include "base/own_file.h"
#include "base/text.h"

namespace gpulayer {
namespace {

#if defined(O_PATH)
constexpr int kOnlyToGoOn = O_PATH;  // needs no right to list the folder
#else
constexpr int kOnlyToGoOn = O_RDONLY;
#endif

#if defined(__linux__)
// Which mount a descriptor's file is of; empty where /proc does not say.
std::string MountOf(int fd) {
  const Result<std::string> info = ReadFile("/proc/self/fdinfo/" + std::to_string(fd));
  if (!info.ok()) return "";
  for (const std::string& line : Split(*info, '\n')) {
    if (line.starts_with("mnt_id:")) return line;
  }
  return "";
}
#else
std::string MountOf(int) { return ""; }
#endif

// Removes a folder's tree with one descriptor, however deep it is: the way back up is `..`, and it
// must lead to the folder that we came from.
class TreeRemover {
 public:
  explicit TreeRemover(std::string top) : top_(std::move(top)) {
    while (top_.size() > 1 && top_.back() == '/') top_.pop_back();
  }

  Status Run() {
    const UniqueFd above(open(DirName(top_).c_str(), kOnlyToGoOn | O_DIRECTORY | O_CLOEXEC));
    if (!above.valid()) return errno == ENOENT ? OkStatus() : Fail(top_);
    GPULAYER_RETURN_IF_ERROR(Take(above.get(), BaseName(top_)));
    while (!levels_.empty()) {
      if (levels_.back().names.empty()) {
        GPULAYER_RETURN_IF_ERROR(Leave());
        continue;
      }
      const std::string name = std::move(levels_.back().names.back());
      levels_.back().names.pop_back();
      GPULAYER_RETURN_IF_ERROR(Take(here_.get(), name));
    }
    return OkStatus();
  }

 private:
  struct Level {
    std::string name;
    dev_t device = 0;
    ino_t inode = 0;
    std::vector<std::string> names;  // still to be removed
  };

  // Removes it, or goes into it if it is a folder that has something in it.
  Status Take(int parent, const std::string& name) {
    if (unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return OkStatus();
    if (errno != EISDIR && errno != EPERM) return Fail(name);
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0) return OkStatus();
    return Enter(parent, name);
  }

  // Never into what is mounted there: that is somebody's data.
  static int OpenHere(int parent, const std::string& name) {
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
#if defined(__linux__)
    open_how how{};
    how.flags = kFlags;
    how.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
    const long fd = syscall(SYS_openat2, parent, name.c_str(), &how, sizeof(how));
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
#endif
    const int plain = openat(parent, name.c_str(), kFlags);
    struct stat above{};
    struct stat inside{};
    if (plain < 0) return plain;
    if (fstat(parent, &above) == 0 && fstat(plain, &inside) == 0 && above.st_dev == inside.st_dev &&
        MountOf(parent) == MountOf(plain)) {
      return plain;
    }
    close(plain);
    errno = EXDEV;
    return -1;
  }

  Status Fail(const std::string& name) const {
    const int error = errno;
    std::string path;
    for (const Level& level : levels_)
      path = path.empty() ? level.name : JoinPath(path, level.name);
    return ErrnoStatus("remove " + (path.empty() ? top_ : JoinPath(path, name)), error);
  }

  Status Enter(int parent, const std::string& name) {
    UniqueFd dir(OpenHere(parent, name));
    if (!dir.valid() && errno == EACCES && fchmodat(parent, name.c_str(), 0700, 0) == 0) {
      dir = UniqueFd(OpenHere(parent, name));
    }
    if (!dir.valid() && errno == EXDEV) errno = EBUSY;  // as of a folder that is a mount's place
    // A folder without write permission keeps its entries; it is ours, so it may be opened up.
    struct stat st{};
    if (!dir.valid() || fchmod(dir.get(), 0700) != 0 || fstat(dir.get(), &st) != 0)
      return Fail(name);
    Level level{levels_.empty() ? top_ : name, st.st_dev, st.st_ino, {}};
    const int copy = fcntl(dir.get(), F_DUPFD_CLOEXEC, 0);
    DIR* stream = copy >= 0 ? fdopendir(copy) : nullptr;
    if (stream == nullptr) {
      const Status failed = Fail(name);
      if (copy >= 0) close(copy);
      return failed;
    }
    while (const dirent* entry = readdir(stream)) {
      const std::string_view entry_name = entry->d_name;
      if (entry_name != "." && entry_name != "..") level.names.emplace_back(entry_name);
    }
    closedir(stream);
    here_ = std::move(dir);
    levels_.push_back(std::move(level));
    return OkStatus();
  }

  // Up from a folder that is empty now, and removes it.
  Status Leave() {
    const Level done = std::move(levels_.back());
    levels_.pop_back();
    if (levels_.empty()) {
      const bool removed = unlinkat(AT_FDCWD, top_.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
      return removed ? OkStatus() : Fail(top_);
    }
    UniqueFd up(openat(here_.get(), "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat st{};
    if (!up.valid() || fstat(up.get(), &st) != 0) return Fail(done.name);
    if (st.st_dev != levels_.back().device || st.st_ino != levels_.back().inode) {
      errno = ESTALE;  // moved away meanwhile: what lies above it is not ours to touch
      return Fail(done.name);
    }
    here_ = std::move(up);
    const bool removed =
        unlinkat(here_.get(), done.name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
    return removed ? OkStatus() : Fail(done.name);
  }

  std::string top_;
  std::vector<Level> levels_;  // from the top down to here_
  UniqueFd here_;
};

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::Reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

std::string JoinPath(std::string_view dir, std::string_view name) {
  std::string path(dir);
  if (!path.empty() && path.back() != '/') path += '/';
  return path += name;
}

std::string BaseName(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));  // npos + 1 == 0
}

std::string DirName(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<std::size_t>(slash, 1)));
}

Result<UniqueFd> OpenFile(const std::string& path, int flags, mode_t mode) {
  UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd.valid()) return ErrnoStatus("open " + path, errno);
  return fd;
}

Result<std::string> ReadFile(const std::string& path, std::size_t limit) {
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY));
  Result<std::string> data = ReadAll(fd.get(), limit);
  if (!data.ok()) return data.status().Prefixed(path);
  return data;
}

Result<std::string> ReadAll(int fd, std::size_t limit) {
  std::string data;
  struct stat st{};
  if (fstat(fd, &st) == 0 && st.st_size > 0)
    data.reserve(std::min(limit, static_cast<std::size_t>(st.st_size)));
  std::string buffer(64 * 1024, '\0');
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, ReadSome(fd, buffer.data(), buffer.size()));
    if (n == 0) return data;
    if (n > limit - data.size()) {
      return ResourceExhausted("over the limit of " + FormatSize(static_cast<std::int64_t>(limit)));
    }
    data.append(buffer, 0, n);
  }
}

Status WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus("write", errno);
    }
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return OkStatus();
}

Result<std::size_t> ReadSome(int fd, char* buffer, std::size_t size) {
  for (;;) {
    const ssize_t n = read(fd, buffer, size);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) return ErrnoStatus("read", errno);
  }
}

Result<std::size_t> CopySome(int from, int to, std::size_t size) {
#if defined(__linux__)
  for (;;) {
    const ssize_t n = copy_file_range(from, nullptr, to, nullptr, size, 0);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EINTR) continue;
    // Of two file systems, or of one that cannot: the bytes have to pass through here.
    if (errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
      return ErrnoStatus("copy", errno);
    break;
  }
#endif
  std::string buffer(std::min(size, std::size_t{1} << 20), '\0');
  GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, ReadSome(from, buffer.data(), buffer.size()));
  GPULAYER_RETURN_IF_ERROR(WriteAll(to, {buffer.data(), n}));
  return n;
}

Status WriteFileAtomic(const std::string& path, std::string_view data, mode_t mode,
                       Durability durability) {
  static std::atomic<unsigned> counter{0};
  const std::string temp =
      path + ".tmp" + std::to_string(getpid()) + "-" + std::to_string(counter.fetch_add(1));
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(temp, O_WRONLY | O_CREAT | O_TRUNC, mode));
  Status status = WriteAll(fd.get(), data);
  if (status.ok() && durability == Durability::kSync && fsync(fd.get()) != 0) {
    status = ErrnoStatus("fsync", errno);
  }
  fd.Reset();
  if (status.ok() && rename(temp.c_str(), path.c_str()) != 0) status = ErrnoStatus("rename", errno);
  if (!status.ok()) {
    unlink(temp.c_str());
    return status.Prefixed("write " + path);
  }
  return durability == Durability::kSync ? SyncDir(DirName(path)) : OkStatus();
}

Status ReplaceFile(const std::string& path, std::string_view data, mode_t mode) {
  const std::string temp = path + ".tmp";
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd,
                            OpenFile(temp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, mode));
  GPULAYER_RETURN_IF_ERROR(CheckRegularFile(fd.get(), temp));
  Status status = WriteAll(fd.get(), data);
  struct stat st{};
  if (status.ok() && fstat(fd.get(), &st) != 0) status = ErrnoStatus("stat", errno);
  const auto size = static_cast<off_t>(data.size());
  if (status.ok() && st.st_size > size && ftruncate(fd.get(), size) != 0) {
    status = ErrnoStatus("truncate", errno);
  }
  if (status.ok() && rename(temp.c_str(), path.c_str()) != 0) status = ErrnoStatus("rename", errno);
  return status.Prefixed("write " + path);
}

Status SyncDir(const std::string& dir) {
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(dir, O_RDONLY | O_DIRECTORY));
  if (fsync(fd.get()) != 0) return ErrnoStatus("fsync " + dir, errno);
  return OkStatus();
}

Status MakeDirs(const std::string& path, mode_t mode) {
  if (path.empty()) return InvalidArgument("make folder: empty path");
  if (mkdir(path.c_str(), mode) == 0) return OkStatus();
  if (errno == ENOENT) {
    std::string trimmed = path;
    while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
    const std::string parent = DirName(trimmed);
    if (parent == trimmed) return ErrnoStatus("make folder " + path, ENOENT);
    GPULAYER_RETURN_IF_ERROR(MakeDirs(parent, mode));
    if (mkdir(path.c_str(), mode) == 0) return OkStatus();
  }
  if (errno == EEXIST) {
    struct stat st{};
    if (stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return OkStatus();
    return ErrnoStatus("make folder " + path, ENOTDIR);
  }
  return ErrnoStatus("make folder " + path, errno);
}

Status MakePrivateDir(const std::string& path) {
  GPULAYER_RETURN_IF_ERROR(MakeDirs(path, 0700));
  struct stat st{};
  if (lstat(path.c_str(), &st) != 0) return ErrnoStatus("look at " + path, errno);
  const uid_t owner = st.st_uid;  // of a link: who put it there
  if (S_ISLNK(st.st_mode) && stat(path.c_str(), &st) != 0)
    return ErrnoStatus("look at " + path, errno);
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || owner != geteuid()) {
    return PermissionDenied(path + ": not a folder of this account");
  }
  if ((st.st_mode & 0777) == 0700) return OkStatus();
  if (chmod(path.c_str(), 0700) != 0) return ErrnoStatus("chmod " + path, errno);
  if ((st.st_mode & 0077) != 0) LogWarning(path + " was open to other accounts: closed to them");
  return OkStatus();
}

Status CloseToWriters(const std::string& dir) {
  struct stat st{};
  if (stat(dir.c_str(), &st) != 0) {
    return errno == ENOENT ? OkStatus() : ErrnoStatus("look at " + dir, errno);
  }
  if ((st.st_mode & 0022) == 0 || (st.st_mode & S_ISVTX) != 0) return OkStatus();
  if (st.st_uid != geteuid()) {
    return PermissionDenied(dir + ": other accounts may write there, and it is not this account's");
  }
  if (chmod(dir.c_str(), st.st_mode & 07755) != 0) return ErrnoStatus("chmod " + dir, errno);
  LogWarning("data directory " + dir + " could be written to by other accounts: closed to them");
  return OkStatus();
}

Status RemoveTree(const std::string& path) { return TreeRemover(path).Run(); }

Result<std::string> MakeTempDir(const std::string& parent, const std::string& prefix) {
  std::string path = JoinPath(parent, prefix + "XXXXXX");
  if (mkdtemp(path.data()) == nullptr) return ErrnoStatus("make folder " + path, errno);
  return path;
}

std::string TempRoot() {
  const char* dir = std::getenv("TMPDIR");
  return dir != nullptr && *dir != '\0' ? dir : "/tmp";
}

bool PathExists(const std::string& path) {
  struct stat st{};
  return lstat(path.c_str(), &st) == 0;
}

Result<std::vector<std::string>> ListDir(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(path.c_str()), closedir);
  if (!dir) return ErrnoStatus("list " + path, errno);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::int64_t> FreeBytes(const std::string& path) {
  struct statvfs st{};
  if (statvfs(path.c_str(), &st) != 0) return ErrnoStatus("statvfs " + path, errno);
  return static_cast<std::int64_t>(st.f_bavail) * static_cast<std::int64_t>(st.f_frsize);
}

Result<FileLock> FileLock::Acquire(const std::string& path) {
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDWR | O_CREAT | O_NONBLOCK, 0600));
  GPULAYER_RETURN_IF_ERROR(CheckRegularFile(fd.get(), path));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return FailedPrecondition("lock " + path + ": held by another process");
    return ErrnoStatus("lock " + path, errno);
  }
  return FileLock(std::move(fd));
}

Result<FileLock> FileLock::AcquireWithPid(const std::string& path, std::string* holder) {
  Result<FileLock> lock = Acquire(path);
  // LockHolder() of another process has it for a moment.
  const timespec pause{0, 5'000'000};
  for (int tries = 0; tries < 10 && lock.status().code() == StatusCode::kFailedPrecondition;
       ++tries) {
    nanosleep(&pause, nullptr);
    lock = Acquire(path);
  }
  if (!lock.ok()) {
    *holder = Printable(TrimmedEnd(ReadOwnFile(path).value_or("")));
    return lock;
  }
  if (ftruncate(lock->fd().get(), 0) != 0) return ErrnoStatus("write " + path, errno);
  GPULAYER_RETURN_IF_ERROR(
      WriteAll(lock->fd().get(), std::to_string(getpid()) + "\n").Prefixed(path));
  return lock;
}

}  // namespace gpulayer
