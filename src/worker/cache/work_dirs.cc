#include "worker/cache/work_dirs.h"

#include <fcntl.h>
#include <sys/stat.h>
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
#include "base/text.h"
#include "tree/unpack.h"

namespace gpulayer::worker {
namespace {

constexpr const char* kLayoutFile = "layout";  // written last: it says that the folder is complete
constexpr const char* kTrash = ".trash";
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

class WorkDirsImpl final : public WorkDirs {
 public:
  explicit WorkDirsImpl(const std::string& dir)
      : root_(JoinPath(dir, "v1")), trash_(JoinPath(root_, kTrash)) {}

  Status Start() {
    GPULAYER_RETURN_IF_ERROR(MakeDirs(trash_));
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
    for (const std::string& path : {dir.path, dir.work, dir.out, dir.tmp, dir.input}) {
      if (mkdir(path.c_str(), path == dir.path ? 0700 : 0755) != 0) {
        return ErrnoStatus("make work folder " + path, errno);
      }
    }
    dir.stamp.mtime_ns = NowNs() - kBackdateNs;
    if (source != nullptr) {
      GPULAYER_RETURN_IF_ERROR(LayOut(*source, dir, cache).Prefixed("prepare the work folder"));
    }
    GPULAYER_RETURN_IF_ERROR(Complete(&dir).Prefixed("prepare the work folder"));
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

  // The layout file's own change time, by the file system's clock, is the end of the layout.
  static Status Complete(WorkDir* dir) {
    const std::string file = JoinPath(dir->path, kLayoutFile);
    GPULAYER_RETURN_IF_ERROR(
        WriteFileAtomic(file, std::to_string(dir->stamp.mtime_ns) + "\n", 0600, Durability::kNone));
    struct stat info = {};
    if (stat(file.c_str(), &info) != 0) return ErrnoStatus("stat " + file, errno);
    dir->stamp.latest_ctime_ns = ChangeTime(info);
    return OkStatus();
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
          // One that cannot be deleted must not keep the others.
          const Status status = RemoveTree(JoinPath(trash_, name));
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
