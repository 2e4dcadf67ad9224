#include <map>

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

std::string Bash(const std::vector<VerbInfo>& verbs) {
  std::string out =
      "_gpulayer() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" path=\"\" i word\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=\"${COMP_WORDS[i]}\"\n"
      "    # Behind -- stands a command of the worker's.\n"
      "    [[ \"$word\" == \"--\" ]] && return\n"
      "    case \"$path${path:+ }$word\" in\n";
  const auto words = WordsByPath(verbs);
  for (const auto& [path, unused] : words) {
    if (!path.empty()) out += "      '" + path + "') path='" + path + "' ;;\n";
  }
  out += "    esac\n  done\n  local words=\"\"\n  case \"$path\" in\n";
  for (const auto& [path, list] : words) {
    out += "    '" + path + "') words='" + list.substr(list.empty() ? 0 : 1) + "' ;;\n";
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

std::string Fish(const std::vector<VerbInfo>& verbs) {
  // True if the verbs typed so far are exactly these.
  std::string out =
      "function __gpulayer_at\n"
      "  set -l typed\n"
      "  for word in (commandline -opc)[2..]\n"
      "    if test \"$word\" = --\n      return 1\n    end\n"
      "    string match -q -- '-*' $word; or set -a typed $word\n"
      "  end\n"
      "  test (count $typed) -ge (count $argv); or return 1\n"
      "  test (count $argv) -eq 0 -a (count $typed) -gt 0; and return 1\n"
      "  for i in (seq (count $argv))\n"
      "    test $typed[$i] = $argv[$i]; or return 1\n"
      "  end\n"
      "end\n";
  for (const VerbInfo& verb : verbs) {
    const std::string parent = Path(verb, verb.path.size() - 1);
    out += "complete -c gpulayer -n '__gpulayer_at" + (parent.empty() ? "" : " " + parent) +
           "' -a " + verb.path.back() + " -d " + Quoted(verb.help) + "\n";
    for (const std::string& option : verb.options) {
      out += "complete -c gpulayer -n '__gpulayer_at " + Path(verb, verb.path.size()) + "' -l " +
             option.substr(2) + "\n";
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
