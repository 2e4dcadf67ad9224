#include "model/items.h"

#include <algorithm>
#include <initializer_list>

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

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool IsShell(std::string_view program) {
  return IsOneOf(BaseName(program), {"sh", "ash", "bash", "dash", "zsh", "ksh", "mksh", "fish"});
}

// Starts the program that its later words name.
bool StartsAnother(std::string_view program) {
  return IsOneOf(BaseName(program),
                 {"busybox", "env", "exec", "ionice", "nice", "nohup", "numactl", "setsid",
                  "stdbuf", "sudo", "taskset", "time", "timeout", "xargs"});
}

// Of the shell at command[shell]: the word that is its script; past the end: it has none.
std::size_t ScriptOf(const std::vector<std::string>& command, std::size_t shell) {
  bool has_script = false;
  for (std::size_t i = shell + 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word == "--command" || word.starts_with("--command=")) {  // fish's
      return word == "--command" ? i + 1 : i;
    }
    if (word == "--" || word == "-") return has_script ? i + 1 : command.size();
    if (word.empty() || (word[0] != '-' && word[0] != '+')) return has_script ? i : command.size();
    if (IsOneOf(word, {"--rcfile", "--init-file"})) ++i;
    if (word.starts_with("--")) continue;
    has_script |= word[0] == '-' && word.find('c') != std::string::npos;
    if (word.back() == 'o' || word.back() == 'O') ++i;  // -o pipefail
  }
  return command.size();
}

Status CheckNoShellReadsTheItem(const std::vector<std::string>& command) {
  if (command.empty()) return OkStatus();
  const std::size_t programs = StartsAnother(command.front()) ? command.size() : 1;
  for (std::size_t i = 0; i < programs; ++i) {
    if (!IsShell(command[i])) continue;
    const std::size_t script = ScriptOf(command, i);
    if (script >= command.size() || Places(command[script]) == 0) continue;
    const std::string shell(BaseName(command[i]));
    return InvalidArgument("--each: " + shell +
                           " would run what an item holds, where {} stands in its script. Write "
                           "\"$GPULAYER_ITEM\" there, with the quotes, or hand it over as an "
                           "argument: " +
                           shell + " -c 'echo \"$1\"' x {}");
  }
  return OkStatus();
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
  GPULAYER_RETURN_IF_ERROR(CheckNoShellReadsTheItem(spec.command));
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
