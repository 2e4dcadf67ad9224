// Files: the few operations that several rooms need, with errors that name the path.
// Paths are bytes: any file name that the kernel takes works.
#ifndef GPULAYER_BASE_FS_H_
#define GPULAYER_BASE_FS_H_

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace gpulayer {

// Owns one descriptor; closes it once.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { Reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset();

 private:
  int fd_ = -1;
};

std::string JoinPath(std::string_view dir, std::string_view name);  // one slash between
std::string BaseName(std::string_view path);
std::string DirName(std::string_view path);  // "." if there is no slash

Result<UniqueFd> OpenFile(const std::string& path, int flags,
                          mode_t mode = 0600);  // adds O_CLOEXEC
// Whole. RESOURCE_EXHAUSTED: more than `limit` bytes; a device without an end is no trap.
Result<std::string> ReadFile(const std::string& path,
                             std::size_t limit = std::numeric_limits<std::size_t>::max());
Result<std::string> ReadAll(int fd, std::size_t limit);  // the same of what is open
// All of it, or an error; EINTR and short writes are handled.
Status WriteAll(int fd, std::string_view data);
Result<std::size_t> ReadSome(int fd, char* buffer, std::size_t size);  // 0: end of file
// At most `size` bytes from where `from` stands to where `to` stands, inside the kernel if it can:
// a file system that shares blocks between files copies none. 0: end of file.
Result<std::size_t> CopySome(int from, int to, std::size_t size);

enum class Durability { kNone, kSync };
// Temporary name in the same folder, then rename; kSync: fsync of file and folder. Replaces what is
// there.
Status WriteFileAtomic(const std::string& path, std::string_view data, mode_t mode = 0600,
                       Durability durability = Durability::kSync);
// The same without a sync, by the name `path`.tmp: a file that is there by that name is used again,
// its blocks too. REQUIRES: one writer at a time.
Status ReplaceFile(const std::string& path, std::string_view data, mode_t mode = 0600);
Status SyncDir(const std::string& dir);

Status MakeDirs(const std::string& path, mode_t mode = 0700);  // like mkdir -p
// A folder that only this account can look into, made now or tightened (the log says so).
// PERMISSION_DENIED: it is no folder, or another account's.
Status MakePrivateDir(const std::string& path);
// Takes from a data directory what lets others write there (the log says so): they could put files
// of their own in the place of ours. Looking is left as it is: what is private lies in folders of
// its own. OK if there is none. For every program, before it reads a file there.
// PERMISSION_DENIED: others may write there, and it is another account's.
Status CloseToWriters(const std::string& dir);
// Removes a file, link or whole tree without following links; makes folders writable on the way. OK
// if there was nothing. What is mounted below it is left alone: then UNKNOWN with EBUSY's text, and
// what was not reached stays. Needs four descriptors, however deep the tree is.
Status RemoveTree(const std::string& path);
// A fresh folder (0700) named `<parent>/<prefix>XXXXXX`.
Result<std::string> MakeTempDir(const std::string& parent, const std::string& prefix);
std::string TempRoot();  // TMPDIR, else /tmp

bool PathExists(const std::string& path);  // of any type, a dangling link too
Result<std::vector<std::string>> ListDir(
    const std::string& path);  // names without . and .., sorted
Result<std::int64_t> FreeBytes(
    const std::string& path);  // free to an ordinary user on that file system

// Holds an exclusive lock on `path` (made if absent, close-on-exec) until destroyed.
// FAILED_PRECONDITION at once if another process holds it; DATA_LOSS: what is there is no file.
class FileLock {
 public:
  static Result<FileLock> Acquire(const std::string& path);
  // The same, with this process's id written into it. If another process holds it `*holder` is
  // what that one wrote, made fit to be shown.
  static Result<FileLock> AcquireWithPid(const std::string& path, std::string* holder);
  const UniqueFd& fd() const { return fd_; }

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace gpulayer

#endif  // GPULAYER_BASE_FS_H_
