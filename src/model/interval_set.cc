#include "model/interval_set.h"

#include <charconv>
#include <limits>

#include "base/text.h"

namespace gpulayer {

IntervalSet IntervalSet::Range(std::int64_t begin, std::int64_t end) {
  IntervalSet set;
  if (begin < end) {
    set.runs_[begin] = end;
    set.size_ = end - begin;
  }
  return set;
}

bool IntervalSet::Contains(std::int64_t n) const {
  auto it = runs_.upper_bound(n);
  return it != runs_.begin() && n < std::prev(it)->second;
}

std::int64_t IntervalSet::First() const { return runs_.begin()->first; }

void IntervalSet::Add(std::int64_t n) {
  if (Contains(n)) return;
  ++size_;
  std::int64_t begin = n;
  std::int64_t end = n + 1;
  auto next = runs_.upper_bound(n);
  if (next != runs_.begin() && std::prev(next)->second == n) {
    begin = std::prev(next)->first;
    runs_.erase(std::prev(next));
  }
  if (next != runs_.end() && next->first == end) {
    end = next->second;
    runs_.erase(next);
  }
  runs_[begin] = end;
}

void IntervalSet::Remove(std::int64_t n) {
  if (!Contains(n)) return;
  --size_;
  const auto it = std::prev(runs_.upper_bound(n));
  const auto [begin, end] = *it;
  runs_.erase(it);
  if (begin < n) runs_[begin] = n;
  if (n + 1 < end) runs_[n + 1] = end;
}

std::string IntervalSet::ToText() const {
  std::string out;
  for (const auto& [begin, end] : runs_) {
    if (!out.empty()) out += ',';
    out += std::to_string(begin);
    if (end - begin > 1) out += '-' + std::to_string(end - 1);
  }
  return out;
}

Result<IntervalSet> IntervalSet::FromText(std::string_view text) {
  IntervalSet set;
  if (text.empty()) return set;
  std::int64_t previous_end = -1;
  for (const std::string& run : Split(text, ',')) {
    const std::size_t dash = run.find('-');
    const std::string_view first = std::string_view(run).substr(0, dash);
    const std::string_view last =
        dash == std::string::npos ? first : std::string_view(run).substr(dash + 1);
    std::int64_t begin = 0;
    std::int64_t end = 0;
    const auto parsed = [](std::string_view s, std::int64_t& out) {
      const auto [p, e] = std::from_chars(s.data(), s.data() + s.size(), out);
      return e == std::errc() && p == s.data() + s.size() && !s.empty();
    };
    if (!parsed(first, begin) || !parsed(last, end) || begin <= previous_end || end < begin ||
        end == std::numeric_limits<std::int64_t>::max()) {
      return InvalidArgument("\"" + Printable(text) + "\" is not a set of task numbers");
    }
    set.runs_[begin] = end + 1;
    set.size_ += end + 1 - begin;
    previous_end = end;
  }
  return set;
}

}  // namespace gpulayer
