#include "worker/handed_over.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault_point.h"
#include "base/fs.h"
#include "base/own_file.h"
#include "tree/beneath.h"
#include "wire/tree.h"

namespace gpulayer::worker {

Status HandedOver::Load() {
  if (!PathExists(file_)) return OkStatus();
  GPULAYER_ASSIGN_OR_RETURN(const std::string bytes, ReadOwnFile(file_, kNoLimit));
  GPULAYER_ASSIGN_OR_RETURN(Tree tree, wire::ParseTree(bytes));
  MutexLock lock(mutex_);
  for (TreeEntry& entry : tree.entries) files_[entry.path] = std::move(entry);
  return OkStatus();
}

Status HandedOver::TakeAway(int root, const std::string& dir, const std::string& path,
                            const tree::HashedFile& file) {
  const std::string whole = JoinPath(dir, path);
  if (!whole.starts_with(base_ + "/"))
    return Internal("hand over " + whole + ": not below " + base_);
  const std::string above = path.find('/') == std::string::npos ? "" : DirName(path);
  const UniqueFd folder = tree::OpenBeneath(root, above, O_RDONLY | O_DIRECTORY);
  struct stat st = {};
  if (!folder.valid() ||
      fstatat(folder.get(), BaseName(path).c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return ErrnoStatus("take away " + whole, errno);
  }
  if (st.st_ino != file.stamp.inode || st.st_dev != file.stamp.device) {
    return FailedPrecondition("take away " + whole + ": it is another file by now");
  }
  TreeEntry entry;
  entry.path = whole.substr(base_.size() + 1);
  entry.mode = st.st_mode & 0777;
  entry.size = file.stamp.size;
  entry.hash = file.hash;
  {
    MutexLock lock(mutex_);
    Tree tree;
    files_[entry.path] = entry;
    for (const auto& [name, known] : files_) tree.entries.push_back(known);
    const Status written = WriteFileAtomic(file_, wire::SerializeTree(tree));
    if (!written.ok()) {
      files_.erase(entry.path);
      return written;
    }
  }
  FaultPoint("worker.handed_over");
  if (unlinkat(folder.get(), BaseName(path).c_str(), 0) != 0) {
    return ErrnoStatus("take away " + whole, errno);
  }
  return OkStatus();
}

std::map<std::string, TreeEntry> HandedOver::files() {
  MutexLock lock(mutex_);
  std::map<std::string, TreeEntry> out;
  for (const auto& [path, entry] : files_) out.emplace(JoinPath(base_, path), entry);
  return out;
}

}  // namespace gpulayer::worker
