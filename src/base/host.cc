#include "base/host.h"

#include <unistd.h>

#include <cstdlib>

#include "base/fs.h"
#include "base/text.h"

namespace gpulayer {
namespace {

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> DefaultDataDir() {
  if (geteuid() == 0) return std::string("/var/lib/gpulayer");
  // An XDG variable counts only if it is absolute (so says its specification).
  if (const std::string state = Env("XDG_STATE_HOME"); !state.empty() && state[0] == '/') {
    return JoinPath(state, "gpulayer");
  }
  if (const std::string home = Env("HOME"); !home.empty()) {
    return JoinPath(home, ".local/state/gpulayer");
  }
  return FailedPrecondition("data directory: HOME is not set. Set it, or use --data-dir.");
}

}  // namespace

Result<std::string> DataDir(const std::string& given) {
  std::string dir = given.empty() ? Env("GPULAYER_DATA_DIR") : given;
  if (dir.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(dir, DefaultDataDir());
  }
  if (Printable(dir) != dir) {
    return InvalidArgument("data directory " + Printable(dir) +
                           ": its name is not printable UTF-8. Choose another with --data-dir.");
  }
  if (dir.front() == '/') return dir;
  char here[4096];
  if (getcwd(here, sizeof here) == nullptr) return ErrnoStatus("current directory", errno);
  return JoinPath(here, dir);
}

std::string BootId() { return Trimmed(ReadFile("/proc/sys/kernel/random/boot_id").value_or("")); }

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace gpulayer
