#include "base/daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "base/account_limits.h"
#include "base/fs.h"
#include "base/log.h"

namespace gpulayer {

std::optional<pid_t> LockHolder(const std::string& path) {
  const Result<UniqueFd> fd = OpenFile(path, O_RDONLY | O_NONBLOCK);
  struct stat info{};
  if (!fd.ok() || fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      flock(fd->get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
    return std::nullopt;
  }
  const Result<std::string> text = ReadAll(fd->get(), 32);
  const long pid = text.ok() ? std::strtol(text->c_str(), nullptr, 10) : 0;
  if (pid <= 0 || pid > std::numeric_limits<pid_t>::max()) return std::nullopt;
  return static_cast<pid_t>(pid);
}

bool IsDataDir(int dir_fd) {
  const auto has = [dir_fd](const char* name) {
    struct stat st{};
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
  };
  return (has("server/lock") && has("server/server.db")) ||
         (has("worker/worker.lock") && has("worker/worker.json"));
}

namespace {
std::atomic<std::uint64_t> started_file_limit{0};  // 0: not raised
}  // namespace

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  started_file_limit = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // refused: it goes on with what it has
}

void LeaveNoCore() {
  rlimit limit{};
  if (getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = 0;
  setrlimit(RLIMIT_CORE, &limit);  // to less is never refused
}

std::uint64_t StartedFileLimit() {
  if (const std::uint64_t started = started_file_limit; started != 0) return started;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

namespace {

const char* ended_program = "";

// Without an allocation before the line is out: there may be no memory.
[[noreturn]] void Say(const char* kind, const char* what, bool lacking) {
  const char* stop = lacking ? ". " : "";
  const char* hint = lacking ? kRaiseLimits : "";
  std::fprintf(stderr, "%s: %s%s%s%s\n", ended_program, kind, what, stop, hint);
  try {
    if (LogsToFile()) LogError(std::string("ends: ") + kind + what + stop + hint);
  } catch (...) {  // no memory for the line: it stands on standard error
  }
  if (!lacking) std::abort();
  _exit(1);
}

[[noreturn]] void SayAndEnd() {
  static std::atomic<bool> taken{false};
  static thread_local bool ours = false;
  if (std::exchange(ours, true)) std::abort();  // what says it failed itself
  while (taken.exchange(true)) pause();         // another thread says its line and ends us all
  alarm(5);  // the log's lock may be held by the very thread that throws
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    Say("", error.what(), error.code() == std::errc::resource_unavailable_try_again);
  } catch (const std::bad_alloc&) {
    Say("", "no memory", true);
  } catch (const std::exception& error) {
    Say("uncaught exception: ", error.what(), false);
  } catch (...) {
    Say("uncaught exception", " of an unknown type", false);
  }
  Say("", "terminated without an exception", false);
}

}  // namespace

void SayWhatEndsUs(const char* program) {
  ended_program = program;
  std::set_terminate(SayAndEnd);
}

void LeaveStarter(const std::string& fd) {
  const long number = std::strtol(fd.c_str(), nullptr, 10);
  if (number > STDERR_FILENO && number < 1024) close(static_cast<int>(number));
}

}  // namespace gpulayer
