#include <algorithm>
#include <map>
#include <set>

#include "cli/args.h"
#include "cli/print.h"

namespace gpulayer::cli {
namespace {

std::string Path(const VerbInfo& verb, std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += (i == 0 ? "" : " ") + verb.path[i];
  return out;
}

// What may follow a path of verbs: the verbs below it, or its options.
std::map<std::string, std::string> WordsByPath(const std::vector<VerbInfo>& verbs) {
  std::map<std::string, std::string> words;
  for (const VerbInfo& verb : verbs) {
    words[Path(verb, verb.path.size() - 1)] += " " + verb.path.back();
    std::string& own = words[Path(verb, verb.path.size())];
    for (const std::string& option : verb.options) own += " " + option;
  }
  return words;
}

// What stands behind an option, or behind a verb in the place of its name.
enum class ValueKind { kFolder, kFile, kLogin, kWorker, kWords };
struct Value {
  const char* before;  // an option, or the path of a verb
  ValueKind kind;
  const char* words = "";
};
constexpr Value kValues[] = {
    {"--source", ValueKind::kFolder},
    {"--to", ValueKind::kFolder},
    {"--data-dir", ValueKind::kFolder},
    {"--env-file", ValueKind::kFile},
    {"--stdin", ValueKind::kFile},
    {"--each", ValueKind::kFile},
    {"--role", ValueKind::kWords, "client worker admin"},
    {"--state", ValueKind::kWords,
     "blocked queued preparing running finishing succeeded failed cancelled timed_out"},
    {"--target", ValueKind::kLogin, "here local remote"},
    {"--worker", ValueKind::kWorker},
    {"worker show", ValueKind::kWorker},
    {"target use", ValueKind::kLogin},
    {"logout", ValueKind::kLogin},
    {"completion", ValueKind::kWords, "bash zsh fish"},
};

// The first column but its head; logins are files of this machine, so that takes no server.
constexpr char kLogins[] = "gpulayer target list 2>/dev/null | sed '1d;s/ .*//'";
// A server that is slow to answer is not waited for.
constexpr char kWorkers[] = "timeout 1 gpulayer worker list 2>/dev/null | sed '1d;s/ .*//'";

// The command whose output are the values; empty: none.
std::string CommandOf(const Value& value) {
  if (value.kind == ValueKind::kLogin) return kLogins;
  return value.kind == ValueKind::kWorker ? kWorkers : "";
}

bool IsOption(const Value& value) { return value.before[0] == '-'; }

// The list of words for bash, in double quotes.
std::string BashWords(const Value& value) {
  const std::string words = value.words;
  const std::string command = CommandOf(value);
  return command.empty() ? words : words + (words.empty() ? "$(" : " $(") + command + ")";
}

// Options whose values nobody can know: nothing is offered, not even files.
std::string FreeOptions(const std::vector<VerbInfo>& verbs) {
  std::set<std::string> options;
  for (const VerbInfo& verb : verbs) {
    options.insert(verb.with_value.begin(), verb.with_value.end());
  }
  for (const Value& value : kValues) options.erase(value.before);
  std::string out;
  for (const std::string& option : options) out += (out.empty() ? "" : "|") + option;
  return out;
}

std::string BashValues(const std::vector<VerbInfo>& verbs) {
  std::string out = "  case \"$prev\" in\n";
  for (const Value& value : kValues) {
    if (!IsOption(value)) continue;
    out += std::string("    ") + value.before + ") ";
    if (value.kind == ValueKind::kFolder || value.kind == ValueKind::kFile) {
      const char* action = value.kind == ValueKind::kFolder ? "-d" : "-f";
      // Names with spaces stay whole; a folder goes on with what is in it.
      out += std::string("compopt -o filenames 2>/dev/null; local IFS=$'\\n'; ") +
             "COMPREPLY=($(compgen " + action + " -- \"$cur\")); return ;;\n";
    } else {
      out += "COMPREPLY=($(compgen -W \"" + BashWords(value) + "\" -- \"$cur\")); return ;;\n";
    }
  }
  return out + "    " + FreeOptions(verbs) +
         ") compopt +o default 2>/dev/null; return ;;\n  esac\n";
}

std::string Bash(const std::vector<VerbInfo>& verbs) {
  // No variable `path`: zsh takes that for PATH.
  std::string out =
      "_gpulayer() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" at=\"\" i word\n"
      "  local prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  COMPREPLY=()\n"
      "  # bash takes --to=x apart at the sign.\n"
      "  if [[ \"$cur\" == \"=\" ]]; then cur=\"\"\n"
      "  elif [[ \"$prev\" == \"=\" ]]; then prev=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=\"${COMP_WORDS[i]}\"\n"
      "    # Behind -- stands a command of the worker's.\n"
      "    [[ \"$word\" == \"--\" ]] && return\n"
      "    case \"$at${at:+ }$word\" in\n";
  const auto words = WordsByPath(verbs);
  for (const auto& [path, unused] : words) {
    if (!path.empty()) out += "      '" + path + "') at='" + path + "' ;;\n";
  }
  out += "    esac\n  done\n" + BashValues(verbs) + "  local words=\"\"\n  case \"$at\" in\n";
  for (const auto& [path, list] : words) {
    out += "    '" + path + "') words='" + list.substr(list.empty() ? 0 : 1) + "' ;;\n";
  }
  out += "  esac\n  case \"$at\" in\n";
  for (const Value& value : kValues) {
    if (!IsOption(value)) {
      out += std::string("    '") + value.before + "') words+=\" " + BashWords(value) + "\" ;;\n";
    }
  }
  out +=
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "}\n"
      "complete -o default -F _gpulayer gpulayer\n";
  return out;
}

std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("\\'") : std::string(1, c);
  return out + "'";
}

// " -r -F" and such, behind an option or a verb; empty: nothing is known.
std::string FishValue(const std::string& before) {
  for (const Value& value : kValues) {
    if (before != value.before) continue;
    if (value.kind == ValueKind::kFile) return " -r -F";
    if (value.kind == ValueKind::kFolder) return " -x -a '(__fish_complete_directories)'";
    const std::string command = CommandOf(value);
    return std::string(" -x -a \"") + value.words + (command.empty() ? "" : " (" + command + ")") +
           "\"";
  }
  return "";
}

std::string Fish(const std::vector<VerbInfo>& verbs) {
  // __gpulayer_in: the verb is this one; __gpulayer_at: and nothing but options stands behind it.
  // Behind -- stands a command of the worker's, whose words are files here as often as not.
  std::string out =
      "function __gpulayer_words\n"
      "  for word in (commandline -opc)[2..]\n"
      "    test \"$word\" = --; and return 1\n"
      "    string match -q -- '-*' $word; or echo $word\n"
      "  end\n"
      "  return 0\n"
      "end\n"
      "function __gpulayer_at\n"
      "  set -l typed (__gpulayer_words); or return 1\n"
      "  test \"$typed\" = \"$argv\"\n"
      "end\n"
      "function __gpulayer_in\n"
      "  set -l typed (__gpulayer_words); or return 1\n"
      "  test (count $typed) -ge (count $argv); or return 1\n"
      "  test \"$typed[1..\"(count $argv)\"]\" = \"$argv\"\n"
      "end\n"
      "function __gpulayer_behind\n"
      "  not __gpulayer_words >/dev/null\n"
      "end\n"
      "complete -c gpulayer -f\n"
      "complete -c gpulayer -n __gpulayer_behind -F\n";
  for (const VerbInfo& verb : verbs) {
    const std::string parent = Path(verb, verb.path.size() - 1);
    out += "complete -c gpulayer -n '__gpulayer_at" + (parent.empty() ? "" : " " + parent) +
           "' -a " + verb.path.back() + " -d " + Quoted(verb.help) + "\n";
    for (const std::string& option : verb.options) {
      out += "complete -c gpulayer -n '__gpulayer_in " + Path(verb, verb.path.size()) + "' -l " +
             option.substr(2);
      const bool has_value = std::find(verb.with_value.begin(), verb.with_value.end(), option) !=
                             verb.with_value.end();
      const std::string value = FishValue(option);
      out += (value.empty() && has_value ? " -x" : value) + "\n";
    }
    const std::string path = Path(verb, verb.path.size());
    if (const std::string value = FishValue(path); !value.empty()) {
      out += "complete -c gpulayer -n '__gpulayer_at " + path + "'" + value + "\n";
    }
  }
  return out;
}

}  // namespace

int RunCompletion(const std::string& shell, const std::vector<VerbInfo>& verbs) {
  if (shell == "fish") return PrintOut(Fish(verbs)), 0;
  // zsh runs bash's completions.
  const std::string head = shell == "zsh" ? "autoload -U +X compinit && compinit\n"
                                            "autoload -U +X bashcompinit && bashcompinit\n"
                                          : "";
  return PrintOut(head + Bash(verbs)), 0;
}

}  // namespace gpulayer::cli
