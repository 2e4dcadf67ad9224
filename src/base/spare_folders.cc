#include "base/spare_folders.h"

#include <cstdio>
#include <utility>

#include "base/fs.h"
#include "base/random.h"

namespace gpulayer {

Result<std::unique_ptr<SpareFolders>> SpareFolders::Open(const std::string& dir,
                                                         std::size_t limit) {
  GPULAYER_RETURN_IF_ERROR(MakeDirs(dir));
  GPULAYER_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(dir));
  std::unique_ptr<SpareFolders> spares(new SpareFolders(dir, limit));
  MutexLock lock(spares->mutex_);
  spares->names_ = std::move(names);
  return spares;
}

bool SpareFolders::Take(const std::string& to) {
  std::string name;
  {
    MutexLock lock(mutex_);
    if (names_.empty()) return false;
    name = std::move(names_.back());
    names_.pop_back();
  }
  return rename(JoinPath(dir_, name).c_str(), to.c_str()) == 0;
}

bool SpareFolders::Give(const std::string& from) {
  const std::string name = RandomHex(8);
  {
    MutexLock lock(mutex_);
    if (names_.size() >= limit_) return false;
  }
  if (rename(from.c_str(), JoinPath(dir_, name).c_str()) != 0) return false;
  MutexLock lock(mutex_);
  names_.push_back(name);
  return true;
}

}  // namespace gpulayer
