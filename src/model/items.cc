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
  const std::string with = "job: with an item of " + std::to_string(longest) + " bytes ";
  const std::string advice = ". Put such items into files and name those.";
  std::size_t largest = kVariable.size() + item;
  std::size_t all = largest;
  for (const std::string& word : spec.command) {
    const std::size_t size = word.size() + Places(word) * item;
    largest = std::max(largest, size);
    all += size + 1 + sizeof(char*);
  }
  if (largest > limits::kMaxArgBytes) {
    return ResourceExhausted(with + "an argument is over the kernel's limit of " +
                             std::to_string(limits::kMaxArgBytes) + " bytes" + advice);
  }
  for (const EnvVar& var : spec.env) {
    all += var.name.size() + var.value.size() + 2 + sizeof(char*);
  }
  if (all > limits::kMaxArgsAndEnvBytes) {
    return ResourceExhausted(with + "command and environment are over the kernel's limit of " +
                             std::to_string(limits::kMaxArgsAndEnvBytes) + " bytes" + advice);
  }
  return OkStatus();
}

}  // namespace gpulayer
