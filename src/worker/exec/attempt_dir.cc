#include "worker/exec/attempt_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/fs.h"
#include "base/own_file.h"
#include "base/text.h"

namespace gpulayer {
namespace {

// As many as a machine with many slots has under way; each holds half a dozen small files.
constexpr std::size_t kSpares = 64;
constexpr const char* kSpareFolder = ".spare";  // no attempt's id begins with a dot
constexpr std::size_t kMostFiles = 16;
constexpr std::int64_t kLargeFile = 16 << 10;  // better given back to the disk

bool HasNul(std::string_view s) { return s.find('\0') != std::string_view::npos; }

std::string ErrorText(std::int32_t error) { return std::strerror(error); }

std::string SignalText(std::int32_t signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

Cause StartFailure(const AttemptStatus& status) {
  const std::string why = ErrorText(status.error);
  switch (status.failed_step) {
    case StartStep::kExec:
      if (status.exit_code == 127) return {CauseKind::kNotFound, "program not found: " + why};
      if (status.exit_code == 126) {
        return {CauseKind::kNotExecutable, "program cannot be executed: " + why};
      }
      return {CauseKind::kSpawnFailed, "cannot start: " + why};
    case StartStep::kCwd: return {CauseKind::kSpawnFailed, "cannot enter the work folder: " + why};
    case StartStep::kStdin: return {CauseKind::kSpawnFailed, "cannot open the input: " + why};
    case StartStep::kSpec: return {CauseKind::kSpawnFailed, "attempt folder damaged: " + why};
    case StartStep::kMonitor:
      return {CauseKind::kWorkerLost, "the process that kept this attempt was killed"};
    case StartStep::kNever: return {CauseKind::kWorkerLost, "the worker ended before the start"};
    case StartStep::kSpawn:
    case StartStep::kNone: break;
  }
  return {CauseKind::kSpawnFailed, "cannot start: " + why};
}

// As a shell tells it, too, of what it ran.
bool EndedByKill(const AttemptStatus& status) {
  return status.signal == SIGKILL || status.exit_code == 128 + SIGKILL;
}

// Writes zeros over a file, in the blocks that it has.
bool Blank(const std::string& path, std::int64_t size) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  const std::string zeros(static_cast<std::size_t>(size), '\0');
  return fd.valid() && WriteAll(fd.get(), zeros).ok();
}

// Takes the names of an attempt's files from them, and its output and the values of its environment
// out of them. They keep their blocks: to give one back and to ask for it again is dear. False: there
// is something that is no such file. In the order of the names: "assignment", without which a
// restarted worker knows no attempt, goes first, and "status", without which it might seem to run,
// last.
bool MakeSpare(const std::string& dir) {
  const Result<std::vector<std::string>> names = ListDir(dir);
  if (!names.ok() || names->size() > kMostFiles) return false;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(dir, name);
    struct stat st{};
    if (lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
        (st.st_mode & 07777) != 0600 || st.st_size > kLargeFile) {
      return false;
    }
    const bool tells_nothing = name == kStatusFile || name == kStartedFile;
    if (std::string_view(name).ends_with(kFreeSuffix)) continue;
    if (!tells_nothing && st.st_size > 0 && !Blank(path, st.st_size)) return false;
    if (rename(path.c_str(), (path + kFreeSuffix).c_str()) != 0) return false;
  }
  return true;
}

// Whether an attempt may begin in a spare. A keeper of an earlier attempt that stood still may have
// found its folder in place a moment before that was set aside: it then holds the lock of the file
// that it is about to call the log. Without its name it cannot any more, and for the next name it
// looks for its folder again.
bool MayServe(const std::string& dir) {
  const Result<std::vector<std::string>> names = ListDir(dir);
  if (!names.ok() || !std::all_of(names->begin(), names->end(), [](std::string_view name) {
        return name.ends_with(kFreeSuffix);
      })) {
    return false;
  }
  const std::string log = JoinPath(dir, kLogFile) + kFreeSuffix;
  const UniqueFd fd(open(log.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return errno == ENOENT;
  return flock(fd.get(), LOCK_EX | LOCK_NB) == 0 || unlink(log.c_str()) == 0;
}

}  // namespace

Result<AttemptStore> AttemptStore::Open(const std::string& data_dir) {
  if (data_dir.empty() || data_dir.front() != '/') {
    return InvalidArgument("attempt folders: the data directory must be absolute: " + data_dir);
  }
  std::string root = JoinPath(data_dir, kAttemptsFolder);
  GPULAYER_RETURN_IF_ERROR(MakeDirs(root));
  GPULAYER_ASSIGN_OR_RETURN(std::unique_ptr<SpareFolders> spares,
                            SpareFolders::Open(JoinPath(root, kSpareFolder), kSpares));
  return AttemptStore(std::move(root), std::move(spares));
}

std::string AttemptStore::PathOf(const AttemptId& id) const { return JoinPath(root_, id.value()); }

Result<std::string> AttemptStore::Create(const AttemptId& id) const {
  if (!IsValidAttemptId(id.value())) {
    return InvalidArgument("attempt folder: bad id '" + Printable(id.value()) + "'");
  }
  std::string path = PathOf(id);
  if (!PathExists(path) && spares_->Take(path)) {
    if (MayServe(path)) return path;
    GPULAYER_RETURN_IF_ERROR(RemoveTree(path));
  }
  if (mkdir(path.c_str(), 0700) != 0) return ErrnoStatus("make attempt folder " + path, errno);
  return path;
}

Status AttemptStore::WriteSpec(const AttemptId& id, const AttemptSpec& spec) const {
  const std::string what = "attempt " + id.value() + ": ";
  if (spec.argv.empty()) return InvalidArgument(what + "no command");
  if (spec.cwd.empty() || spec.cwd.front() != '/') {
    return InvalidArgument(what + "the work folder must be absolute");
  }
  if (spec.grace < Duration::zero() || (spec.time_limit && *spec.time_limit <= Duration::zero())) {
    return InvalidArgument(what + "time limit and grace must not be negative");
  }
  for (const auto* list : {&spec.argv, &spec.env}) {
    if (std::any_of(list->begin(), list->end(), HasNul)) {
      return InvalidArgument(what + "a NUL byte in an argument or in the environment");
    }
  }
  if (HasNul(spec.cwd) || HasNul(spec.stdin_path)) {
    return InvalidArgument(what + "a NUL byte in a path");
  }
  const std::string marker = std::string(kAttemptIdVariable) + "=" + id.value();
  if (std::find(spec.env.begin(), spec.env.end(), marker) == spec.env.end()) {
    return InvalidArgument(what + "its environment lacks " + marker);
  }
  const std::string bytes = EncodeSpec(spec);
  if (bytes.size() > kMaxAttemptSpecBytes) {
    return InvalidArgument(what + "command and environment are longer than " +
                           FormatSize(kMaxAttemptSpecBytes));
  }
  return ReplaceFile(JoinPath(PathOf(id), kSpecFile), bytes);
}

Result<AttemptSpec> AttemptStore::ReadSpec(const AttemptId& id) const {
  GPULAYER_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadOwnFile(JoinPath(PathOf(id), kSpecFile), kNoLimit));
  return DecodeSpec(bytes);
}

Result<AttemptStarted> AttemptStore::ReadStarted(const AttemptId& id) const {
  GPULAYER_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadOwnFile(JoinPath(PathOf(id), kStartedFile), kNoLimit));
  return DecodeStarted(bytes);
}

Result<AttemptStatus> AttemptStore::ReadStatus(const AttemptId& id) const {
  GPULAYER_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadOwnFile(JoinPath(PathOf(id), kStatusFile), kNoLimit));
  return DecodeStatus(bytes, id.value());
}

Result<std::vector<AttemptId>> AttemptStore::List() const {
  GPULAYER_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(root_));
  std::vector<AttemptId> ids;
  for (std::string& name : names) {
    if (IsValidAttemptId(name)) ids.emplace_back(std::move(name));
  }
  return ids;
}

Status AttemptStore::Remove(const AttemptId& id) const {
  const std::string path = PathOf(id);
  if (MakeSpare(path) && spares_->Give(path)) return OkStatus();
  return RemoveTree(path);
}

Outcome OutcomeOf(const AttemptStatus& status) {
  Outcome outcome;
  outcome.exit_code = status.exit_code;
  outcome.signal = status.signal;
  if (status.failed_step != StartStep::kNone) {
    outcome.cause = StartFailure(status);
    return outcome;
  }
  switch (status.order) {
    case StopOrder::kTimeLimit:
      outcome.cause = {CauseKind::kTimeLimit, "time limit reached"};
      break;
    case StopOrder::kStop: outcome.cause = {CauseKind::kCancelled, "stopped"}; break;
    case StopOrder::kShutdown: outcome.cause = {CauseKind::kWorkerLost, "the worker ended"}; break;
    case StopOrder::kNone:
      if (status.oom_kills > 0 && EndedByKill(status)) {
        outcome.cause = {
            CauseKind::kOutOfMemory,
            "out of memory: it reached the limit of --memory " + FormatSize(status.memory_limit)};
      } else if (status.oom_kills > 0 && status.exit_code != 0) {
        outcome.cause = {status.signal ? CauseKind::kSignal : CauseKind::kProgram,
                         "the kernel ended " + std::to_string(status.oom_kills) +
                             " of its processes at the limit of --memory " +
                             FormatSize(status.memory_limit)};
      } else if (status.signal) {
        outcome.cause = {CauseKind::kSignal, "killed by " + SignalText(*status.signal)};
      } else {
        outcome.cause = {CauseKind::kProgram, ""};
      }
      break;
  }
  if (status.killed && !outcome.cause.text.empty()) {
    outcome.cause.text += "; still alive after the grace, killed";
  }
  return outcome;
}

}  // namespace gpulayer
