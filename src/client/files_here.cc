// Arguments that name files of the current folder, looked at before anything is sent.
#include <sys/stat.h>

#include <filesystem>

#include "base/fs.h"
#include "base/text.h"
#include "client/convert.h"

namespace gpulayer::client {
namespace {

bool IsFile(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// `proj/train.py` where `proj` ships: the job's folder is proj itself.
Status CheckNamesInSource(const api::JobSpec& spec) {
  const auto source = std::filesystem::path(spec.source_dir).lexically_normal();
  for (const std::string& arg : spec.command) {
    const auto path = std::filesystem::path(arg).lexically_normal();
    // An absolute path may be one of the worker's.
    if (arg.empty() || path.is_absolute() || source.is_absolute()) continue;
    const auto inside = path.lexically_relative(source);
    if (inside.empty() || inside == path || *inside.begin() == ".." || !IsFile(arg)) continue;
    const bool another = *path.begin() != ".." && PathExists(JoinPath(spec.source_dir, arg));
    if (another) continue;
    return FailedPrecondition(Printable(arg) + ": the job starts inside a copy of " +
                              Printable(spec.source_dir) + ", where its name is " +
                              Printable(inside.string()) + ". Write that");
  }
  return OkStatus();
}

}  // namespace

Status CheckFilesHere(const api::JobSpec& spec) {
  if (spec.no_source) return OkStatus();
  if (!spec.source_dir.empty()) return CheckNamesInSource(spec);
  for (std::size_t i = 0; i < spec.command.size(); ++i) {
    const std::string& arg = spec.command[i];
    // A program without a slash is looked for on the worker's PATH, not here.
    const bool is_path = i > 0 || arg.find('/') != std::string::npos;
    if (arg.empty() || arg[0] == '/' || !is_path || !IsFile(arg)) continue;
    return FailedPrecondition(Printable(arg) +
                              " is a file here but nothing is shipped: add `--source .`");
  }
  return OkStatus();
}

}  // namespace gpulayer::client
