#include "gpulayer/text.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/fs.h"
#include "base/text.h"
#include "client/standard_input.h"
#include "gpulayer/version.h"
#include "model/ids.h"
#include "model/limits.h"
#include "wire/version.h"

namespace gpulayer::api {

using std::chrono::milliseconds;

const char* Version() { return wire::kProgramVersion; }

Result<std::int64_t> ParseSize(std::string_view text) { return gpulayer::ParseSize(text); }
std::string FormatSize(std::int64_t bytes) { return gpulayer::FormatSize(bytes); }

Result<milliseconds> ParseDuration(std::string_view text) {
  GPULAYER_ASSIGN_OR_RETURN(const Duration d, gpulayer::ParseDuration(text));
  return std::chrono::duration_cast<milliseconds>(d);
}
std::string FormatDuration(milliseconds d) { return gpulayer::FormatDuration(d); }

std::string FormatTime(Time t) {
  const std::int64_t us = t.time_since_epoch().count();
  std::int64_t seconds = us / 1'000'000;
  std::int64_t rest = us % 1'000'000;
  if (rest < 0) {
    rest += 1'000'000;
    --seconds;
  }
  const auto when = static_cast<std::time_t>(seconds);
  std::tm local{};
  if (::localtime_r(&when, &local) == nullptr) return "out of range";
  char date[64];
  char zone[16];
  if (std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &local) == 0 ||
      std::strftime(zone, sizeof zone, "%z", &local) != 5) {
    return "out of range";
  }
  char out[128];
  std::snprintf(out, sizeof out, "%s.%06d%.3s:%s", date, static_cast<int>(rest), zone, zone + 3);
  return out;
}

Result<TaskSelector> ParseTask(std::string_view text) {
  GPULAYER_ASSIGN_OR_RETURN(const ParsedTask parsed, ParseTaskRef(text));
  TaskSelector out;
  out.job = parsed.ref.job.value();
  if (parsed.has_task) out.task = parsed.ref.task.value();
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> ReadEnvFile(const std::string& path) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, limits::kMaxMessageBytes));
  std::vector<std::pair<std::string, std::string>> out;
  int number = 0;
  for (std::string line : Split(text, '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || equals == begin) {
      return InvalidArgument(path + ", line " + std::to_string(number) + ": not of the form K=V");
    }
    std::string name = line.substr(begin, equals - begin);
    if (name.rfind("export ", 0) == 0) {
      return InvalidArgument(path + ", line " + std::to_string(number) +
                             ": drop `export`: a line is K=V, no shell reads it");
    }
    if (name.find_first_of(" \t") != std::string::npos) {
      return InvalidArgument(path + ", line " + std::to_string(number) + ": the name \"" +
                             Printable(name) +
                             "\" holds a space. Write K=V, without spaces around =");
    }
    out.emplace_back(std::move(name), line.substr(equals + 1));
  }
  return out;
}

namespace {

// Who gives the value in the place of the name is not to see it again.
std::string SecretName(std::string_view name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  return plain ? std::string(name) : "NAME";
}

Result<std::string> SecretFromEnv(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): nobody sets any
  if (value != nullptr) return std::string(value);
  if (SecretName(name) != name) {
    return InvalidArgument("what is given is no name of a variable. Write --secret NAME");
  }
  return InvalidArgument("the environment variable " + name +
                         " is not set here. Export it, or write " + name + "=@FILE or " + name +
                         "=-");
}

Result<std::string> SecretFromStdin() {
  GPULAYER_RETURN_IF_ERROR(client::CheckStandardInput());
  if (::isatty(STDIN_FILENO) == 0) return ReadAll(STDIN_FILENO, limits::kMaxSecretBytes + 1);
  std::string line;
  for (char c = 0; line.size() <= limits::kMaxSecretBytes; line += c) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, ReadSome(STDIN_FILENO, &c, 1));
    if (n == 0 || c == '\n') break;
  }
  return line;
}

}  // namespace

Result<std::pair<std::string, std::string>> ReadSecret(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string name(text.substr(0, equals));
  const std::string from(equals == std::string_view::npos ? "" : text.substr(equals + 1));
  if (name.empty()) return InvalidArgument("its name is missing. Write NAME, NAME=@FILE or NAME=-");
  const std::string shown = SecretName(name);
  Result<std::string> value = std::string();
  if (equals == std::string_view::npos) {
    value = SecretFromEnv(name);
  } else if (from == "-") {
    value = SecretFromStdin();
  } else if (from.size() > 1 && from[0] == '@') {
    value = ReadFile(from.substr(1), limits::kMaxSecretBytes + 1);
  } else {
    return InvalidArgument(shown +
                           ": a value on the command line is seen by everybody on this machine. "
                           "Write --secret " +
                           shown + " for the value of the environment variable, or " + shown +
                           "=@FILE, or " + shown + "=- for standard input");
  }
  if (!value.ok()) return value.status();
  if (equals != std::string_view::npos && !value->empty() && value->back() == '\n') {
    value->pop_back();
  }
  if (value->empty()) return InvalidArgument(shown + ": its value is empty");
  return std::pair(name, *std::move(value));
}

Result<ArrayText> ParseArray(std::string_view text) {
  const auto bad = [&] {
    return InvalidArgument("\"" + Printable(text) +
                           "\" is not FIRST-LAST[:STEP][%MAX], as 0-99 or 0-99:2%4");
  };
  // The number behind `mark`, which is taken off `from`.
  const auto number = [](std::string_view& from, char mark, std::int64_t* out) {
    const std::size_t at = mark == '\0' ? 0 : from.find(mark);
    if (at == std::string_view::npos) return true;
    const std::string_view digits = from.substr(mark == '\0' ? 0 : at + 1);
    from = from.substr(0, at);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *out);
    return error == std::errc() && end == digits.data() + digits.size() && digits[0] != '-';
  };
  ArrayText out;
  std::string_view rest = text;
  std::int64_t max = 1;
  std::int64_t last = -1;
  if (!number(rest, '%', &max) || !number(rest, ':', &out.tasks.step) ||
      !number(rest, '-', &last) || !number(rest, '\0', &out.tasks.first)) {
    return bad();
  }
  out.tasks.last = text.find('-') == std::string_view::npos ? out.tasks.first : last;
  if (max < 1 || out.tasks.step < 1) return bad();
  if (text.find('%') != std::string_view::npos) out.max_parallel = max;
  if (out.tasks.last < out.tasks.first) {
    return InvalidArgument("\"" + Printable(text) + "\": the last number is below the first");
  }
  return out;
}

Result<std::vector<std::string>> ReadItems(const std::string& path) {
  constexpr auto kLimit = static_cast<std::size_t>(limits::kMaxItemsBytes);
  if (path == "-") GPULAYER_RETURN_IF_ERROR(client::CheckStandardInput());
  // Not by a name as /dev/stdin, which cannot be opened if it is a socket.
  Result<std::string> read = path == "-" ? ReadAll(STDIN_FILENO, kLimit) : ReadFile(path, kLimit);
  if (!read.ok()) return path == "-" ? read.status().Prefixed("standard input") : read.status();
  std::string text = *std::move(read);
  if (text.empty()) return std::vector<std::string>();
  if (text.back() == '\n') text.pop_back();
  return Split(text, '\n');
}

bool IsValidUtf8(std::string_view bytes) { return gpulayer::IsValidUtf8(bytes); }
std::string Printable(std::string_view bytes) { return gpulayer::Printable(bytes); }
std::string Base64Encode(std::string_view bytes) { return gpulayer::Base64Encode(bytes); }

}  // namespace gpulayer::api
