#include "base/daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include "base/fs.h"

namespace gpulayer {

std::optional<pid_t> LockHolder(const std::string& path) {
  const Result<UniqueFd> fd = OpenFile(path, O_RDONLY);
  if (!fd.ok() || flock(fd->get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
    return std::nullopt;
  }
  const Result<std::string> text = ReadAll(fd->get(), 32);
  const long pid = text.ok() ? std::strtol(text->c_str(), nullptr, 10) : 0;
  if (pid <= 0 || pid > std::numeric_limits<pid_t>::max()) return std::nullopt;
  return static_cast<pid_t>(pid);
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

std::uint64_t StartedFileLimit() {
  if (const std::uint64_t started = started_file_limit; started != 0) return started;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

void LeaveStarter(const std::string& fd) {
  const long number = std::strtol(fd.c_str(), nullptr, 10);
  if (number > STDERR_FILENO && number < 1024) close(static_cast<int>(number));
}

}  // namespace gpulayer
