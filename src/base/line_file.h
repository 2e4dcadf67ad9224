// The lines of a file by number, without the file in memory.
#ifndef GPULAYER_BASE_LINE_FILE_H_
#define GPULAYER_BASE_LINE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/fs.h"
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

 private:
  static constexpr std::int64_t kStride = 1024;

  UniqueFd fd_;
  std::int64_t count_ = 0;
  std::int64_t longest_ = 0;
  bool has_nul_ = false;
  std::vector<std::int64_t> starts_;  // of lines 0, kStride, 2 * kStride, ...
};

}  // namespace gpulayer

#endif  // GPULAYER_BASE_LINE_FILE_H_
