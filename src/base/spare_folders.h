// Folders that are kept for another use instead of being deleted: making and deleting a folder and
// the files in it is most of what a very short job costs its machine.
//
// Threads:   any.
// Ownership: of every folder below its own; who takes one owns it from then on.
#ifndef GPULAYER_BASE_SPARE_FOLDERS_H_
#define GPULAYER_BASE_SPARE_FOLDERS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace gpulayer {

class SpareFolders {
 public:
  // Makes `dir` if absent. What an earlier process left there is taken over.
  static Result<std::unique_ptr<SpareFolders>> Open(const std::string& dir, std::size_t limit);

  // Renames one to `to`. False: there is none, or it could not be moved.
  bool Take(const std::string& to);
  // Renames `from`, of the same file system, to a place among the spares. REQUIRES: it is fit for
  // another use as it is. False: there are enough, or it could not be moved; it stays where it is.
  bool Give(const std::string& from);

 private:
  SpareFolders(std::string dir, std::size_t limit) : dir_(std::move(dir)), limit_(limit) {}

  const std::string dir_;
  const std::size_t limit_;
  Mutex mutex_;
  std::vector<std::string> names_ GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace gpulayer

#endif  // GPULAYER_BASE_SPARE_FOLDERS_H_
