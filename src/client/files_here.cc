// Arguments that name files of the current folder, looked at before anything is sent.
#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "base/fs.h"
#include "base/text.h"
#include "client/convert.h"

namespace gpulayer::client {
namespace {

bool IsFile(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// `proj/train.py` where `proj` ships, and `train.py` in `proj` where `..` does: the job's folder is the
// source itself.
Status CheckNamesInSource(const api::JobSpec& spec) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path source = fs::canonical(spec.source_dir, error);
  if (error) return OkStatus();  // who lists it says what is wrong with it
  for (std::size_t i = 0; i < spec.command.size(); ++i) {
    const std::string& arg = spec.command[i];
    const auto path = fs::path(arg).lexically_normal();
    // An absolute path may be one of the worker's, and a program without a slash is on its PATH.
    const bool is_path = i > 0 || arg.find('/') != std::string::npos;
    if (arg.empty() || path.is_absolute() || !is_path || !IsFile(arg)) continue;
    const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : ".", error);
    if (error) continue;
    const fs::path inside = (folder / path.filename()).lexically_relative(source);
    if (inside.empty() || inside == path || *inside.begin() == "..") continue;
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
