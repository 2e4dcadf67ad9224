#include "server/rpc/trees.h"

#include <string>
#include <vector>

#include "model/tree.h"
#include "tree/unpack.h"
#include "wire/tree.h"

namespace gpulayer::rpc {
namespace {

constexpr auto kRemembered = std::chrono::seconds(30);
constexpr std::size_t kRememberedTrees = 4096;

}  // namespace

Status Trees::CheckIsHere(const Hash& tree) {
  const auto now = std::chrono::steady_clock::now();
  {
    MutexLock lock(mutex_);
    const auto found = whole_.find(tree);
    if (found != whole_.end() && now - found->second < kRemembered) return OkStatus();
  }
  GPULAYER_RETURN_IF_ERROR(Look(tree));
  MutexLock lock(mutex_);
  if (whole_.size() >= kRememberedTrees) whole_.clear();
  whole_[tree] = now;
  return OkStatus();
}

void Trees::Forget() {
  MutexLock lock(mutex_);
  whole_.clear();
}

Status Trees::Look(const Hash& tree) {
  Result<std::string> manifest = blobs_.GetWhole(tree, kMaxManifestBytes);
  if (!manifest.ok()) {
    // A damaged one has been set aside, and is sent again like one that was never here.
    const StatusCode code = manifest.status().code();
    if (code != StatusCode::kNotFound && code != StatusCode::kDataLoss) return manifest.status();
    return FailedPrecondition("tree " + tree.hex() +
                              ": its manifest is not on the server. Upload it first.");
  }
  GPULAYER_ASSIGN_OR_RETURN(const Tree parsed, wire::ParseTree(*manifest));
  GPULAYER_RETURN_IF_ERROR(tree::CheckTree(parsed).Prefixed("tree " + tree.hex()));
  std::vector<Hash> content;
  for (const TreeEntry& entry : parsed.entries) {
    if (entry.type == EntryType::kFile) content.push_back(entry.hash);
  }
  const std::vector<Hash> missing = blobs_.Missing(content);
  if (missing.empty()) return OkStatus();
  return FailedPrecondition("tree " + tree.hex() + ": " + std::to_string(missing.size()) +
                            " of its files are not on the server, the first is " +
                            missing.front().hex() + ". Upload them first.");
}

}  // namespace gpulayer::rpc
