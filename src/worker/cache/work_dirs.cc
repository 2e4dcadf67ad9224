#include "worker/cache/work_dirs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/fs.h>
#endif

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/spare_folders.h"
#include "base/text.h"
#include "model/limits.h"
#include "tree/unpack.h"

namespace gpulayer::worker {
namespace {

constexpr const char* kLayoutFile = "layout";  // written last: it says that the folder is complete
constexpr const char* kIncomplete = "-";
constexpr const char* kStdin = "stdin";
constexpr const char* kTrash = ".trash";
constexpr const char* kSpare = ".spare";
constexpr std::size_t kSpares = 64;  // as many as a machine with many slots has under way
// A folder that once held many names stays large, and slow to list, when it is empty again.
constexpr std::int64_t kLargeFolder = 16 << 10;
// Laid-out files are dated this far back, so that any later write shows in their time.
constexpr std::int64_t kBackdateNs = 2'000'000'000;

Status CheckName(const AttemptId& attempt) {
  const std::string& name = attempt.value();
  if (!name.empty() && name[0] != '.' && name.size() <= 200 &&
      name.find('/') == std::string::npos && name.find('\0') == std::string::npos) {
    return OkStatus();
  }
  return InvalidArgument("use work folder of attempt \"" + Printable(name) + "\": bad attempt id");
}

std::int64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Result<std::int64_t> ParseNumber(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return DataLoss("not a number");
  return value;
}

bool HasAttributes(int fd) {
#if defined(__APPLE__)
  return flistxattr(fd, nullptr, 0, 0) != 0;
#else
  return flistxattr(fd, nullptr, 0) > 0;
#endif
}

// What chattr sets, of a file system that has it: "synchronous" would slow down whoever comes next.
unsigned FlagsOf(int fd) {
#if defined(__linux__)
  constexpr unsigned kSettable =
      (FS_FL_USER_MODIFIABLE | FS_NOCOW_FL | FS_DAX_FL | FS_PROJINHERIT_FL | FS_CASEFOLD_FL) &
      ~unsigned{FS_EXTENT_FL};
  int flags = 0;
  return ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 ? static_cast<unsigned>(flags) & kSettable : 0;
#else
  struct stat st = {};
  return fstat(fd, &st) == 0 ? st.st_flags : 0;
#endif
}

// As Create() makes it: the program may have put anything in its place, or changed what it is.
bool IsPlainFolder(const std::string& path, mode_t mode, unsigned flags) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st = {};
  return fd.valid() && fstat(fd.get(), &st) == 0 && (st.st_mode & 07777) == mode &&
         st.st_uid == geteuid() && st.st_size <= kLargeFolder && !HasAttributes(fd.get()) &&
         FlagsOf(fd.get()) == flags;
}

// As WriteLayout() makes it; the program can reach it and put anything in its place.
bool IsOwnLayout(const struct stat& st) {
  constexpr std::int64_t kMostBytes = 64;
  return S_ISREG(st.st_mode) && st.st_nlink == 1 && (st.st_mode & 07777) == 0600 &&
         st.st_uid == geteuid() && st.st_size <= kMostBytes;
}

#if defined(__linux__)
// "\040" and the like, as mountinfo writes what would end a field.
std::string Unescaped(const std::string& field) {
  std::string out;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] != '\\' || i + 3 >= field.size()) {
      out += field[i];
      continue;
    }
    out += static_cast<char>(std::strtol(field.substr(i + 1, 3).c_str(), nullptr, 8));
    i += 3;
  }
  return out;
}

// Takes away what a program mounted at `path` or below and left there. How many mounts.
int DetachMounts(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  if (!real) return 0;
  const std::string dir = real.get();
  const Result<std::string> table = ReadFile("/proc/self/mountinfo");
  if (!table.ok()) return 0;
  std::vector<std::string> places;
  for (const std::string& line : Split(*table, '\n')) {
    const std::vector<std::string> fields = Split(line, ' ');
    if (fields.size() < 5) continue;
    std::string place = Unescaped(fields[4]);
    if (place == dir || place.starts_with(dir + "/")) places.push_back(std::move(place));
  }
  int detached = 0;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {  // the last one first
    if (umount2(place->c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) ++detached;
  }
  return detached;
}
#else
int DetachMounts(const std::string&) { return 0; }
#endif

// Of this account and closed to others, and so is the link to it, if it is one. In /tmp nobody else
// can then put anything in its place.
bool IsOwnPrivateDir(const std::string& path) {
  struct stat name = {};
  struct stat folder = {};
  return lstat(path.c_str(), &name) == 0 && name.st_uid == geteuid() &&
         stat(path.c_str(), &folder) == 0 && S_ISDIR(folder.st_mode) &&
         folder.st_uid == geteuid() && (folder.st_mode & 0077) == 0;
}

class WorkDirsImpl final : public WorkDirs {
 public:
  WorkDirsImpl(const std::string& dir, std::string kept_dir)
      : root_(JoinPath(dir, "v1")), trash_(JoinPath(root_, kTrash)), kept_(std::move(kept_dir)) {}

  Status Start() {
    GPULAYER_RETURN_IF_ERROR(MakeDirs(trash_));
    const UniqueFd fd(open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.valid()) flags_ = FlagsOf(fd.get());  // folders in it are made with them
    GPULAYER_ASSIGN_OR_RETURN(spares_, SpareFolders::Open(JoinPath(root_, kSpare), kSpares));
    remover_ = std::thread([this] { RemoveSetAside(); });
    return OkStatus();
  }

  ~WorkDirsImpl() override {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    wake_.NotifyAll();
    if (remover_.joinable()) remover_.join();
  }

  Result<WorkDir> Create(const AttemptId& attempt, const Tree* source, BlobCache& cache) override {
    GPULAYER_RETURN_IF_ERROR(CheckName(attempt));
    WorkDir dir = Paths(attempt);
    // What an interrupted Create of the same attempt left.
    GPULAYER_RETURN_IF_ERROR(Discard(attempt));
    if (!spares_->Take(dir.path)) GPULAYER_RETURN_IF_ERROR(Make(dir));
    dir.stamp.mtime_ns = NowNs() - kBackdateNs;
    if (source != nullptr) {
      // The folder may have served before.
      GPULAYER_RETURN_IF_ERROR(WriteLayout(dir, kIncomplete).status());
      GPULAYER_RETURN_IF_ERROR(LayOut(*source, dir, cache).Prefixed("prepare the work folder"));
    }
    // The layout file's own change time, by the file system's clock, is the end of the layout.
    GPULAYER_ASSIGN_OR_RETURN(dir.stamp.latest_ctime_ns,
                              WriteLayout(dir, std::to_string(dir.stamp.mtime_ns) + "\n"));
    return dir;
  }

  Result<WorkDir> Adopt(const AttemptId& attempt) override {
    GPULAYER_RETURN_IF_ERROR(CheckName(attempt));
    WorkDir dir = Paths(attempt);
    struct stat folder = {};
    if (lstat(dir.path.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode)) {
      return NotFound("adopt work folder " + dir.path + ": it is not there");
    }
    OpenUp(dir.path);
    const std::string file = JoinPath(dir.path, kLayoutFile);
    const UniqueFd fd(open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info = {};
    if (!fd.valid() && errno == ENOENT && !PathExists(dir.work)) {
      return NotFound("adopt work folder " + dir.path + ": it is not there or not complete");
    }
    // The program can reach it. Whatever it put there, its outputs are those that a comparison by
    // content finds: no stamp.
    if (!fd.valid() || fstat(fd.get(), &info) != 0 || !IsOwnLayout(info)) return dir;
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t size, ReadSome(fd.get(), text.data(), text.size()));
    text.resize(size);
    if (text.starts_with(kIncomplete)) {
      return NotFound("adopt work folder " + dir.path + ": it is not complete");
    }
    const Result<std::int64_t> mtime = ParseNumber(Split(text, '\n')[0]);
    if (mtime.ok()) dir.stamp = {*mtime, ChangeTime(info)};
    return dir;
  }

  Result<std::vector<AttemptId>> List() override {
    GPULAYER_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(root_));
    std::vector<AttemptId> out;
    for (const std::string& name : names) {
      if (name[0] != '.') out.push_back(AttemptId(name));
    }
    return out;
  }

  Status Discard(const AttemptId& attempt) override {
    GPULAYER_RETURN_IF_ERROR(CheckName(attempt));
    const std::string from = JoinPath(root_, attempt.value());
    // What a short job leaves is emptied here and now, which takes less than to have it done.
    if (Empty(from, Few::kOnly) && spares_->Give(from)) return OkStatus();
    OpenUp(from);
    const std::string to = JoinPath(trash_, RandomHex(8));
    int failed = rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
    if (failed == EBUSY && DetachMounts(from) > 0) {  // it is a mount point
      failed = rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
    }
    if (failed != 0) {
      if (failed == ENOENT) return OkStatus();
      return ErrnoStatus("set work folder " + from + " aside", failed);
    }
    {
      MutexLock lock(mutex_);
      work_ = true;
    }
    wake_.NotifyAll();
    return OkStatus();
  }

  Result<std::string> PlaceToKeep(const AttemptId& attempt) override {
    GPULAYER_RETURN_IF_ERROR(CheckName(attempt));
    GPULAYER_RETURN_IF_ERROR(MakePrivateDir(kept_));
    return JoinPath(kept_, attempt.value());
  }

  Status Keep(const AttemptId& attempt) override {
    GPULAYER_ASSIGN_OR_RETURN(const std::string to, PlaceToKeep(attempt));
    const std::string from = JoinPath(root_, attempt.value());
    struct stat st = {};
    // A link that its program put in its place shows nothing that is its.
    if (lstat(from.c_str(), &st) == 0 && !S_ISDIR(st.st_mode)) return Discard(attempt);
    OpenUp(from);
    // Or whoever looks at it and deletes it deletes what is mounted there.
    DetachMounts(from);
    if (rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus("keep work folder " + from, errno);
    }
    // Its time begins now.
    (void)utimensat(AT_FDCWD, to.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    {
      MutexLock lock(mutex_);
      work_ = true;
    }
    wake_.NotifyAll();
    return OkStatus();
  }

 private:
  struct Kept {
    std::int64_t since_ns = 0;
    std::string path;
  };

  // Removes those over the bound.
  void PruneKept() {
    if (!IsOwnPrivateDir(kept_)) return;
    const Result<std::vector<std::string>> names = ListDir(kept_);
    if (!names.ok()) return;  // nothing was ever kept
    std::vector<Kept> kept;
    for (const std::string& name : *names) {
      const std::string path = JoinPath(kept_, name);
      struct stat st = {};
      if (lstat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) continue;
      kept.push_back({ModifyTime(st), path});
    }
    std::sort(kept.begin(), kept.end(),
              [](const Kept& a, const Kept& b) { return a.since_ns > b.since_ns; });
    const std::int64_t oldest = NowNs() - std::chrono::nanoseconds(limits::kKeptFor).count();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const bool old = kept[i].since_ns < oldest;
      if (i < limits::kKeptFolders && !old) continue;
      if (Closed()) return;
      if (Delete(kept[i].path)) {
        LogInfo("deleted " + kept[i].path +
                ", kept by --keep: " + (old ? "its time is over" : "there are newer ones"));
      }
    }
  }

  bool Closed() {
    MutexLock lock(mutex_);
    return closed_;
  }

  // On the remover's thread.
  bool Delete(const std::string& path) {
    Status status = RemoveTree(path);
    if (const int mounts = status.ok() ? 0 : DetachMounts(path); mounts > 0) {
      LogWarning("old work folder: took away " + std::to_string(mounts) +
                 " mounts that its job left there");
      status = RemoveTree(path);
    }
    // One that cannot be deleted must not keep the others, and is spoken of once.
    if (!status.ok() && undeleted_.insert(path).second) {
      LogWarning("delete old work folder: " + status.ToString());
    }
    return status.ok();
  }

  // What a program closed to its own account, which can then neither read nor move it.
  static void OpenUp(const std::string& dir) {
    struct stat st = {};
    if (lstat(dir.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0700) != 0700) {
      (void)fchmodat(AT_FDCWD, dir.c_str(), 0700, 0);
    }
  }

  WorkDir Paths(const AttemptId& attempt) const {
    WorkDir dir;
    dir.attempt = attempt;
    dir.path = JoinPath(root_, attempt.value());
    dir.work = JoinPath(dir.path, "work");
    dir.out = JoinPath(dir.path, "out");
    dir.tmp = JoinPath(dir.path, "tmp");
    dir.input = JoinPath(dir.path, "input");
    return dir;
  }

  static Status Make(const WorkDir& dir) {
    for (const std::string& path : {dir.path, dir.work, dir.out, dir.tmp, dir.input}) {
      if (mkdir(path.c_str(), path == dir.path ? 0700 : 0755) != 0) {
        return ErrnoStatus("make work folder " + path, errno);
      }
    }
    return OkStatus();
  }

  enum class Few { kOnly, kOrMany };

  // Empties a folder that Make() made, so that it is as new. False: it is not what it was, or (kOnly)
  // there is more in it than a few files.
  bool Empty(const std::string& path, Few few) const {
    if (!IsPlainFolder(path, 0700, flags_)) return false;
    const Result<std::vector<std::string>> names = ListDir(path);
    if (!names.ok()) return false;
    int folders = 0;
    for (const std::string& name : *names) {
      const std::string inner = JoinPath(path, name);
      if (name == kLayoutFile) {  // Create() writes it anew
        struct stat st = {};
        if (lstat(inner.c_str(), &st) != 0 || !IsOwnLayout(st)) return false;
        continue;
      }
      if (name == kStdin) {
        if (unlink(inner.c_str()) != 0) return false;
        continue;
      }
      if (name != "work" && name != "out" && name != "tmp" && name != "input") return false;
      // Made anew: what outlived the job unseen, a container or another account's process, may hold
      // the old one, and is not to write into the next job's.
      if (rmdir(inner.c_str()) != 0) {  // mostly there is nothing in it
        if (errno != ENOTEMPTY && errno != EEXIST) return false;
        const bool gone = few == Few::kOnly ? RemoveFew(inner) : RemoveTree(inner).ok();
        if (!gone) return false;
      }
      if (mkdir(inner.c_str(), 0755) != 0) return false;
      ++folders;
    }
    return folders == 4;
  }

  // A folder with a few files in it. Never through a link that took its place.
  static bool RemoveFew(const std::string& path) {
    constexpr int kFew = 16;
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(fdopendir(fd), closedir);
    if (!dir) {
      close(fd);
      return false;
    }
    std::vector<std::string> names;
    while (const dirent* entry = readdir(dir.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      if (names.size() > kFew) return false;
    }
    for (const std::string& name : names) {
      if (unlinkat(fd, name.c_str(), 0) != 0) return false;
    }
    return rmdir(path.c_str()) == 0;
  }

  static Status LayOut(const Tree& source, const WorkDir& dir, BlobCache& cache) {
    tree::UnpackOptions options;
    options.mtime_ns = dir.stamp.mtime_ns;
    Hash last;  // whose content was being written when it failed
    const tree::BlobOpener open = [&](const Hash& hash) {
      last = hash;
      return cache.OpenBlob(hash);
    };
    Status status = tree::Unpack(source, dir.work, open, options);
    if (status.code() == StatusCode::kDataLoss && !last.empty()) cache.Drop(last);
    return status;
  }

  static std::int64_t ChangeTime(const struct stat& info) {
#if defined(__APPLE__)
    return std::int64_t{info.st_ctimespec.tv_sec} * 1'000'000'000 + info.st_ctimespec.tv_nsec;
#else
    return std::int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec;
#endif
  }

  static std::int64_t ModifyTime(const struct stat& info) {
#if defined(__APPLE__)
    return std::int64_t{info.st_mtimespec.tv_sec} * 1'000'000'000 + info.st_mtimespec.tv_nsec;
#else
    return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
#endif
  }

  // Returns the file's change time. Written in place: to make it anew would cost more than the rest.
  static Result<std::int64_t> WriteLayout(const WorkDir& dir, const std::string& text) {
    const std::string file = JoinPath(dir.path, kLayoutFile);
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd,
                              OpenFile(file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK));
    GPULAYER_RETURN_IF_ERROR(WriteAll(fd.get(), text).Prefixed("write " + file));
    struct stat info = {};
    if (fstat(fd.get(), &info) != 0) return ErrnoStatus("stat " + file, errno);
    return ChangeTime(info);
  }

  void RemoveSetAside() {
    for (;;) {
      PruneKept();
      const Result<std::vector<std::string>> names = ListDir(trash_);
      if (names.ok()) {
        for (const std::string& name : *names) {
          if (Closed()) return;
          const std::string path = JoinPath(trash_, name);
          if (!Empty(path, Few::kOrMany) || !spares_->Give(path)) Delete(path);
        }
      }
      MutexLock lock(mutex_);
      // Once an hour there may be a kept one whose time is over.
      if (!work_ && !closed_) wake_.WaitFor(mutex_, std::chrono::hours(1));
      if (closed_) return;
      work_ = false;
    }
  }

  const std::string root_, trash_, kept_;
  std::set<std::string> undeleted_;  // what the remover could not delete
  unsigned flags_ = 0;               // of root_
  std::unique_ptr<SpareFolders> spares_;
  Mutex mutex_;
  CondVar wake_;
  bool work_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool closed_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::thread remover_;
};

}  // namespace

Result<std::unique_ptr<WorkDirs>> WorkDirs::Open(const std::string& dir,
                                                 const std::string& kept_dir) {
  auto dirs = std::make_unique<WorkDirsImpl>(dir, kept_dir);
  if (Status status = dirs->Start(); !status.ok()) return status.Prefixed("open work folders");
  return std::unique_ptr<WorkDirs>(std::move(dirs));
}

std::vector<Hash> BlobsOf(const Tree& tree) {
  std::vector<Hash> out;
  std::unordered_set<Hash> seen;
  for (const TreeEntry& entry : tree.entries) {
    if (entry.type == EntryType::kFile && entry.size > 0 && seen.insert(entry.hash).second) {
      out.push_back(entry.hash);
    }
  }
  return out;
}

}  // namespace gpulayer::worker
