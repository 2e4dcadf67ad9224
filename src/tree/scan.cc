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
#include "tree/repository.h"
#include "tree/walk.h"

namespace gpulayer::tree {
namespace {

// The rules that hold in `root` and stand above it.
void AddRulesFromAbove(const std::string& root, std::optional<Repository> repository,
                       WalkPlan* plan, std::vector<Warning>* warnings) {
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
  AddRulesFromAbove(real, FindRepository(real, Search::kUpwards), &plan, &warnings);
  plan.ignore.overriding = ReadIgnoreFile(dir->get(), ".gpulayerignore");
  plan.find_repositories = true;
  plan.limit_bytes = options.limit_bytes;
  plan.limit_files = options.limit_files;
  plan.entries_after_limit = options.entries_after_limit;
  GPULAYER_ASSIGN_OR_RETURN(Listing listing, Walk(dir->get(), real, std::move(plan)));
  listing.root = real;
  listing.warnings.insert(listing.warnings.begin(), warnings.begin(), warnings.end());
  return listing;
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
