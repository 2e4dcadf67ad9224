#include "tree/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/daemon.h"
#include "base/fs.h"
#include "base/text.h"
#include "tree/beneath.h"
#include "tree/ignore.h"
#include "tree/unpack.h"

namespace gpulayer::tree {
namespace {

constexpr std::size_t kLargestShown = 10;
constexpr char kOwnFiles[] = "GPUlayer's own files, keys among them";

// A repository (or the folder, where there is none): a realm of rules and tracked files.
struct Domain {
  std::size_t base = 0;  // length of its root in a full path, with the slash
  TrackedSet tracked;
  Case fold = Case::kKeep;
};

struct Folder {
  std::string path;  // relative to the root of the walk
  std::size_t parent = 0;
  std::uint32_t mode = 0755;
  bool listed = false;     // by the rules it belongs to the set, even when empty
  bool has_child = false;  // something in it is in the set
  std::int64_t bytes = 0;
  std::int64_t files = 0;
};

// A folder still to be read.
struct Pending {
  std::size_t index = 0;  // into folders_
  RuleChainPtr rules;
  std::shared_ptr<const Domain> domain;
  bool ignored = false;        // only what is tracked or re-included in it belongs to the set
  bool tracked_counts = true;  // false in __pycache__ and the like: not even what is tracked
  bool forced = false;         // .gpulayerignore re-includes it by name
  bool submodule = false;
};

std::uint32_t PermissionsOf(const struct stat& info) { return info.st_mode & 0777; }

// Gives the owner `bits` on what is this account's. A link put in its place meanwhile could lead to
// nothing but another file of the same account, whose programs may do that themselves.
bool OpenUp(int dir, const std::string& path, mode_t bits, mode_t* mode) {
  const std::string name = path.empty() ? "." : path;
  struct stat info = {};
  if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if (info.st_uid != geteuid() || (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))) return false;
  *mode = info.st_mode;
  return fchmodat(dir, name.c_str(), (info.st_mode & 07777) | bits, 0) == 0;
}

constexpr std::string_view kRunsFolder = "gpulayer_runs";

bool AlwaysOut(std::string_view name) { return name == "__pycache__" || name == kRunsFolder; }

class Walker {
 public:
  Walker(int root, const std::string& shown, WalkPlan plan)
      : root_(root),
        shown_(shown),
        plan_(std::move(plan)),
        own_(plan_.ignore.overriding, plan_.ignore.fold_case ? Case::kFold : Case::kKeep) {}

  Result<Listing> Run() {
    Start();
    while (!pending_.empty()) {
      Pending next = std::move(pending_.back());
      pending_.pop_back();
      GPULAYER_RETURN_IF_ERROR(Read(std::move(next)));
      if (!out_.counted_all) break;
    }
    Finish();
    return std::move(out_);
  }

 private:
  std::string Full(const std::string& path) const {
    if (plan_.ignore.prefix.empty()) return path;
    return path.empty() ? plan_.ignore.prefix : plan_.ignore.prefix + "/" + path;
  }

  // Lists of `ignore.files` that stand in the folder with this full path.
  RuleChainPtr WithTravelling(RuleChainPtr rules, const std::string& full, Case fold) const {
    for (const IgnoreRules::File& file : plan_.ignore.files) {
      if (file.dir == full) {
        rules = Extend(rules, full.empty() ? 0 : full.size() + 1, IgnoreList(file.content, fold));
      }
    }
    return rules;
  }

  void Start() {
    auto domain = std::make_shared<Domain>();
    domain->tracked = std::move(plan_.tracked);
    domain->fold = plan_.ignore.fold_case ? Case::kFold : Case::kKeep;
    Pending top;
    if (plan_.use_rules) {
      // From the repository's root down to ours; if one of these folders is ignored, so is ours.
      const std::string& prefix = plan_.ignore.prefix;
      std::size_t end = 0;
      while (!prefix.empty()) {
        top.rules = WithTravelling(top.rules, prefix.substr(0, end), domain->fold);
        if (end == prefix.size()) break;
        end = std::min(prefix.find('/', end + 1), prefix.size());
        if (Decide(top.rules.get(), prefix.substr(0, end), true) == Verdict::kIgnored) {
          top.ignored = true;
        }
      }
      if (prefix.empty()) top.rules = WithTravelling(nullptr, "", domain->fold);
      if (top.ignored) {
        Warn("",
             "the folder itself is ignored by a rule of git: only what is tracked in it ships. "
             "A line `!*` in its .gpulayerignore ships the rest");
      }
    }
    top.domain = std::move(domain);
    top.forced = true;
    folders_.push_back({"", 0, 0755, false, false, 0, 0});
    pending_.push_back(std::move(top));
  }

  Status Read(Pending self) {
    const std::string path = folders_[self.index].path;
    mode_t shut = 0;  // its mode, if it was shut and had to be opened up
    UniqueFd dir = OpenFolder(path, &shut);
    if (!dir.valid()) {
      if (path.empty()) return ErrnoStatus("list " + shown_, errno);
      folders_[self.index].listed = false;
      if (errno != ENOENT) Warn(path, errno == EACCES ? "not readable" : "cannot be opened");
      return OkStatus();
    }
    struct stat info = {};
    if (fstat(dir.get(), &info) != 0) return ErrnoStatus("stat " + JoinPath(shown_, path), errno);
    if (shut != 0) info.st_mode = shut;
    folders_[self.index].mode = PermissionsOf(info);
    Result<std::vector<Name>> names = ListNames(dir.get(), JoinPath(shown_, path));
    if (!names.ok()) {
      if (path.empty()) return names.status();
      Warn(path, "cannot be listed");
      return OkStatus();
    }
    if (plan_.leave_data_dirs && !path.empty() && MayBeDataDir(*names) && IsDataDir(dir.get())) {
      folders_[self.index].listed = false;
      if (!self.ignored) Warn(path, kOwnFiles);
      return OkStatus();
    }
    if (plan_.use_rules && !Enter(dir.get(), path, *names, &self)) return OkStatus();
    for (const Name& name : *names) Visit(dir.get(), path, name, self);
    return OkStatus();
  }

  // Of most folders no more than their names is to be looked at.
  static bool MayBeDataDir(const std::vector<Name>& names) {
    return std::any_of(names.begin(), names.end(), [](const Name& name) {
      return name.name == "server" || name.name == "worker";
    });
  }

  // With the right to list it and to open what is in it, if that can be had.
  UniqueFd OpenFolder(const std::string& path, mode_t* shut) const {
    UniqueFd dir = OpenBeneath(root_, path, O_RDONLY | O_DIRECTORY);
    if (!plan_.open_up || geteuid() == 0) return dir;
    const int error = errno;
    const bool enterable = dir.valid() && faccessat(dir.get(), ".", X_OK, AT_EACCESS) == 0;
    if (enterable || (!dir.valid() && error != EACCES)) {
      errno = error;
      return dir;
    }
    if (!OpenUp(root_, path, S_IRUSR | S_IXUSR, shut)) {
      *shut = 0;
      errno = error;
      return dir;
    }
    return OpenBeneath(root_, path, O_RDONLY | O_DIRECTORY);
  }

  // Takes in the rules that begin in this folder. False: nothing of it belongs to the set.
  bool Enter(int dir, const std::string& path, const std::vector<Name>& names, Pending* self) {
    bool has_git = false, has_ignore = false, has_venv = false;
    for (const Name& name : names) {
      has_git |= name.name == ".git";
      has_ignore |= name.name == ".gitignore";
      has_venv |= name.name == "pyvenv.cfg";
    }
    const std::string full = Full(path);
    if (has_venv && !self->forced) {
      folders_[self->index].listed = false;
      self->ignored = true;
      self->tracked_counts = false;
      if (!own_.ReachesInto(path)) {
        if (!path.empty()) KeepOut(path);
        return false;
      }
    }
    if (!path.empty() && plan_.find_repositories && has_git) TryRepository(path, full, self);
    if (!path.empty() && !plan_.find_repositories && IsNestedRoot(full)) {
      // What is tracked stays known: these are the paths of the tree that was laid out.
      self->rules = nullptr;
    }
    if (!path.empty()) self->rules = WithTravelling(self->rules, full, self->domain->fold);
    if (self->submodule) return false;  // not checked out: git lists nothing in it
    if (has_ignore) {
      std::string content = ReadIgnoreFile(dir, ".gitignore");
      self->rules = Extend(self->rules, full.empty() ? 0 : full.size() + 1,
                           IgnoreList(content, self->domain->fold));
      if (plan_.find_repositories) ignore_files_.push_back({path, std::move(content)});
    }
    return true;
  }

  bool IsNestedRoot(const std::string& full) const {
    const std::vector<std::string>& roots = plan_.ignore.nested_roots;
    return std::find(roots.begin(), roots.end(), full) != roots.end();
  }

  void TryRepository(const std::string& path, const std::string& full, Pending* self) {
    // Git walks on into a folder in which it tracks files itself.
    if (!self->submodule && self->domain->tracked.HasUnder(full.substr(self->domain->base))) return;
    Result<std::optional<Repository>> looked =
        FindRepository(JoinPath(shown_, path), Search::kOnlyAt);
    if (!looked.ok()) Warn(path, looked.status().message());
    if (!looked.ok() || !looked->has_value()) return;
    std::optional<Repository> found = *std::move(looked);
    if (!found->problem.empty()) Warn(path, found->problem);
    auto domain = std::make_shared<Domain>();
    domain->base = full.size() + 1;
    domain->tracked = std::move(found->tracked);
    domain->fold = found->fold;
    self->domain = std::move(domain);
    self->rules = nullptr;
    self->submodule = false;
    plan_.ignore.nested_roots.push_back(full);
    for (std::string* content : {&found->global_ignore, &found->info_exclude}) {
      if (!content->empty()) plan_.ignore.files.push_back({full, std::move(*content)});
    }
  }

  void Visit(int dir, const std::string& folder, const Name& name, const Pending& self) {
    if (out_.over_limit && ++visited_after_limit_ > plan_.entries_after_limit) {
      out_.counted_all = false;
      return;
    }
    std::string path = folder.empty() ? name.name : folder + "/" + name.name;
    if (plan_.use_rules && name.name == ".git") return KeepOut(path, name.type == DT_DIR);
    if (path.size() > kMaxPathBytes) {
      Warn(path.substr(0, 200) + "...", "its path is longer than 4000 bytes");
      return;
    }
    struct stat info = {};
    bool known = false;
    bool is_folder = name.type == DT_DIR;
    if (name.type == DT_UNKNOWN) {
      if (fstatat(dir, name.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return;
      known = true;
      is_folder = S_ISDIR(info.st_mode);
    }
    Pending child;
    child.rules = self.rules;
    child.domain = self.domain;
    child.tracked_counts = self.tracked_counts;
    if (plan_.use_rules && !Admit(path, name.name, is_folder, self, &child)) {
      if (is_folder && name.name == kRunsFolder) {
        KeepOut(path);
      } else if (plan_.name_ignored && !AlwaysOut(name.name)) {
        out_.ignored.push_back(is_folder ? path + "/" : path);
      }
      return;
    }
    if (is_folder && std::find(plan_.never.begin(), plan_.never.end(), path) != plan_.never.end()) {
      Warn(path, kOwnFiles);
      return;
    }
    if (is_folder) {
      child.index = folders_.size();
      folders_.push_back({std::move(path), self.index, 0755, !child.ignored, false, 0, 0});
      pending_.push_back(std::move(child));
      return;
    }
    if (!known && fstatat(dir, name.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) Warn(path, errno == EACCES ? "not readable" : "cannot be read");
      return;
    }
    Add(dir, name.name, std::move(path), info, self.index);
  }

  void KeepOut(const std::string& path, bool is_folder = true) {
    if (plan_.name_ignored) out_.kept_out.push_back(is_folder ? path + "/" : path);
  }

  // Whether the rules let this name through; of a folder: whether it must be read at all.
  bool Admit(const std::string& path, const std::string& name, bool is_folder, const Pending& self,
             Pending* child) const {
    const Verdict own = own_.empty() ? Verdict::kNone : own_.Match(path, is_folder);
    if (own == Verdict::kIgnored) return false;
    child->forced = own == Verdict::kIncluded;
    if (child->forced) {
      child->tracked_counts = true;
      return true;
    }
    if (AlwaysOut(name)) {
      child->ignored = true;
      child->tracked_counts = false;
      return is_folder && own_.ReachesInto(path);
    }
    const std::string full = Full(path);
    const std::string_view in_domain = std::string_view(full).substr(self.domain->base);
    if (!is_folder && self.tracked_counts && self.domain->tracked.HasFile(in_domain)) return true;
    const bool ignored =
        self.ignored || Decide(self.rules.get(), full, is_folder) == Verdict::kIgnored;
    if (!is_folder) return !ignored;
    if (self.tracked_counts && self.domain->tracked.IsSubmodule(in_domain)) {
      child->submodule = true;
      return true;
    }
    child->ignored = ignored;
    return !ignored || own_.ReachesInto(path) ||
           (self.tracked_counts && self.domain->tracked.HasUnder(in_domain));
  }

  void Add(int dir, const std::string& name, std::string path, const struct stat& info,
           std::size_t folder) {
    ListedEntry entry;
    entry.mode = PermissionsOf(info);
    if (S_ISLNK(info.st_mode)) {
      entry.type = EntryType::kLink;
      entry.link_target = ReadLink(dir, name);
      if (const std::string problem = LinkProblem(path, entry.link_target); !problem.empty()) {
        Warn(path, problem);
        return;
      }
    } else if (S_ISREG(info.st_mode)) {
      // The common case needs no question to the kernel.
      const bool plain = info.st_uid == geteuid() && (info.st_mode & S_IRUSR) != 0;
      mode_t shut = 0;
      if (!plain && faccessat(dir, name.c_str(), R_OK, AT_EACCESS) != 0 &&
          !(plan_.open_up && OpenUp(dir, name, S_IRUSR, &shut))) {
        Warn(path, "not readable");
        return;
      }
      entry.stamp = StampOf(info);
      folders_[folder].bytes += info.st_size;
      out_.bytes += info.st_size;
    } else if (S_ISDIR(info.st_mode)) {
      return;  // it was something else a moment ago
    } else {
      Warn(path, UnfitKind(info));
      return;
    }
    folders_[folder].has_child = true;
    ++folders_[folder].files;
    ++out_.files;
    if (out_.bytes > plan_.limit_bytes || out_.files > plan_.limit_files) {
      if (!out_.over_limit) std::vector<ListedEntry>().swap(out_.entries);
      out_.over_limit = true;
      return;
    }
    entry.path = std::move(path);
    out_.entries.push_back(std::move(entry));
  }

  std::string LinkProblem(const std::string& path, const std::string& target) const {
    if (target.empty()) return "a link that cannot be read";
    if (target[0] == '/') return "a link to an absolute path (" + Printable(target) + ")";
    const auto read_link = [this](const std::string& at) { return ReadLink(root_, at); };
    if (LinkStaysInside(path, target, read_link)) return "";
    return "a link that leaves the folder (to " + Printable(target) + ")";
  }

  void Warn(const std::string& path, std::string reason) {
    if (out_.warnings.size() < kMaxWarnings) {
      out_.warnings.push_back({path.empty() ? "." : path, std::move(reason)});
    } else {
      ++out_.more_warnings;
    }
  }

  void Finish() {
    // A folder stands behind its parent, so going backwards sums up from the leaves.
    std::vector<FolderSize> sizes;
    for (std::size_t i = folders_.size(); i-- > 0;) {
      Folder& folder = folders_[i];
      const bool in_set = folder.has_child || folder.listed;
      if (i > 0) {
        if (in_set && !out_.over_limit && (!folder.has_child || folder.mode != 0755)) {
          ListedEntry entry;
          entry.path = folder.path;
          entry.type = EntryType::kFolder;
          entry.mode = folder.mode;
          out_.entries.push_back(std::move(entry));
        }
        if (in_set) folders_[folder.parent].has_child = true;
      }
      if (out_.over_limit && folder.files > 0) {
        sizes.push_back({i == 0 ? "." : folder.path, folder.bytes, folder.files});
        if (i > 0 && folder.parent > 0) {
          folders_[folder.parent].bytes += folder.bytes;
          folders_[folder.parent].files += folder.files;
        }
      }
    }
    const bool by_bytes = out_.bytes > plan_.limit_bytes;
    std::sort(sizes.begin(), sizes.end(), [by_bytes](const FolderSize& a, const FolderSize& b) {
      const std::int64_t x = by_bytes ? a.bytes : a.files, y = by_bytes ? b.bytes : b.files;
      return x != y ? x > y : a.path < b.path;
    });
    if (sizes.size() > kLargestShown) sizes.resize(kLargestShown);
    out_.largest = std::move(sizes);
    std::sort(out_.entries.begin(), out_.entries.end(),
              [](const ListedEntry& a, const ListedEntry& b) { return a.path < b.path; });
    std::sort(out_.warnings.begin(), out_.warnings.end(),
              [](const Warning& a, const Warning& b) { return a.path < b.path; });
    // An ignore file that does not ship itself holds on the other side too.
    for (auto& [folder, content] : ignore_files_) {
      const std::string path = folder.empty() ? ".gitignore" : folder + "/.gitignore";
      const auto at = std::lower_bound(
          out_.entries.begin(), out_.entries.end(), path,
          [](const ListedEntry& entry, const std::string& p) { return entry.path < p; });
      if (at != out_.entries.end() && at->path == path) continue;
      plan_.ignore.files.push_back({Full(folder), std::move(content)});
    }
    out_.ignore = std::move(plan_.ignore);
  }

  const int root_;
  const std::string shown_;
  WalkPlan plan_;
  const IgnoreList own_;  // .gpulayerignore
  std::vector<Folder> folders_;
  std::vector<Pending> pending_;
  std::vector<std::pair<std::string, std::string>> ignore_files_;  // folder, content
  std::int64_t visited_after_limit_ = 0;
  Listing out_;
};

}  // namespace

Result<Listing> Walk(int root, const std::string& root_shown, WalkPlan plan) {
  return Walker(root, root_shown, std::move(plan)).Run();
}

}  // namespace gpulayer::tree
