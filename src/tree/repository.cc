#include "tree/repository.h"

#include <fcntl.h>
#include <git2.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/fs.h"
#include "base/own_file.h"
#include "base/text.h"
#include "tree/beneath.h"

namespace gpulayer::tree {
namespace {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};
using RepositoryPtr = std::unique_ptr<git_repository, Deleter<git_repository_free>>;
using IndexPtr = std::unique_ptr<git_index, Deleter<git_index_free>>;
using ConfigPtr = std::unique_ptr<git_config, Deleter<git_config_free>>;

std::string LastError() {
  const git_error* error = git_error_last();
  return error != nullptr && error->message != nullptr ? error->message : "unknown error";
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string ReadAbsolute(const std::string& path) {
  // The file may be a link (dotfile managers make them); what it leads to must still be a file.
  char* real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return "";
  const std::string resolved = real;
  free(real);
  Result<UniqueFd> root = OpenFile("/", O_RDONLY | O_DIRECTORY);
  return root.ok() && resolved.size() > 1 ? ReadIgnoreFile(root->get(), resolved.substr(1)) : "";
}

std::string GlobalIgnoreOf(git_config* config, const std::string& relative_to) {
  git_buf path = GIT_BUF_INIT;
  if (config != nullptr && git_config_get_path(&path, config, "core.excludesfile") == 0) {
    const std::string file = path.ptr != nullptr ? path.ptr : "";
    git_buf_dispose(&path);
    if (file.empty()) return "";
    return ReadAbsolute(file[0] == '/' ? file : JoinPath(relative_to, file));
  }
  const char* xdg = getenv("XDG_CONFIG_HOME");
  if (xdg != nullptr && *xdg != '\0') return ReadAbsolute(JoinPath(xdg, "git/ignore"));
  const char* home = getenv("HOME");
  return home != nullptr ? ReadAbsolute(JoinPath(home, ".config/git/ignore")) : "";
}

void ReadIndex(git_repository* repository, const std::string& below, Repository* out) {
  git_index* raw = nullptr;
  if (git_repository_index(&raw, repository) != 0) {
    out->problem = "git's index cannot be read (" + LastError() +
                   "): tracked files that an ignore rule matches are left out";
    return;
  }
  const IndexPtr index(raw);
  std::vector<std::string> files, submodules;
  const std::size_t count = git_index_entrycount(raw);
  for (std::size_t i = 0; i < count; ++i) {
    const git_index_entry* entry = git_index_get_byindex(raw, i);
    const std::string_view path = entry->path;
    if (!below.empty() &&
        (path.size() <= below.size() || path[below.size()] != '/' || !path.starts_with(below))) {
      continue;
    }
    if (entry->mode == GIT_FILEMODE_COMMIT) submodules.emplace_back(path);
    files.emplace_back(path);
  }
  out->tracked = TrackedSet(std::move(files), std::move(submodules));
}

bool IsFolder(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// What a file of git leads to: "gitdir: PATH" or a path alone, relative to the file's folder.
std::string LedTo(const std::string& file) {
  const Result<std::string> text = ReadOwnFile(file);
  if (!text.ok()) return "";
  const std::string line = TrimmedEnd(*text);
  std::string_view path = line;
  constexpr std::string_view kPrefix = "gitdir:";
  if (path.starts_with(kPrefix)) path.remove_prefix(kPrefix.size());
  while (path.starts_with(' ')) path.remove_prefix(1);
  if (path.empty()) return "";
  return path[0] == '/' ? std::string(path) : JoinPath(DirName(file), path);
}

// libgit2 opens these without a look at what they are.
Status CheckGitFolder(const std::string& git) {
  for (const char* name : {"HEAD", "config", "config.worktree", "commondir", "gitdir", "index",
                           "packed-refs", "info/exclude"}) {
    const std::string path = JoinPath(git, name);
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) continue;
    return FailedPrecondition(std::string("git's ") + name + " is " + SpecialKind(info.st_mode) +
                              ": the repository is not looked at, ignore files hold all the same");
  }
  return OkStatus();
}

// Of the repositories that a search from this folder could open, up to the one that it ends at.
Status CheckFiles(const std::string& folder, Search search) {
  for (std::string at = folder;; at = DirName(at)) {
    const std::string dot_git = JoinPath(at, ".git");
    std::vector<std::string> git;
    if (IsFolder(dot_git)) {
      git.push_back(dot_git);
    } else if (PathExists(dot_git)) {
      git.push_back(LedTo(dot_git));  // of a submodule or another working tree
    }
    if (IsFolder(JoinPath(at, "objects"))) git.push_back(at);  // a bare one
    for (std::size_t i = 0; i < git.size(); ++i) {
      if (git[i].empty() || !IsFolder(git[i])) continue;
      GPULAYER_RETURN_IF_ERROR(CheckGitFolder(git[i]));
      const std::string common = JoinPath(git[i], "commondir");
      if (git.size() < 4 && PathExists(common)) git.push_back(LedTo(common));
    }
    const bool ends = !git.empty() && PathExists(JoinPath(git[0], "HEAD"));
    if (ends || search == Search::kOnlyAt || at == "/" || at == ".") return OkStatus();
  }
}

}  // namespace

GitLibrary::GitLibrary() {
  git_libgit2_init();
  // Nothing of a repository is executed or written here: whose it is does not matter.
  git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
}

GitLibrary::~GitLibrary() { git_libgit2_shutdown(); }

TrackedSet::TrackedSet(std::vector<std::string> files, std::vector<std::string> submodules)
    : files_(std::move(files)), submodules_(std::move(submodules)) {
  if (!std::is_sorted(files_.begin(), files_.end())) std::sort(files_.begin(), files_.end());
  std::sort(submodules_.begin(), submodules_.end());
}

bool TrackedSet::HasFile(std::string_view path) const {
  return std::binary_search(files_.begin(), files_.end(), path);
}

bool TrackedSet::HasUnder(std::string_view folder) const {
  if (folder.empty()) return !files_.empty();
  const std::string prefix = std::string(folder) + "/";
  const auto it = std::lower_bound(files_.begin(), files_.end(), prefix);
  return it != files_.end() && it->starts_with(prefix);
}

bool TrackedSet::IsSubmodule(std::string_view path) const {
  return std::binary_search(submodules_.begin(), submodules_.end(), path);
}

Result<std::optional<Repository>> FindRepository(const std::string& folder, Search search) {
  GPULAYER_RETURN_IF_ERROR(CheckFiles(folder, search));
  const GitLibrary library;
  git_repository* raw = nullptr;
  const unsigned flags = search == Search::kOnlyAt ? GIT_REPOSITORY_OPEN_NO_SEARCH : 0;
  if (git_repository_open_ext(&raw, folder.c_str(), flags, nullptr) != 0) {
    return std::optional<Repository>();
  }
  const RepositoryPtr repository(raw);
  const char* workdir = git_repository_workdir(raw);
  if (workdir == nullptr) return std::optional<Repository>();  // a bare one
  Repository out;
  out.root = WithoutSlash(workdir);
  if (char* real = realpath(out.root.c_str(), nullptr); real != nullptr) {
    out.root = real;
    free(real);
  }
  const bool at_root = folder == out.root;
  const std::string with_slash = out.root == "/" ? "/" : out.root + "/";
  if (!at_root && (search == Search::kOnlyAt || !folder.starts_with(with_slash))) {
    return std::optional<Repository>();
  }
  git_config* raw_config = nullptr;
  IgnoreError(git_repository_config_snapshot(&raw_config, raw) == 0 ? OkStatus() : Internal(""),
              "without a configuration the defaults hold");
  const ConfigPtr config(raw_config);
  int fold = 0;
  if (raw_config != nullptr && git_config_get_bool(&fold, raw_config, "core.ignorecase") == 0 &&
      fold != 0) {
    out.fold = Case::kFold;
  }
  out.global_ignore = GlobalIgnoreOf(raw_config, out.root);
  out.info_exclude = ReadAbsolute(JoinPath(git_repository_commondir(raw), "info/exclude"));
  ReadIndex(raw, at_root ? "" : folder.substr(with_slash.size()), &out);
  return std::optional(std::move(out));
}

std::string GlobalIgnore() {
  const GitLibrary library;
  git_config* raw = nullptr;
  if (git_config_open_default(&raw) != 0) raw = nullptr;
  const ConfigPtr config(raw);
  git_config* snapshot = nullptr;  // paths can only be asked of a snapshot
  if (raw != nullptr && git_config_snapshot(&snapshot, raw) != 0) snapshot = nullptr;
  const ConfigPtr held(snapshot);
  return GlobalIgnoreOf(snapshot, "/");
}

}  // namespace gpulayer::tree
