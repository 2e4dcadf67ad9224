#include "model/ids.h"

#include <charconv>

#include "base/text.h"

namespace gpulayer {
namespace {

bool ParseNumber(std::string_view text, std::int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() && out >= 0;
}

}  // namespace

std::string ToString(JobId job) { return std::to_string(job.value()); }

std::string ToString(const TaskRef& task) {
  return ToString(task.job) + "." + std::to_string(task.task.value());
}

std::string ToString(const AttemptRef& attempt) {
  return ToString(attempt.task) + "#" + std::to_string(attempt.number.value());
}

Result<ParsedTask> ParseTaskRef(std::string_view text) {
  const std::size_t dot = text.find('.');
  std::int64_t job = 0;
  std::int64_t task = 0;
  const bool has_task = dot != std::string_view::npos;
  if (!ParseNumber(text.substr(0, dot), job) || job == 0 ||
      (has_task && !ParseNumber(text.substr(dot + 1), task))) {
    return InvalidArgument("\"" + Printable(text) +
                           "\" is not a job: write 42, or 42.7 for a task");
  }
  return ParsedTask{{JobId(job), TaskIndex(task)}, has_task};
}

}  // namespace gpulayer
