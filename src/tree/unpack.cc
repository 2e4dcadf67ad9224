#include "tree/unpack.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <unordered_set>
#include <utility>

#include "base/random.h"
#include "base/text.h"
#include "tree/beneath.h"

#if defined(__linux__)
#include <linux/fs.h>
#endif

namespace gpulayer::tree {
namespace {

constexpr std::size_t kCopyBuffer = 256 * 1024;
// Below this one read and one write are quicker than asking for a clone or an in-kernel copy.
constexpr std::int64_t kSmall = 64 * 1024;

Status CopyByHand(int from, int to, std::int64_t done, std::int64_t size) {
  std::string buffer(
      static_cast<std::size_t>(std::clamp<std::int64_t>(size - done, 1, kCopyBuffer)), '\0');
  while (done < size) {
    const ssize_t n = pread(from, buffer.data(), buffer.size(), done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus("read", errno);
    if (n == 0) return DataLoss("its content ends after " + std::to_string(done) + " bytes");
    GPULAYER_RETURN_IF_ERROR(WriteAll(to, {buffer.data(), static_cast<std::size_t>(n)}));
    done += n;
  }
  return OkStatus();
}

class Unpacker {
 public:
  Unpacker(int root, const BlobOpener& open_blob, const UnpackOptions& options)
      : root_(root), open_blob_(open_blob), options_(options) {}

  Status Run(const Tree& tree) {
    const std::unordered_set<std::string> skip(options_.skip.begin(), options_.skip.end());
    for (const TreeEntry& entry : tree.entries) {
      if (skip.contains(entry.path)) continue;
      if (Status status = Write(entry); !status.ok()) {
        return status.Prefixed("write \"" + Printable(entry.path) + "\"");
      }
    }
    // Modes of folders last, and inner ones first: one that may not be written into gets its
    // content before.
    for (auto entry = tree.entries.rbegin(); entry != tree.entries.rend(); ++entry) {
      if (entry->type != EntryType::kFolder || entry->mode == 0755) continue;
      const UniqueFd folder = OpenBeneath(root_, entry->path, O_RDONLY | O_DIRECTORY);
      if (!folder.valid() || fchmod(folder.get(), entry->mode) != 0) {
        return ErrnoStatus("set the mode of \"" + Printable(entry->path) + "\"", errno);
      }
    }
    return OkStatus();
  }

 private:
  Status Write(const TreeEntry& entry) {
    const std::size_t slash = entry.path.rfind('/');
    const bool top = slash == std::string::npos;
    const std::string name = top ? entry.path : entry.path.substr(slash + 1);
    GPULAYER_RETURN_IF_ERROR(EnterFolder(top ? std::string() : entry.path.substr(0, slash)));
    switch (entry.type) {
      case EntryType::kFile: return WriteFile(entry, name);
      case EntryType::kLink: return WriteLink(entry, name);
      case EntryType::kFolder: return EnterFolder(entry.path);
    }
    return OkStatus();
  }

  int dir() const { return dir_.valid() ? dir_.get() : root_; }

  // Makes `path` and its parents where they are missing; dir() is it then. Entries of one folder
  // stand together, so this mostly finds the folder of the entry before.
  Status EnterFolder(const std::string& path) {
    if (path == dir_path_) return OkStatus();
    dir_path_.clear();
    dir_.Reset();
    if (path.empty()) return OkStatus();
    UniqueFd at;
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      const std::string part = path.substr(begin, end - begin);
      const int parent = at.valid() ? at.get() : root_;
      const bool made = mkdirat(parent, part.c_str(), 0755) == 0;
      if (!made && errno != EEXIST) return ErrnoStatus("make a folder", errno);
      constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
      UniqueFd next(openat(parent, part.c_str(), kFlags));
      if (!next.valid() && errno == EACCES && options_.replace && LetIn(parent, part)) {
        next = UniqueFd(openat(parent, part.c_str(), kFlags));
      }
      if (!next.valid()) {
        if (errno != ELOOP && errno != ENOTDIR) return ErrnoStatus("open its folder", errno);
        return FailedPrecondition(
            "\"" + Printable(path.substr(0, end)) +
            "\" is there and is no folder; nothing is written through a link. "
            "Remove it, or choose another place");
      }
      if (made && fchmod(next.get(), 0755) != 0) return ErrnoStatus("set a folder's mode", errno);
      if (!made && options_.replace) OpenUp(next.get());
      at = std::move(next);
      begin = end + 1;
    }
    dir_ = std::move(at);
    dir_path_ = path;
    return OkStatus();
  }

  // An earlier unpacking may have shut it to its owner.
  static bool LetIn(int parent, const std::string& name) {
    struct stat info = {};
    return fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
           fchmodat(parent, name.c_str(), (info.st_mode & 07777) | 0700, 0) == 0;
  }

  // A folder that an earlier unpacking made read-only takes files again; its entry sets the mode at
  // the end.
  static void OpenUp(int folder) {
    struct stat info = {};
    if (fstat(folder, &info) != 0 || info.st_uid != geteuid()) return;
    if ((info.st_mode & 0300) != 0300) fchmod(folder, (info.st_mode & 07777) | 0700);
  }

  std::string NameToWrite(const std::string& name) const {
    return options_.replace ? ".gpulayer-" + RandomHex(8) : name;
  }

  Status PutInPlace(const std::string& written, const std::string& name) const {
    if (written == name || renameat(dir(), written.c_str(), dir(), name.c_str()) == 0) {
      return OkStatus();
    }
    const int error = errno;
    unlinkat(dir(), written.c_str(), 0);
    if (error == EISDIR) {
      return FailedPrecondition(
          "a folder of that name is there. Remove it, or choose another place");
    }
    return ErrnoStatus("rename", error);
  }

  Status WriteFile(const TreeEntry& entry, const std::string& name) {
    UniqueFd from;
    if (entry.size > 0) {
      GPULAYER_ASSIGN_OR_RETURN(from, open_blob_(entry.hash));
      struct stat info = {};
      if (fstat(from.get(), &info) != 0) return ErrnoStatus("stat its content", errno);
      if (info.st_size != entry.size) {
        return DataLoss("its content has " + std::to_string(info.st_size) + " bytes, expected " +
                        std::to_string(entry.size));
      }
    }
    const std::string written = NameToWrite(name);
    const UniqueFd to(Adopt(from, written) ? std::move(from) : Create(written));
    if (!to.valid()) return ErrnoStatus("create it", errno);
    Status status = from.valid() ? CopyContent(from.get(), to.get(), entry.size) : OkStatus();
    if (status.ok() && fchmod(to.get(), entry.mode) != 0)
      status = ErrnoStatus("set its mode", errno);
    if (status.ok() && options_.mtime_ns != 0) {
      timespec times[2];
      times[0].tv_sec = times[1].tv_sec = options_.mtime_ns / 1'000'000'000;
      times[0].tv_nsec = times[1].tv_nsec = options_.mtime_ns % 1'000'000'000;
      if (futimens(to.get(), times) != 0) status = ErrnoStatus("set its time", errno);
    }
    if (!status.ok()) {
      unlinkat(dir(), written.c_str(), 0);
      return status;
    }
    return PutInPlace(written, name);
  }

  UniqueFd Create(const std::string& name) const {
    return UniqueFd(
        openat(dir(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  }

  // True if the unnamed file `from` is now the file `name`. Where that cannot be (another file
  // system, no /proc), it is copied.
  bool Adopt(const UniqueFd& from, const std::string& name) const {
    struct stat info = {};
    if (!from.valid() || fstat(from.get(), &info) != 0 || info.st_nlink != 0) return false;
    const std::string path = "/proc/self/fd/" + std::to_string(from.get());
    return linkat(AT_FDCWD, path.c_str(), dir(), name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }

  Status WriteLink(const TreeEntry& entry, const std::string& name) {
    const std::string written = NameToWrite(name);
    if (symlinkat(entry.link_target.c_str(), dir(), written.c_str()) != 0) {
      return ErrnoStatus("create it", errno);
    }
    return PutInPlace(written, name);
  }

  const int root_;
  const BlobOpener& open_blob_;
  const UnpackOptions& options_;
  UniqueFd dir_;  // invalid: the root
  std::string dir_path_;
};

}  // namespace

Status CopyContent(int from, int to, std::int64_t size) {
  if (size <= kSmall) return CopyByHand(from, to, 0, size);
#if defined(FICLONE)
  if (ioctl(to, FICLONE, from) == 0) return OkStatus();
#endif
  std::int64_t done = 0;
#if defined(__linux__)
  while (done < size) {
    off64_t offset = done;
    const ssize_t n =
        copy_file_range(from, &offset, to, nullptr, static_cast<std::size_t>(size - done), 0);
    if (n > 0) {
      done += n;
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      break;  // another file system, or one that lies about its size: by hand
    }
  }
#endif
  return CopyByHand(from, to, done, size);
}

Status Unpack(const Tree& tree, const std::string& dir, const BlobOpener& open_blob,
              const UnpackOptions& options) {
  GPULAYER_RETURN_IF_ERROR(CheckTree(tree));
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd root, OpenFile(dir, O_RDONLY | O_DIRECTORY));
  return Unpacker(root.get(), open_blob, options).Run(tree);
}

}  // namespace gpulayer::tree
