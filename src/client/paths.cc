#include "client/paths.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/fs.h"
#include "base/host.h"
#include "base/own_file.h"
#include "base/text.h"

namespace gpulayer::client {
namespace {

std::string OwnProgram() {
  char buffer[4096];
  const ssize_t n = ::readlink("/proc/self/exe", buffer, sizeof buffer);
  return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : "";
}

std::string OwnLibrary() {
  Dl_info info;
  if (::dladdr(reinterpret_cast<const void*>(&OwnLibrary), &info) == 0 || info.dli_fname == nullptr)
    return "";
  char* real = ::realpath(info.dli_fname, nullptr);
  std::string path = real == nullptr ? "" : real;
  std::free(real);
  return path;
}

}  // namespace

Result<std::string> ConfigDir(const std::string& given) {
  if (!given.empty()) return Absolute(given);
  if (const std::string env = Env("GPULAYER_CONFIG_DIR"); !env.empty()) {
    if (env[0] != '~') return Absolute(env);
    return InvalidArgument("GPULAYER_CONFIG_DIR " + Printable(env) +
                           ": no shell has expanded the ~. Write the whole path.");
  }
  const std::string dir = XdgDir("XDG_CONFIG_HOME", ".config");
  if (dir.empty()) {
    return FailedPrecondition(
        "configuration directory: HOME is not set to an absolute path. Set it, or "
        "GPULAYER_CONFIG_DIR.");
  }
  return dir;
}

std::string CacheDir() { return XdgDir("XDG_CACHE_HOME", ".cache"); }

std::string ServerSocket(const std::string& data_dir) {
  std::string here = JoinPath(data_dir, "server.sock");
  const Result<std::string> text = ReadOwnFile(JoinPath(data_dir, "server/endpoint.json"));
  const nlohmann::json json =
      text.ok() ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  if (!json.is_object() || !json.contains("socket") || !json["socket"].is_string()) {
    return PathExists(here) ? here : "";
  }
  // In a copy of the directory it tells of the server of the first one. In one that was moved the
  // socket has moved along.
  struct stat lock{};
  const bool known = json.contains("lock_inode") && json["lock_inode"].is_number_unsigned();
  const bool ours = !known || (::stat(JoinPath(data_dir, "server/lock").c_str(), &lock) == 0 &&
                               lock.st_ino == json["lock_inode"].get<std::uint64_t>());
  if (!ours) return "";
  return PathExists(here) ? here : json["socket"].get<std::string>();
}

Status CheckMayLookInto(const std::string& data_dir) {
  struct stat info{};
  if (::lstat(JoinPath(data_dir, "server.sock").c_str(), &info) == 0 || errno != EACCES) {
    return OkStatus();
  }
  return PermissionDenied("data directory " + data_dir +
                          ": Permission denied. Let this account look into it, name another with "
                          "GPULAYER_DATA_DIR, or use `gpulayer login`");
}

Result<std::string> FindProgram(const std::string& name) {
  std::vector<std::string> dirs;
  if (const std::string dir = Env("GPULAYER_BINDIR"); !dir.empty()) dirs.push_back(dir);
  for (const std::string& own : {OwnProgram(), OwnLibrary()}) {
    if (own.empty()) continue;
    const std::string dir = DirName(own);
    dirs.push_back(dir);
    dirs.push_back(JoinPath(dir, "../libexec/gpulayer"));
    dirs.push_back(JoinPath(dir, "../bin"));
  }
  for (const std::string& dir : Split(Env("PATH"), ':')) {
    if (!dir.empty()) dirs.push_back(dir);
  }
  for (const std::string& dir : dirs) {
    std::string path = JoinPath(dir, name);
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return NotFound("program " + name +
                  ": not beside this program and not on PATH. Install it, or set GPULAYER_BINDIR.");
}

}  // namespace gpulayer::client
