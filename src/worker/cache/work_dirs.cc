#include "worker/cache/work_dirs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/spare_folders.h"
#include "base/text.h"
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

bool HasAttributes(const std::string& path) {
#if defined(__APPLE__)
  return listxattr(path.c_str(), nullptr, 0, XATTR_NOFOLLOW) != 0;
#else
  return llistxattr(path.c_str(), nullptr, 0) > 0;
#endif
}

// As Create() makes it: the program may have put anything in its place, or changed its mode.
bool IsPlainFolder(const std::string& path, mode_t mode) {
  struct stat st = {};
  return lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == mode &&
         st.st_uid == geteuid() && st.st_size <= kLargeFolder && !HasAttributes(path);
}

// As WriteLayout() makes it; the program can reach it and put anything in its place.
bool IsOwnLayout(const std::string& path) {
  constexpr std::int64_t kMostBytes = 64;
  struct stat st = {};
  return lstat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
         (st.st_mode & 07777) == 0600 && st.st_uid == geteuid() && st.st_size <= kMostBytes;
}

class WorkDirsImpl final : public WorkDirs {
 public:
  explicit WorkDirsImpl(const std::string& dir)
      : root_(JoinPath(dir, "v1")), trash_(JoinPath(root_, kTrash)) {}

  Status Start() {
    GPULAYER_RETURN_IF_ERROR(MakeDirs(trash_));
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
    OpenUp(dir.path);
    const std::string file = JoinPath(dir.path, kLayoutFile);
    const Result<std::string> text = ReadFile(file);
    if (text.status().code() == StatusCode::kNotFound) {
      return NotFound("adopt work folder " + dir.path + ": it is not there or not complete");
    }
    if (!text.ok()) return text.status().Prefixed("adopt work folder");
    if (text->starts_with(kIncomplete)) {
      return NotFound("adopt work folder " + dir.path + ": it is not complete");
    }
    struct stat info = {};
    if (stat(file.c_str(), &info) != 0) return ErrnoStatus("adopt work folder: " + file, errno);
    const std::vector<std::string> lines = Split(*text, '\n');
    Result<std::int64_t> mtime = ParseNumber(lines[0]);
    if (!mtime.ok()) return DataLoss("adopt work folder " + dir.path + ": " + file + " is damaged");
    dir.stamp = {*mtime, ChangeTime(info)};
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
    if (rename(from.c_str(), to.c_str()) != 0) {
      if (errno == ENOENT) return OkStatus();
      return ErrnoStatus("set work folder " + from + " aside", errno);
    }
    {
      MutexLock lock(mutex_);
      work_ = true;
    }
    wake_.NotifyAll();
    return OkStatus();
  }

 private:
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
  static bool Empty(const std::string& path, Few few) {
    if (!IsPlainFolder(path, 0700)) return false;
    const Result<std::vector<std::string>> names = ListDir(path);
    if (!names.ok()) return false;
    int folders = 0;
    for (const std::string& name : *names) {
      const std::string inner = JoinPath(path, name);
      if (name == kLayoutFile) {  // Create() writes it anew
        if (!IsOwnLayout(inner)) return false;
        continue;
      }
      if (name == kStdin) {
        if (unlink(inner.c_str()) != 0) return false;
        continue;
      }
      if (name != "work" && name != "out" && name != "tmp" && name != "input") return false;
      if (!IsPlainFolder(inner, 0755) || !EmptyInner(inner, few)) return false;
      // Made anew: what outlived the job unseen, a container or another account's process, may hold
      // the old one, and is not to write into the next job's.
      if (rmdir(inner.c_str()) != 0 || mkdir(inner.c_str(), 0755) != 0) return false;
      ++folders;
    }
    return folders == 4;
  }

  static bool EmptyInner(const std::string& path, Few few) {
    constexpr std::size_t kFew = 16;
    const Result<std::vector<std::string>> names = ListDir(path);
    if (!names.ok() || (few == Few::kOnly && names->size() > kFew)) return false;
    for (const std::string& name : *names) {
      const std::string entry = JoinPath(path, name);
      const bool gone = few == Few::kOnly ? unlink(entry.c_str()) == 0 : RemoveTree(entry).ok();
      if (!gone) return false;
    }
    return true;
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
      const Result<std::vector<std::string>> names = ListDir(trash_);
      if (names.ok()) {
        for (const std::string& name : *names) {
          {
            MutexLock lock(mutex_);
            if (closed_) return;
          }
          const std::string path = JoinPath(trash_, name);
          if (Empty(path, Few::kOrMany) && spares_->Give(path)) continue;
          // One that cannot be deleted must not keep the others.
          const Status status = RemoveTree(path);
          if (!status.ok()) LogWarning("delete old work folder: " + status.ToString());
        }
      }
      MutexLock lock(mutex_);
      while (!work_ && !closed_) wake_.WaitFor(mutex_, std::chrono::hours(1));
      if (closed_) return;
      work_ = false;
    }
  }

  const std::string root_, trash_;
  std::unique_ptr<SpareFolders> spares_;
  Mutex mutex_;
  CondVar wake_;
  bool work_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool closed_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::thread remover_;
};

}  // namespace

Result<std::unique_ptr<WorkDirs>> WorkDirs::Open(const std::string& dir) {
  auto dirs = std::make_unique<WorkDirsImpl>(dir);
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
