#include "base/host.h"

#include <unistd.h>

#include <cstdlib>

#include "base/fs.h"
#include "base/text.h"

namespace gpulayer {

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> Absolute(const std::string& path) {
  if (!path.empty() && path.front() == '/') return path;
  char here[4096];
  if (getcwd(here, sizeof here) == nullptr) return ErrnoStatus("current directory", errno);
  return JoinPath(here, path);
}

namespace {

// What is not there yet, or may not be looked at, stays as it is written.
std::string Canonical(const std::string& path) {
  if (char* real = realpath(path.c_str(), nullptr); real != nullptr) {
    std::string out = real;
    std::free(real);
    return out;
  }
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::string name = BaseName(trimmed);
  if (trimmed == "/" || name == "." || name == "..") return trimmed;
  return JoinPath(Canonical(DirName(trimmed)), name);
}

}  // namespace

std::string XdgDir(const char* variable, const char* below_home) {
  const std::string value = Env(variable);
  if (!value.empty() && value.front() == '/') return JoinPath(value, "gpulayer");
  const std::string home = Env("HOME");
  if (home.empty() || home.front() != '/') return "";
  return JoinPath(JoinPath(home, below_home), "gpulayer");
}

Result<std::string> DataDir(const std::string& given) {
  std::string dir = given.empty() ? Env("GPULAYER_DATA_DIR") : given;
  if (dir.empty()) {
    dir = geteuid() == 0 ? "/var/lib/gpulayer" : XdgDir("XDG_STATE_HOME", ".local/state");
  }
  if (dir.empty()) {
    return FailedPrecondition(
        "data directory: HOME is not set to an absolute path. Set it, or use --data-dir.");
  }
  if (dir[0] == '~') {  // of GPULAYER_DATA_DIR: an option's is refused before
    return InvalidArgument("data directory " + Printable(dir) +
                           ": no shell has expanded the ~. Write the whole path.");
  }
  GPULAYER_ASSIGN_OR_RETURN(const std::string path, Absolute(dir));
  const std::string real = Canonical(path);
  if (Printable(real) != real) {
    return InvalidArgument("data directory " + Printable(real) +
                           ": its name is not printable UTF-8. Choose another with --data-dir.");
  }
  return real;
}

std::string BootId() {
  return TrimmedEnd(ReadFile("/proc/sys/kernel/random/boot_id").value_or(""));
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace gpulayer
