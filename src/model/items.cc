#include "model/items.h"

#include <algorithm>

#include "model/limits.h"

namespace gpulayer {
namespace {

constexpr std::string_view kPlace = "{}";
constexpr std::string_view kVariable = "GPULAYER_ITEM=";

std::size_t Places(std::string_view word) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = word.find(kPlace, at)) != std::string_view::npos;
       at += kPlace.size()) {
    ++n;
  }
  return n;
}

}  // namespace

std::vector<std::string> WithItem(std::vector<std::string> command, std::string_view item) {
  for (std::string& word : command) {
    for (std::size_t at = 0; (at = word.find(kPlace, at)) != std::string::npos; at += item.size()) {
      word.replace(at, kPlace.size(), item);
    }
  }
  return command;
}

Status CheckItems(const JobSpec& spec, std::int64_t lines, std::int64_t longest, bool has_nul) {
  if (lines != spec.tasks.count) {
    return InvalidArgument("job: " + std::to_string(lines) + " items for " +
                           std::to_string(spec.tasks.count) + " tasks");
  }
  if (has_nul)
    return InvalidArgument("job: an item holds a NUL byte, which no program can receive");
  const auto item = static_cast<std::size_t>(longest);
  std::size_t largest = kVariable.size() + item;
  for (const std::string& word : spec.command) {
    largest = std::max(largest, word.size() + Places(word) * item);
  }
  if (largest > limits::kMaxArgBytes) {
    return InvalidArgument("job: with an item of " + std::to_string(longest) +
                           " bytes an argument is over the kernel's limit of " +
                           std::to_string(limits::kMaxArgBytes) +
                           " bytes. Put such items into files and name those.");
  }
  return OkStatus();
}

}  // namespace gpulayer
