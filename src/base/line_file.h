// The lines of a file by number, without the file in memory.
#ifndef GPULAYER_BASE_LINE_FILE_H_
#define GPULAYER_BASE_LINE_FILE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/status.h"

namespace gpulayer {

// A line ends with '\n'; the last one may lack it. Bytes are bytes.
// Threads: Line() from any thread at once. The file must not change.
class LineFile {
 public:
  // Reads all of it once, and remembers where each 1024th line begins.
  static Result<LineFile> Open(UniqueFd fd);

  std::int64_t count() const { return count_; }
  std::int64_t longest() const { return longest_; }  // bytes, without its end
  bool has_nul() const { return has_nul_; }
  // The n-th one, from 0, without its end. OUT_OF_RANGE: there is no such line.
  Result<std::string> Line(std::int64_t n) const;
  // Several, in ascending order, in one pass over what lies between them; those that `budget` bytes
  // have room for.
  Result<std::vector<std::string>> Lines(const std::vector<std::int64_t>& ascending,
                                         std::size_t budget) const;

 private:
  static constexpr std::int64_t kStride = 1024;

  UniqueFd fd_;
  std::int64_t count_ = 0;
  std::int64_t longest_ = 0;
  bool has_nul_ = false;
  std::vector<std::int64_t> starts_;  // of lines 0, kStride, 2 * kStride, ...
};

// The latest such files, kept open, by the hash of their content.
// Threads: any.
class LineFiles {
 public:
  explicit LineFiles(std::size_t most) : most_(most) {}
  // Calls `open` if it is not here.
  Result<std::shared_ptr<const LineFile>> Get(const Hash& hash,
                                              const std::function<Result<UniqueFd>()>& open);

 private:
  std::shared_ptr<const LineFile> Find(const Hash& hash) GPULAYER_REQUIRES(mutex_);

  const std::size_t most_;
  Mutex mutex_;
  std::deque<std::pair<Hash, std::shared_ptr<const LineFile>>> files_ GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace gpulayer

#endif  // GPULAYER_BASE_LINE_FILE_H_
