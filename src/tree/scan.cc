#include "tree/scan.h"

#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/fs.h"
#include "base/text.h"
#include "tree/beneath.h"
#include "tree/ignore.h"
#include "tree/repository.h"
#include "tree/walk.h"

namespace gpulayer::tree {
namespace {

// The rules that hold in `root` and stand above it.
void AddRulesFromAbove(const std::string& root, WalkPlan* plan, std::vector<Warning>* warnings) {
  Result<std::optional<Repository>> found = FindRepository(root, Search::kUpwards);
  if (!found.ok()) warnings->push_back({".", found.status().message()});
  std::optional<Repository> repository = found.ok() ? *std::move(found) : std::nullopt;
  IgnoreRules& ignore = plan->ignore;
  const auto add = [&ignore](std::string dir, std::string content) {
    if (!content.empty()) ignore.files.push_back({std::move(dir), std::move(content)});
  };
  if (!repository.has_value()) {
    add("", GlobalIgnore());
    return;
  }
  if (!repository->problem.empty()) warnings->push_back({".", repository->problem});
  if (root != repository->root) {
    ignore.prefix = root.substr(repository->root == "/" ? 1 : repository->root.size() + 1);
  }
  ignore.fold_case = repository->fold == Case::kFold;
  add("", std::move(repository->global_ignore));
  add("", std::move(repository->info_exclude));
  for (std::size_t end = 0; end < ignore.prefix.size();) {
    const std::string dir = ignore.prefix.substr(0, end);
    if (Result<UniqueFd> top = OpenFile(repository->root, O_RDONLY | O_DIRECTORY); top.ok()) {
      add(dir, ReadIgnoreFile(top->get(), dir.empty() ? ".gitignore" : dir + "/.gitignore"));
    }
    end = std::min(ignore.prefix.find('/', end + 1), ignore.prefix.size());
  }
  plan->tracked = std::move(repository->tracked);
}

// Below the root, as the walk names it; empty: it lies elsewhere.
std::string PathBelow(const std::string& root, const std::string& folder) {
  char* resolved = realpath(folder.c_str(), nullptr);
  const std::string real = resolved == nullptr ? "" : resolved;
  free(resolved);
  const std::string prefix = root == "/" ? root : root + "/";
  return real.starts_with(prefix) ? real.substr(prefix.size()) : "";
}

// What people keep keys and passwords in, and hardly meant to send. Named once, and sent.
void WarnOfPrivateFiles(Listing* listing) {
  std::string found;
  for (const char* name : {".aws", ".gnupg", ".netrc", ".ssh"}) {
    const std::string folder = name + std::string("/");
    const bool ships = std::any_of(listing->entries.begin(), listing->entries.end(),
                                   [&](const ListedEntry& entry) {
                                     return entry.path == name || entry.path.starts_with(folder);
                                   });
    if (ships) found += (found.empty() ? "" : ", ") + std::string(name);
  }
  if (found.empty()) return;
  listing->warnings.insert(
      listing->warnings.begin(),
      {".", "private files ship: " + found + ". Lines in .gpulayerignore leave them out"});
}

// As a pattern that matches this path alone.
std::string AsPattern(std::string_view path) {
  std::string out = "/";
  for (const char c : path) {
    if (std::string_view("*?[\\ ").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string ToString(const Warning& warning) {
  if (warning.path == ".") return Printable(warning.reason);
  return "left out " + Printable(warning.path) + ": " + Printable(warning.reason);
}

Result<Listing> Scan(const std::string& root, const ScanOptions& options) {
  char* resolved = realpath(root.c_str(), nullptr);
  if (resolved == nullptr) return ErrnoStatus("read source folder " + root, errno);
  const std::string real = resolved;
  free(resolved);
  Result<UniqueFd> dir = OpenFile(real, O_RDONLY | O_DIRECTORY);
  if (!dir.ok()) return dir.status().Prefixed("read source folder");
  const GitLibrary held;
  WalkPlan plan;
  std::vector<Warning> warnings;
  AddRulesFromAbove(real, &plan, &warnings);
  plan.ignore.overriding = ReadIgnoreFile(dir->get(), ".gpulayerignore");
  plan.find_repositories = true;
  plan.limit_bytes = options.limit_bytes;
  plan.limit_files = options.limit_files;
  plan.entries_after_limit = options.entries_after_limit;
  plan.name_ignored = options.name_ignored;
  plan.leave_data_dirs = true;
  for (const std::string& folder : options.never) {
    if (std::string path = PathBelow(real, folder); !path.empty()) {
      plan.never.push_back(std::move(path));
    }
  }
  GPULAYER_ASSIGN_OR_RETURN(Listing listing, Walk(dir->get(), real, std::move(plan)));
  listing.root = real;
  listing.warnings.insert(listing.warnings.begin(), warnings.begin(), warnings.end());
  std::sort(listing.ignored.begin(), listing.ignored.end());
  WarnOfPrivateFiles(&listing);
  return listing;
}

std::string LinesToShip(const Listing& listing, const std::string& path) {
  const auto at = std::lower_bound(
      listing.entries.begin(), listing.entries.end(), path,
      [](const ListedEntry& entry, const std::string& wanted) { return entry.path < wanted; });
  const bool ships = at != listing.entries.end() && at->path == path;
  const bool warned =
      std::any_of(listing.warnings.begin(), listing.warnings.end(), [&](const Warning& warning) {
        return warning.path == path || path.starts_with(warning.path + "/");
      });
  const bool can =
      path.find('\n') == std::string::npos && ("/" + path).find("/.git/") == std::string::npos;
  if (ships || warned || !can) return "";
  std::string lines;
  const IgnoreList own(listing.ignore.overriding,
                       listing.ignore.fold_case ? Case::kFold : Case::kKeep);
  for (std::size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    // Nothing below it is looked at.
    if (own.Match(folder, true) == Verdict::kIgnored) {
      lines += "`!" + AsPattern(folder) + "/` and ";
    }
  }
  return lines + "`!" + AsPattern(path) + "`";
}

Status CheckLimit(const Listing& listing, const ScanOptions& options) {
  if (!listing.over_limit) return OkStatus();
  const auto files = [](std::int64_t n) {
    return std::to_string(n) + (n == 1 ? " file" : " files");
  };
  const bool by_bytes = listing.bytes > options.limit_bytes;
  std::string text = "ship " + Printable(listing.root) + ": it holds " +
                     (listing.counted_all ? "" : "at least ") + FormatSize(listing.bytes) + " in " +
                     files(listing.files) + ", more than the limit of " +
                     (by_bytes ? FormatSize(options.limit_bytes) : files(options.limit_files)) +
                     ". Leave out what the job does not need (.gitignore or .gpulayerignore), or "
                     "raise --source-limit. Largest folders:";
  for (const FolderSize& folder : listing.largest) {
    text += "\n  " + FormatSize(folder.bytes) + " in " + files(folder.files) + "  " +
            Printable(folder.path);
  }
  return ResourceExhausted(std::move(text));
}

}  // namespace gpulayer::tree
