#include "server/rpc/log_tail.h"

#include <algorithm>

namespace gpulayer::rpc {

void LogTail::Add(std::int64_t offset, const std::vector<FrameView>& shown) {
  Block block{offset, 0};
  for (const FrameView& frame : shown) {
    if (frame.data.empty()) continue;
    block.newlines += std::count(frame.data.begin(), frame.data.end(), '\n');
    any_ = true;
    ends_with_newline_ = frame.data.back() == '\n';
  }
  blocks_.push_back(block);
}

LogTail::Start LogTail::Find(std::int64_t lines, std::int64_t end) const {
  if (lines <= 0 || !any_) return {end, 0};
  // What is shown begins behind this newline, counted from the end.
  const std::int64_t wanted = lines + (ends_with_newline_ ? 1 : 0);
  std::int64_t seen = 0;
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    seen += block->newlines;
    if (seen >= wanted) return {block->offset, seen - wanted + 1};
  }
  return {blocks_.front().offset, 0};
}

std::string_view SkipLines(std::string_view data, std::int64_t* newlines) {
  while (*newlines > 0) {
    const std::size_t at = data.find('\n');
    if (at == std::string_view::npos) return {};
    data.remove_prefix(at + 1);
    --*newlines;
  }
  return data;
}

}  // namespace gpulayer::rpc
