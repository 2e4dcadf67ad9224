// A set of task numbers kept as runs: a million queued tasks of an array are one entry.
#ifndef GPULAYER_MODEL_INTERVAL_SET_H_
#define GPULAYER_MODEL_INTERVAL_SET_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gpulayer {

// Numbers >= 0. Add and Remove are logarithmic in the number of runs.
class IntervalSet {
 public:
  IntervalSet() = default;
  static IntervalSet Range(std::int64_t begin, std::int64_t end);  // [begin, end)

  bool empty() const { return runs_.empty(); }
  std::int64_t size() const { return size_; }
  bool Contains(std::int64_t n) const;
  std::int64_t First() const;  // REQUIRES: !empty()
  void Add(std::int64_t n);
  void Remove(std::int64_t n);  // nothing happens if it is not inside

  const std::map<std::int64_t, std::int64_t>& runs() const {
    return runs_;
  }  // begin -> end (exclusive)

  std::string ToText() const;  // "0-99,105": stored in the database, do not change
  static Result<IntervalSet> FromText(std::string_view text);

  friend bool operator==(const IntervalSet&, const IntervalSet&) = default;

 private:
  std::map<std::int64_t, std::int64_t> runs_;
  std::int64_t size_ = 0;
};

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_INTERVAL_SET_H_
