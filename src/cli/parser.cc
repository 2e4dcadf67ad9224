// The only file that sees CLI11: it costs seconds in each.
#include "cli/parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <list>
#include <map>
#include <sstream>

#include "cli/hints.h"
#include "cli/print.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

// The hidden option of a verb that takes a command; what stands there lacks its `--`.
constexpr char kExtra[] = "extra";

// No help is named for it: the verb's does not know it.
struct NotBuiltError : CLI::Error {
  explicit NotBuiltError(const std::string& what)
      : CLI::Error("NotBuiltError", what, CLI::ExitCodes(kUsage)) {}
};

[[noreturn]] void NotBuiltYet(const std::string& name) {
  throw NotBuiltError(name + " is not built yet in this version");
}

std::vector<CLI::App*> SubVerbs(CLI::App* app) {
  return app->get_subcommands([](const CLI::App*) { return true; });
}

// The parser does not know that a command stands behind `--`.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const CLI::Option* extra = app->get_option_no_throw(kExtra);
    if (extra == nullptr) return CLI::Formatter::make_usage(app, std::move(name));
    std::string usage = "Usage: " + name + " [OPTIONS] ";
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional() && option != extra) usage += make_option_usage(option) + " ";
    }
    const std::string command = "-- PROGRAM [ARGUMENT…]";
    return usage + (extra->get_configurable() ? command : "[" + command + "]") + "\n";
  }
  // To the parser every word may be missing: our own checks say it better. Those that may be are
  // marked by what means something only where options are read from a file.
  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string name = option->get_name(true) + (option->get_expected_max() > 1 ? "..." : "");
    return !option->get_configurable() ? "[" + name + "]" : name;
  }
};

void CheckValues(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& value : option->results()) {
      // `--time "$LIMIT"` with an unset variable is a mistake, not a job without a limit.
      if (value.empty()) Usage(option->get_name() + ": it is empty");
      const std::string type = option->get_type_name();
      const bool in_file = type == kToken && value[0] == '@';
      if (!in_file && type != kFolder && type != kFile) continue;
      const std::string hint = TildeHint(in_file ? value.substr(1) : value);
      if (!hint.empty()) Usage(option->get_name() + ": " + hint);
    }
  }
}

}  // namespace

void Usage(const std::string& what) { throw CLI::ValidationError(what, CLI::ExitCodes(kUsage)); }

void Need(const Status& status) {
  if (!status.ok()) Usage(status.message());
}

// A number alone counts bytes; few of them were hardly meant.
std::int64_t ToSize(const std::string& option, const std::string& text) {
  constexpr std::int64_t kFew = 1 << 20;
  const std::int64_t bytes = Need(ParseSize(text), option);
  const bool no_unit = text.find_first_not_of("0123456789.") == std::string::npos;
  if (no_unit && bytes > 0 && bytes < kFew) {
    Usage(option + ": \"" + text + "\" is that many bytes. Write a unit: " + text + "GiB, " + text +
          "MiB or " + text + "B");
  }
  return bytes;
}

std::pair<std::string, std::string> ToKeyValue(const std::string& option, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    Usage(option + ": \"" + Printable(text) + "\" is not of the form K=V");
  }
  if (text.substr(0, equals).find_first_of(" \t") != std::string::npos) {
    Usage(option + ": \"" + Printable(text) + "\": the name holds a space; write K=V");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

struct Verb::State {
  CLI::App* app;
  std::string path;
  std::function<std::vector<Preset>(const IsTyped&)> presets;
  std::vector<std::function<void()>> steps;  // conversions and checks
  std::vector<std::string>* command = nullptr;
  std::vector<std::string> extra;  // words that stand where a command's `--` should
  std::function<int()> run;
  int failed = kFailed;
};

void Verb::Flag(const std::string& name, bool* set, const std::string& help) {
  state_->app->add_flag(name, *set, help);
}

void Verb::HiddenFlag(const std::string& name, bool* set, const std::string& help) {
  state_->app->add_flag(name, *set, help)->group("");
}

namespace {

// Names go into messages as text. Paths, commands and variables are bytes.
bool IsText(const std::string& type) { return type == "NAME" || type == "ID" || type.empty(); }

void NeedUtf8(const std::string& name, const std::string& value) {
  if (!IsValidUtf8(value)) Usage(name + " \"" + Printable(value) + "\": it is not UTF-8 text");
}

}  // namespace

void Verb::Text(const std::string& name, const std::string& type, std::string* value,
                const std::string& help) {
  state_->app->add_option(name, *value, help)->type_name(type);
  if (IsText(type)) {
    state_->steps.push_back([name, value] { NeedUtf8(name, *value); });
  }
}

void Verb::Text(const std::string& name, const std::string& type, Convert convert,
                const std::string& help) {
  auto text = std::make_shared<std::string>();
  Text(name, type, text.get(), help);
  state_->steps.push_back([text, convert = std::move(convert)] {
    if (!text->empty()) convert(*text);
  });
}

template <typename T>
void Verb::Number(const std::string& name, const std::string& type, T* value,
                  const std::string& help) {
  // The library takes 0x10 and 010 for sixteen and eight, and what is beyond 64 bits for the largest
  // number there is.
  const auto fits = [](const std::string& text) {
    const std::string digits = text.substr(text.starts_with('-') ? 1 : 0);
    const bool plain = !digits.empty() &&
                       digits.find_first_not_of("0123456789") == std::string::npos &&
                       (digits.size() == 1 || digits[0] != '0');
    if (!plain) return "\"" + Printable(text) + "\" is no whole number. Write one like 4";
    errno = 0;
    const bool over = std::strtoll(text.c_str(), nullptr, 10) > 0 && errno == ERANGE;
    return over ? Printable(text) + " is too large. Write a number like 4" : std::string();
  };
  state_->app->add_option(name, *value, help)->check(fits, "")->type_name(type);
}
template void Verb::Number(const std::string&, const std::string&, std::int32_t*,
                           const std::string&);
template void Verb::Number(const std::string&, const std::string&, std::int64_t*,
                           const std::string&);
template void Verb::Number(const std::string&, const std::string&, std::optional<std::int32_t>*,
                           const std::string&);
template void Verb::Number(const std::string&, const std::string&, std::optional<std::int64_t>*,
                           const std::string&);

void Verb::Size(const std::string& name, std::int64_t* bytes, const std::string& help) {
  Text(name, "SIZE", [name, bytes](const std::string& text) { *bytes = ToSize(name, text); }, help);
}

Verb::Convert Verb::Into(std::chrono::milliseconds* value, const std::string& name) {
  return [name, value](const std::string& text) { *value = Need(ParseDuration(text), name); };
}

Verb::Convert Verb::Into(std::optional<std::chrono::milliseconds>* value, const std::string& name) {
  return [name, value](const std::string& text) { *value = Need(ParseDuration(text), name); };
}

void Verb::Many(const std::string& name, const std::string& type, std::vector<std::string>* values,
                const std::string& help) {
  state_->app->add_option(name, *values, help)->allow_extra_args(false)->type_name(type);
  if (!IsText(type)) return;
  state_->steps.push_back([name, values] {
    for (const std::string& value : *values) NeedUtf8(name, value);
  });
}

void Verb::ManyPairs(const std::string& name, std::map<std::string, std::string>* pairs,
                     const std::string& help) {
  auto texts = std::make_shared<std::vector<std::string>>();
  Many(name, "K=V", texts.get(), help);
  state_->steps.push_back([name, texts, pairs] {
    for (const std::string& text : *texts) {
      NeedUtf8(name, text);
      const auto [key, value] = ToKeyValue(name, text);
      (*pairs)[key] = value;
    }
  });
}

// Its name says what it is.
void Verb::Word(const std::string& name, std::string* value, const std::string& help) {
  Text(name, "", value, help);
}

void Verb::OptionalWord(const std::string& name, std::string* value, const std::string& help) {
  Word(name, value, help);
  state_->app->get_option(name)->configurable(false);  // see HelpFormatter
}

void Verb::Word(const std::string& name, Convert convert, const std::string& help) {
  Text(name, "", std::move(convert), help);
}

void Verb::Words(const std::string& name, Convert convert, const std::string& help) {
  auto texts = std::make_shared<std::vector<std::string>>();
  state_->app->add_option(name, *texts, help)->type_name("");
  state_->steps.push_back([texts, convert = std::move(convert)] {
    for (const std::string& text : *texts) convert(text);
  });
}

void Verb::Command(std::vector<std::string>* command) {
  state_->command = command;
  // Takes the words of a command whose `--` was forgotten, to say so.
  state_->app->add_option(kExtra, state_->extra, "")->group("")->type_name("");
}

void Verb::OptionalCommand(std::vector<std::string>* command) {
  Command(command);
  state_->app->get_option(kExtra)->configurable(false);  // see HelpFormatter
}

void Verb::NotBuilt(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    state_->app
        ->add_option_function<std::vector<std::string>>(
            name, [name](const std::vector<std::string>&) { NotBuiltYet(name); }, "")
        ->expected(0, 1000)  // whatever follows: it is refused before that is looked at
        ->group("")
        ->trigger_on_parse();
  }
}

void Verb::Hide(const std::string& name) { state_->app->get_option(name)->group(""); }

void Verb::Presets(std::function<std::vector<Preset>(const IsTyped&)> presets) {
  state_->presets = std::move(presets);
}

void Verb::StandsForAProgram() { state_->failed = kCouldNot; }
void Verb::Check(std::function<void()> check) { state_->steps.push_back(std::move(check)); }
void Verb::Runs(std::function<int()> run) { state_->run = std::move(run); }

class Parser::Impl {
 public:
  Impl(const std::string& about, const std::string& example) : app_(about) {
    app_.name("gpulayer");
    app_.formatter(std::make_shared<HelpFormatter>());  // verbs take it over
    app_.footer("Example:\n  " + example);
    app_.require_subcommand(1);
    app_.add_flag("-V,--version", version_, "Print the version, as the verb `version`");
    app_.failure_message(
        [](const CLI::App*, const CLI::Error& e) { return std::string(e.what()); });
  }

  void Group(const std::string& name, const std::string& help, const std::string& example) {
    CLI::App* group = app_.add_subcommand(name, help);
    group->footer("Example:\n  " + example);
    group->require_subcommand(1);
    group->preparse_callback([this, name](std::size_t) { help_of_ = name; });
  }

  Verb::State* Add(const std::string& path, const std::string& help, const std::string& example) {
    const auto [parent, name] = ParentAndName(path);
    CLI::App* app = parent->add_subcommand(name, help);
    app->footer("Example:\n  " + example);
    Verb::State* verb = &verbs_.emplace_back();
    verb->app = app;
    verb->path = path;
    app->preparse_callback([this, verb](std::size_t) {
      help_of_ = verb->path;
      verb_ = verb;
    });
    app->callback([this, verb] { Finish(*verb); });
    return verb;
  }

  void NotBuilt(const std::string& path) {
    const auto [parent, name] = ParentAndName(path);
    CLI::App* app = parent->add_subcommand(name, "")->group("");
    app->allow_extras();
    app->set_help_flag();
    app->preparse_callback([path](std::size_t) { NotBuiltYet(path); });
  }

  std::vector<VerbInfo> Describe() {
    std::vector<VerbInfo> out;
    std::function<void(CLI::App*, std::vector<std::string>)> walk =
        [&](CLI::App* app, const std::vector<std::string>& path) {
          for (CLI::App* sub : SubVerbs(app)) {
            if (sub->get_group().empty()) continue;  // not built
            std::vector<std::string> at = path;
            at.push_back(sub->get_name());
            VerbInfo info{at, sub->get_description(), {}, {}};
            for (const CLI::Option* option : sub->get_options()) {
              if (option->get_group().empty()) continue;
              for (const std::string& name : option->get_lnames()) {
                info.options.push_back("--" + name);
                const bool has_value = option->get_items_expected_max() > 0;
                if (has_value) info.with_value.push_back("--" + name);
              }
            }
            out.push_back(info);
            walk(sub, at);
          }
        };
    walk(&app_, {});
    return out;
  }

  Parsed Run(int argc, char** argv) {
    // What stands after `--` is the command's: it is taken off before any parser sees it, so that
    // every byte arrives.
    std::vector<std::string> words(argv + 1, argv + argc);
    const auto dashes = std::find(words.begin(), words.end(), "--");
    if (dashes != words.end()) {
      has_command_ = true;
      command_.assign(dashes + 1, words.end());
      words.erase(dashes, words.end());
    }
    if (words.empty()) {
      PrintNote("which verb?\n");
      std::cerr << app_.help();
      return {nullptr, kUsage, kUsage};
    }
    words_ = words = Rewrite(std::move(words));
    try {
      RefuseUnknownVerb(words);
      std::reverse(words.begin(), words.end());
      app_.parse(std::move(words));
      if (has_command_ && verb_->command == nullptr)
        Usage("-- and a command belong to submit, run and job exec only");
    } catch (const CLI::Success& e) {  // --help
      std::ostringstream help;
      app_.exit(e, help, std::cerr);
      std::string text = help.str();
      // The group of the options that are not built yet leaves an empty line.
      if (const auto at = text.find("\n\n\n"); at != std::string::npos) text.erase(at, 1);
      PrintOut(text);
      return {};
    } catch (const CLI::ExtrasError& e) {
      PrintUsageError(Unexpected(e), help_of_);
      return {nullptr, kUsage, kUsage};
    } catch (const CLI::ArgumentMismatch& e) {
      PrintUsageError(WrongCount(e), help_of_);
      return {nullptr, kUsage, kUsage};
    } catch (const CLI::ConversionError& e) {
      PrintUsageError(NotConverted(e), help_of_);
      return {nullptr, kUsage, kUsage};
    } catch (const CLI::RequiredError&) {
      PrintUsageError("which verb?", help_of_);
      return {nullptr, kUsage, kUsage};
    } catch (const NotBuiltError& e) {
      PrintNote(e.what());
      return {nullptr, kUsage, kUsage};
    } catch (const CLI::Error& e) {
      PrintUsageError(e.what(), help_of_);
      return {nullptr, kUsage, kUsage};
    }
    return {verb_->run, 0, verb_->failed};
  }

 private:
  // What other programs understand too: `help`, `help VERB`, `--version`.
  static std::vector<std::string> Rewrite(std::vector<std::string> words) {
    if (words.front() == "help") {
      words.erase(words.begin());
      words.push_back("--help");
    } else if (words.front() == "--version" || words.front() == "-V") {
      words.front() = "version";
    }
    return words;
  }

  std::pair<CLI::App*, std::string> ParentAndName(const std::string& path) {
    const std::size_t space = path.find(' ');
    if (space == std::string::npos) return {&app_, path};
    return {app_.get_subcommand(path.substr(0, space)), path.substr(space + 1)};
  }

  // All words have been read.
  void Finish(const Verb::State& verb) {
    const std::map<std::string, std::string> places = TakePresets(verb);
    try {
      CheckValues(*verb.app);
      if (verb.command != nullptr) {
        if (const std::string hint = ForgottenDashes(); !hint.empty()) Usage(hint);
        if (!verb.extra.empty()) {
          Usage("\"" + Printable(verb.extra.front()) +
                "\" is no option; the command stands after `--`");
        }
        *verb.command = command_;
      }
      for (const auto& step : verb.steps) step();
    } catch (const CLI::ValidationError& e) {
      // "--memory: ...", which nobody has typed.
      const std::string text = e.what();
      const auto place = places.find(text.substr(0, text.find_first_of(": ")));
      if (place == places.end()) throw;
      Usage(place->second + ": " + text);
    }
  }

  // By option, where the value comes from that stands for a typed one.
  std::map<std::string, std::string> TakePresets(const Verb::State& verb) {
    std::map<std::string, std::string> places;
    if (!verb.presets) return places;
    const auto typed = [&verb](const std::string& name) {
      const CLI::Option* option = verb.app->get_option_no_throw(name);
      return option != nullptr && !option->empty();
    };
    for (const Preset& preset : verb.presets(typed)) {
      if (preset.values.empty()) continue;
      CLI::Option* option = verb.app->get_option(preset.option);
      const std::vector<std::string> own = option->results();
      if (!own.empty() && !preset.with_typed) continue;
      if (own.empty()) places[preset.option] = preset.at;
      option->clear();
      option->add_result(preset.values);
      option->add_result(own);
      try {
        option->run_callback();
      } catch (const CLI::ConversionError& e) {
        Usage(preset.at + ": " + NotConverted(e));
      } catch (const CLI::Error& e) {
        Usage(preset.at + ": " + e.what());
      }
    }
    return places;
  }

  static bool IsGroup(CLI::App* app) { return !SubVerbs(app).empty(); }

  // Of one verb, or all: "up", "job list", those that are not built yet too.
  std::vector<std::string> VerbNames() {
    std::vector<std::string> out;
    for (CLI::App* verb : SubVerbs(&app_)) {
      out.push_back(verb->get_name());
      for (const CLI::App* sub : SubVerbs(verb)) {
        out.push_back(verb->get_name() + " " + sub->get_name());
      }
    }
    return out;
  }

  // The parser would say no more than that a verb is missing.
  void RefuseUnknownVerb(const std::vector<std::string>& words) {
    CLI::App* at = &app_;
    std::string group;
    if (words.front()[0] == '-' && words.front() != "-h" && words.front() != "--help") {
      const std::string option = Printable(words.front());
      const std::string meant =
          option == "-v" ? "--version" : MeantOption(option, {"--version", "--help"});
      if (!meant.empty()) Usage(option + " is no option. Did you mean " + meant + "?");
      Usage(option + " stands before the verb. Write it after: gpulayer VERB " + option);
    }
    for (const std::string& word : words) {
      if (word.empty() || word[0] == '-') return;
      const auto found =
          at->get_subcommands([&word](const CLI::App* verb) { return verb->get_name() == word; });
      CLI::App* next = found.empty() ? nullptr : found.front();
      if (next == nullptr) {
        help_of_ = group;
        const std::string meant = MeantVerb(group, word, VerbNames());
        Usage("\"" + Printable(word) + "\" is no verb" + (group.empty() ? "" : " of " + group) +
              (meant.empty() ? "" : ". Did you mean `gpulayer " + meant + "`?"));
      }
      if (!IsGroup(next)) return;
      at = next;
      group = word;
    }
  }

  std::string Unexpected(const CLI::ExtrasError& error) const {
    const std::vector<std::string> rest = app_.remaining(true);
    if (rest.empty() || verb_ == nullptr) return error.what();
    if (const std::string hint = ForgottenDashes(); !hint.empty()) return hint;
    const std::string word = rest.front().substr(0, rest.front().find('='));
    if (word.empty() || word[0] != '-') return "\"" + Printable(word) + "\" is one word too many";
    std::vector<std::string> names;
    for (const CLI::Option* option : verb_->app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    std::string out = Printable(word) + " is no option of " + help_of_;
    const std::string meant = MeantOption(word, names);
    if (word == "--target" && verb_->path == "run") {
      return out + ", which is for this machine: `gpulayer submit --target NAME` goes elsewhere";
    }
    if (meant.empty()) return out;
    out += ". Did you mean " + meant;
    const bool built = !verb_->app->get_option(meant)->get_description().empty();
    return out + (built ? "?" : " (which is not built yet in this version)?");
  }

  // `submit --source . python3 train.py --epochs 20`: the command without its `--`.
  std::string ForgottenDashes() const {
    const CLI::Option* extra = verb_->app->get_option_no_throw(kExtra);
    if (has_command_ || extra == nullptr || extra->empty()) return "";
    const std::string& program = extra->results().front();
    std::size_t at = 1;
    while (at < words_.size() && (words_[at] != program || TakesValue(words_[at - 1]))) ++at;
    std::vector<std::string> before(words_.begin(),
                                    words_.begin() + static_cast<std::ptrdiff_t>(at));
    std::vector<std::string> command(words_.begin() + static_cast<std::ptrdiff_t>(at),
                                     words_.end());
    HideSecrets(before);
    return "\"" + Printable(program) + "\" is no option. Write the command after `--`: gpulayer " +
           Printable(ShellWords(before)) + " -- " + Printable(ShellWords(command)) + ".";
  }

  // A value that stands there by mistake is not to be shown again.
  static void HideSecrets(std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::size_t name = 0;
      if (words[i].starts_with("--secret=")) {
        name = words[i].find('=') + 1;
      } else if (i == 0 || words[i - 1] != "--secret") {
        continue;
      }
      const std::size_t equals = words[i].find('=', name);
      if (equals == std::string::npos || words[i].substr(equals) == "=-" ||
          words[i].compare(equals, 2, "=@") == 0) {
        continue;
      }
      words[i].resize(equals);
    }
  }

  bool TakesValue(const std::string& word) const {
    const CLI::Option* option =
        word.empty() || word[0] != '-' ? nullptr : verb_->app->get_option_no_throw(word);
    return option != nullptr && option->get_items_expected_max() > 0;
  }

  // "--source wants a value: folder that ships": of the option that came last.
  std::string WrongCount(const CLI::ArgumentMismatch& error) const {
    std::string text = error.what();
    const std::string name = text.substr(0, text.find(':'));
    if (text.find(": At Most 1 required") != std::string::npos) {
      return name + " is there more than once. Give it one value";
    }
    const CLI::Option* option = verb_ == nullptr ? nullptr : verb_->app->get_option_no_throw(name);
    if (option == nullptr || option->get_description().empty()) return text;
    return name + " wants a value: " + option->get_description();
  }

  // "Could not convert: --slots = two", said with what is right.
  std::string NotConverted(const CLI::ConversionError& error) const {
    std::string text = error.what();
    const std::size_t begin = text.find("--");
    const std::size_t equals = text.find(" = ");
    if (begin == std::string::npos || equals == std::string::npos || verb_ == nullptr) return text;
    const std::string name = text.substr(begin, equals - begin);
    const std::string value = Printable(text.substr(equals + 3));
    if (!TakesValue(name)) return name + " takes no value";
    if (value.find_first_not_of("0123456789") == std::string::npos) {
      return name + ": " + value + " is too large. Write a number like 4";
    }
    return name + ": \"" + value + "\" is no whole number. Write one like 4";
  }

  CLI::App app_;
  std::list<Verb::State> verbs_;
  std::vector<std::string> words_;  // before `--`
  std::vector<std::string> command_;
  bool version_ = false;  // for the help only: Rewrite makes it the verb
  bool has_command_ = false;
  std::string help_of_;
  Verb::State* verb_ = nullptr;  // that is being read
};

Parser::Parser(const std::string& about, const std::string& example)
    : impl_(std::make_unique<Impl>(about, example)) {}
Parser::~Parser() = default;

void Parser::Group(const std::string& name, const std::string& help, const std::string& example) {
  impl_->Group(name, help, example);
}

Verb Parser::Add(const std::string& path, const std::string& help, const std::string& example) {
  return Verb(impl_->Add(path, help, example));
}

void Parser::NotBuilt(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) impl_->NotBuilt(path);
}

std::vector<VerbInfo> Parser::Describe() const { return impl_->Describe(); }

Parsed Parser::Run(int argc, char** argv) { return impl_->Run(argc, argv); }

}  // namespace gpulayer::cli
