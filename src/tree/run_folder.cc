#include "tree/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/fs.h"
#include "base/own_file.h"
#include "base/text.h"
#include "tree/beneath.h"
#include "tree/hash_one.h"

namespace gpulayer::tree {
namespace {

constexpr const char* kRunsFolder = "gpulayer_runs";
constexpr const char* kLocalPrefix = "local-";
constexpr std::size_t kShortServer = 6;
constexpr int kMaxLocalTries = 100'000;

struct Marker {
  std::string server;
  std::int64_t job = 0;
  friend bool operator==(const Marker&, const Marker&) = default;
};

std::optional<Marker> ReadMarker(const std::string& folder) {
  const Result<std::string> text = ReadOwnFile(JoinPath(folder, kRunMarker));
  if (!text.ok()) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto server = json.find("server"), job = json.find("job");
  if (server == json.end() || job == json.end() || !server->is_string() ||
      !job->is_number_integer()) {
    return std::nullopt;
  }
  return Marker{server->get<std::string>(), job->get<std::int64_t>()};
}

std::string ToJson(const Marker& marker) {
  nlohmann::ordered_json json;
  json["server"] = marker.server;
  json["job"] = marker.job;
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

// A folder with its marker that is not yet in its place: it gets its name by one rename, so nobody
// ever sees one without a marker, and of two that want a name one wins.
class Draft {
 public:
  static Result<Draft> Make(const std::string& runs, const Marker& marker) {
    GPULAYER_ASSIGN_OR_RETURN(std::string path, MakeTempDir(runs, ".new-"));
    Draft draft(std::move(path));
    if (chmod(draft.path_.c_str(), 0755) != 0) {
      return ErrnoStatus("set the mode of " + draft.path_, errno);
    }
    GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(draft.path_, kRunMarker), ToJson(marker),
                                             0644, Durability::kNone));
    return draft;
  }
  Draft(Draft&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Draft& operator=(Draft&&) = delete;
  ~Draft() {
    if (!path_.empty()) IgnoreError(RemoveTree(path_), "an empty folder is left behind");
  }

  // False: the name is taken. An empty folder is no hindrance: rename replaces it.
  Result<bool> MoveTo(const std::string& path) {
    if (rename(path_.c_str(), path.c_str()) == 0) {
      path_.clear();
      return true;
    }
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) return false;
    return ErrnoStatus("make run folder " + path, errno);
  }

 private:
  explicit Draft(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Runs are nobody's source: neither git nor a later submit takes them.
Status HideFromGit(const std::string& runs) {
  const std::string file = JoinPath(runs, ".gitignore");
  if (PathExists(file)) return OkStatus();
  return WriteFileAtomic(file, "*\n", 0644, Durability::kNone);
}

Result<std::string> MakeLocal(const std::string& runs, Draft draft) {
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(runs));
  std::int64_t next = 1;
  for (const std::string& name : names) {
    if (!name.starts_with(kLocalPrefix)) continue;
    const std::int64_t n =
        std::strtoll(name.c_str() + std::string_view(kLocalPrefix).size(), nullptr, 10);
    if (n >= next && n < INT64_MAX / 2) next = n + 1;
  }
  for (int tries = 0; tries < kMaxLocalTries; ++tries, ++next) {
    std::string path = JoinPath(runs, kLocalPrefix + std::to_string(next));
    GPULAYER_ASSIGN_OR_RETURN(const bool moved, draft.MoveTo(path));
    if (moved) return path;
  }
  return FailedPrecondition("make a run folder in " + runs + ": no free number");
}

Result<std::string> UseGiven(const RunFolderRequest& request, const Marker& marker) {
  if (const std::optional<Marker> there = ReadMarker(request.to);
      there.has_value() && *there != marker) {
    return FailedPrecondition("write outputs to " + request.to + ": it is the run folder of job " +
                              std::to_string(there->job) +
                              (there->server == marker.server ? "" : " of another server") +
                              ". Choose another folder");
  }
  GPULAYER_RETURN_IF_ERROR(MakeDirs(request.to, 0755));
  return request.to;
}

}  // namespace

Result<std::string> MakeRunFolder(const RunFolderRequest& request) {
  const Marker marker{request.server_uuid, request.job.value()};
  if (request.naming == RunFolderRequest::Naming::kTo) return UseGiven(request, marker);
  const std::string runs = JoinPath(request.base_dir, kRunsFolder);
  GPULAYER_RETURN_IF_ERROR(MakeDirs(runs, 0755).Prefixed("make a place for outputs"));
  GPULAYER_RETURN_IF_ERROR(HideFromGit(runs).Prefixed("make a place for outputs"));
  if (request.naming == RunFolderRequest::Naming::kLocal) {
    GPULAYER_ASSIGN_OR_RETURN(Draft draft, Draft::Make(runs, marker));
    return MakeLocal(runs, std::move(draft));
  }
  std::string name = std::to_string(request.job.value());
  if (request.naming == RunFolderRequest::Naming::kOtherTarget) name = request.target + "-" + name;
  if (name.find('/') != std::string::npos || name[0] == '.') {
    return InvalidArgument("make a run folder: the target's name \"" + Printable(request.target) +
                           "\" is no folder name");
  }
  // The short form of another server may be taken too (its folder copied here by hand): then the
  // long one.
  std::optional<Draft> draft;
  for (const std::string& candidate :
       {name, name + "-" + request.server_uuid.substr(0, kShortServer),
        name + "-" + request.server_uuid}) {
    std::string path = JoinPath(runs, candidate);
    if (ReadMarker(path) == marker) return path;
    if (!draft.has_value()) {
      GPULAYER_ASSIGN_OR_RETURN(Draft made, Draft::Make(runs, marker));
      draft.emplace(std::move(made));
    }
    GPULAYER_ASSIGN_OR_RETURN(const bool moved, draft->MoveTo(path));
    if (moved || ReadMarker(path) == marker) return path;  // or another process made it just now
  }
  return FailedPrecondition("make run folder " + JoinPath(runs, name) +
                            ": folders of other jobs have all its names. Move them away");
}

Status CheckRunsPlace(const std::string& base_dir) {
  const std::string runs = JoinPath(base_dir, kRunsFolder);
  struct stat info = {};
  std::string where = base_dir;
  // A current folder that was removed can still be looked at; nothing can be made in it.
  if (stat(base_dir.c_str(), &info) == 0 && info.st_nlink == 0) {
    return FailedPrecondition(
        "a place for outputs: the current folder was removed. Go to another folder");
  }
  if (stat(runs.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) {
      return FailedPrecondition("a place for outputs: " + runs +
                                " is no folder. Move it away, or go to another folder");
    }
    where = runs;
  } else if (lstat(runs.c_str(), &info) == 0) {
    return FailedPrecondition("a place for outputs: " + runs +
                              " is a link to nothing. Move it away, or go to another folder");
  }
  if (faccessat(AT_FDCWD, where.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return OkStatus();
  return FailedPrecondition("a place for outputs: " + where + ": " + std::strerror(errno) +
                            ". Go to a folder that you may write in");
}

namespace {

// What cannot stand at its place counts too: the folder that it is to go to is none.
bool IsAnother(int root, const TreeEntry& entry) {
  const std::string dir = DirName(entry.path);
  const UniqueFd parent = OpenBeneath(root, dir == "." ? "" : dir, O_RDONLY | O_DIRECTORY);
  if (!parent.valid()) return errno != ENOENT;
  struct stat info = {};
  if (fstatat(parent.get(), BaseName(entry.path).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno != ENOENT;
  }
  if (entry.type == EntryType::kFolder) return !S_ISDIR(info.st_mode);
  if (entry.type == EntryType::kLink) return ReadLink(root, entry.path) != entry.link_target;
  if (!S_ISREG(info.st_mode) || info.st_size != entry.size) return true;
  const Result<HashedFile> hash = HashOne(root, entry.path);
  return !hash.ok() || hash->hash != entry.hash;
}

}  // namespace

std::vector<std::string> FindOthers(const RunFolderRequest& request, const std::string& subfolder,
                                    const Tree& tree, std::size_t most) {
  std::vector<std::string> out;
  if (ReadMarker(request.to) == Marker{request.server_uuid, request.job.value()}) return out;
  const std::string dir = subfolder.empty() ? request.to : JoinPath(request.to, subfolder);
  const UniqueFd root(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return out;
  for (const TreeEntry& entry : tree.entries) {
    if (out.size() == most) break;
    if (IsAnother(root.get(), entry)) {
      out.push_back(subfolder.empty() ? entry.path : JoinPath(subfolder, entry.path));
    }
  }
  return out;
}

Status UnpackInto(const std::string& run_folder, const std::string& subfolder, const Tree& tree,
                  const BlobOpener& open_blob) {
  std::string dir = run_folder;
  if (!subfolder.empty()) {
    // One name, or it could lead out of the run folder.
    if (subfolder.find('/') != std::string::npos || subfolder == ".." || subfolder == ".") {
      return InvalidArgument("unpack into " + run_folder + ": bad folder name \"" +
                             Printable(subfolder) + "\"");
    }
    dir = JoinPath(run_folder, subfolder);
    if (mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) {
      return ErrnoStatus("make folder " + dir, errno);
    }
    struct stat info = {};
    if (lstat(dir.c_str(), &info) != 0) return ErrnoStatus("stat " + dir, errno);
    if (!S_ISDIR(info.st_mode)) {
      return FailedPrecondition("write outputs to " + dir + ": it is no folder. Remove it");
    }
  }
  UnpackOptions options;
  options.replace = true;
  if (subfolder.empty()) options.skip = {kRunMarker};
  return Unpack(tree, dir, open_blob, options).Prefixed("write outputs to " + dir);
}

}  // namespace gpulayer::tree
