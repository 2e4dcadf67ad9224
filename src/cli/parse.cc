// The only file that sees the parser. Names, help and conversions; no logic.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>

#include "cli/args.h"
#include "cli/hints.h"
#include "cli/print.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

// A word of the contract that this version does not have: said so, never taken and ignored.
[[noreturn]] void NotBuilt(const std::string& name) {
  throw CLI::ValidationError(name + " is not built yet in this version", CLI::ExitCodes(kUsage));
}

[[noreturn]] void Usage(const std::string& what) {
  throw CLI::ValidationError(what, CLI::ExitCodes(kUsage));
}

void Need(const Status& status) {
  if (!status.ok()) Usage(status.message());
}

template <typename T>
T Need(Result<T> result, const std::string& what) {
  if (!result.ok()) Usage(what + ": " + result.status().message());
  return *std::move(result);
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

std::string StateNames() {
  std::string out;
  for (int i = 1; i <= static_cast<int>(JobState::kTimedOut); ++i) {
    out += (i == 1 ? "" : ", ") + std::string(ToString(static_cast<JobState>(i)));
  }
  return out;
}

std::int64_t ToJob(const std::string& text) {
  const TaskSelector task = Need(ParseTask(text), "job");
  if (task.task) Usage("job \"" + Printable(text) + "\": a job is meant here, not a task of it");
  return task.job;
}

// What a value of an option is, for its help; what is a path or a number is checked by that, too.
struct ValueType {
  const char* option;
  const char* type;
};
constexpr char kFolder[] = "DIR";
constexpr char kFile[] = "FILE";
constexpr char kNumber[] = "N";
constexpr char kToken[] = "TOKEN";
constexpr ValueType kValueTypes[] = {
    {"--source", kFolder},
    {"--to", kFolder},
    {"--data-dir", kFolder},
    {"--env-file", kFile},
    {"--stdin", kFile},
    {"--each", kFile},
    {"--token", kToken},
    {"--slots", kNumber},
    {"--limit", kNumber},
    {"--tail", kNumber},
    {"--attempt", kNumber},
    {"--before", "ID"},
    {"--request-id", "ID"},
    {"--time", "DURATION"},
    {"--grace", "DURATION"},
    {"--expires", "DURATION"},
    {"--memory", "SIZE"},
    {"--output-limit", "SIZE"},
    {"--source-limit", "SIZE[,FILES]"},
    {"--env", "K=V"},
    {"--label", "K=V"},
    {"--output", "GLOB"},
    {"--array", "TASKS"},
    {"--shell", "LINE"},
    {"--listen", "ADDRESS:PORT"},
    {"--state", "STATE"},
    {"--role", "ROLE"},
    {"--name", "NAME"},
    {"--user", "NAME"},
    {"--target", "NAME"},
    {"--worker", "NAME"},
    {"--zone", "NAME"},
    {"--region", "NAME"},
};

// The parser does not know that a command stands behind `--`.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    if (app->get_option_no_throw("extra") == nullptr) {
      return CLI::Formatter::make_usage(app, std::move(name));
    }
    return "Usage: " + name + " [OPTIONS] -- PROGRAM [ARGUMENT…]\n";
  }
};

class Parser {
 public:
  Parser() : app_("GPUlayer: run commands on other machines, and bring their outputs home.") {
    app_.name("gpulayer");
    app_.formatter(std::make_shared<HelpFormatter>());  // verbs take it over
    app_.footer("Example:\n  gpulayer submit --source . -- python train.py");
    app_.require_subcommand(1);
    app_.add_flag("-V,--version", version_, "Print the version, as the verb `version`");
    app_.failure_message(
        [](const CLI::App*, const CLI::Error& e) { return std::string(e.what()); });
    AddHost();
    AddSubmit("submit", "Run a command on a worker and bring its outputs home.");
    AddSubmit("run", "As submit, on this machine, in a private server that ends with it.");
    AddJobs();
    AddWorkers();
    AddTokens();
    AddRest();
    for (const char* name : {"top", "doctor", "server"}) AddUnbuiltVerb(app_, name);
    NameTypes(&app_);
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
      if (has_command_ && !takes_command_) Usage("-- and a command belong to submit and run only");
    } catch (const CLI::Success& e) {  // --help
      std::ostringstream help;
      app_.exit(e, help, std::cerr);
      PrintOut(help.str());
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
    } catch (const CLI::Error& e) {
      PrintUsageError(e.what(), help_of_);
      return {nullptr, kUsage, kUsage};
    }
    const std::set<std::string> kForPrograms = {"submit", "run", "job wait", "job attach"};
    return {run_, 0, kForPrograms.count(help_of_) > 0 ? kCouldNot : kFailed};
  }

 private:
  using Action = std::function<int()>;

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

  // `finish` checks and converts once all options are in; it returns what to run.
  CLI::App* Verb(CLI::App& parent, const std::string& name, const std::string& help,
                 const std::string& example, std::function<Action()> finish) {
    CLI::App* verb = parent.add_subcommand(name, help);
    verb->footer("Example:\n  " + example);
    std::string path = name;
    for (CLI::App* up = &parent; up != &app_; up = up->get_parent()) {
      path = up->get_name() + " " + path;
    }
    verb->preparse_callback([this, verb, path](std::size_t) {
      help_of_ = path;
      verb_ = verb;
    });
    verb->callback([this, verb, finish = std::move(finish)] {
      CheckValues(*verb);
      run_ = finish();
    });
    return verb;
  }

  static void NameTypes(CLI::App* app) {
    for (CLI::Option* option : app->get_options()) {
      if (option->get_items_expected_max() == 0) continue;  // a flag
      if (option->get_positional()) option->type_name("");  // its name says it
      for (const ValueType& value : kValueTypes) {
        if (option->get_name() == value.option) option->type_name(value.type);
      }
    }
    for (CLI::App* sub : app->get_subcommands([](CLI::App*) { return true; })) NameTypes(sub);
  }

  static void CheckValues(const CLI::App& verb) {
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

  static bool IsGroup(const CLI::App* app) {
    return !app->get_subcommands([](const CLI::App*) { return true; }).empty();
  }

  // Of one verb, or all: "up", "job list", those that are not built yet too.
  std::vector<std::string> VerbNames() {
    std::vector<std::string> out;
    for (const CLI::App* verb : app_.get_subcommands([](const CLI::App*) { return true; })) {
      out.push_back(verb->get_name());
      for (const CLI::App* sub : verb->get_subcommands([](const CLI::App*) { return true; })) {
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
    for (const CLI::Option* option : verb_->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    std::string out = Printable(word) + " is no option of " + help_of_;
    const std::string meant = MeantOption(word, names);
    if (meant.empty()) return out;
    out += ". Did you mean " + meant;
    const bool built = !verb_->get_option(meant)->get_description().empty();
    return out + (built ? "?" : " (which is not built yet in this version)?");
  }

  // `submit --source . python3 train.py --epochs 20`: the command without its `--`.
  std::string ForgottenDashes() const {
    const CLI::Option* extra = verb_->get_option_no_throw("extra");
    if (has_command_ || extra == nullptr || extra->empty()) return "";
    const std::string& program = extra->results().front();
    std::size_t at = 1;
    while (at < words_.size() && (words_[at] != program || TakesValue(words_[at - 1]))) ++at;
    std::vector<std::string> before(words_.begin(),
                                    words_.begin() + static_cast<std::ptrdiff_t>(at));
    std::vector<std::string> command(words_.begin() + static_cast<std::ptrdiff_t>(at),
                                     words_.end());
    return "\"" + Printable(program) + "\" is no option. Write the command after `--`: gpulayer " +
           Printable(ShellWords(before)) + " -- " + Printable(ShellWords(command)) + ".";
  }

  bool TakesValue(const std::string& word) const {
    const CLI::Option* option =
        word.empty() || word[0] != '-' ? nullptr : verb_->get_option_no_throw(word);
    return option != nullptr && option->get_items_expected_max() > 0;
  }

  // "--source wants a value: folder that ships": of the option that came last.
  std::string WrongCount(const CLI::ArgumentMismatch& error) const {
    std::string text = error.what();
    const std::string name = text.substr(0, text.find(':'));
    if (text.find(": At Most 1 required") != std::string::npos) {
      return name + " is there more than once. Give it one value";
    }
    const CLI::Option* option = verb_ == nullptr ? nullptr : verb_->get_option_no_throw(name);
    if (option == nullptr || option->get_description().empty()) return text;
    return name + " wants a value: " + option->get_description();
  }

  // "Could not convert: --slots = two", said with what is right.
  std::string NotConverted(const CLI::ConversionError& error) const {
    const std::string text = error.what();
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

  CLI::App* Group(const std::string& name, const std::string& help, const std::string& example) {
    CLI::App* group = app_.add_subcommand(name, help);
    group->footer("Example:\n  " + example);
    group->require_subcommand(1);
    group->preparse_callback([this, name](std::size_t) { help_of_ = name; });
    return group;
  }

  static void AddUnbuiltVerb(CLI::App& parent, const std::string& name) {
    CLI::App* verb = parent.add_subcommand(name, "")->group("");
    verb->allow_extras();
    verb->set_help_flag();
    const std::string path = parent.get_parent() == nullptr ? name : parent.get_name() + " " + name;
    verb->preparse_callback([path](std::size_t) { NotBuilt(path); });
  }

  static void AddUnbuilt(CLI::App* verb, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      verb->add_option_function<std::vector<std::string>>(
              name, [name](const std::vector<std::string>&) { NotBuilt(name); }, "")
          ->expected(0, 1000)  // whatever follows: it is refused before that is looked at
          ->group("")
          ->trigger_on_parse();
    }
  }

  static void AddCommon(CLI::App* verb, Common* common) {
    verb->add_option("--target", common->target,
                     "local, here, a login's name, or remote: the login in use");
    verb->add_flag("--json", common->json, "print one JSON document");
  }

  static void AddJson(CLI::App* verb, bool* json) {
    verb->add_flag("--json", *json, "print one JSON document");
  }

  static CLI::Option* Many(CLI::App* verb, const std::string& name,
                           std::vector<std::string>* values, const std::string& help) {
    return verb->add_option(name, *values, help)->allow_extra_args(false);
  }

  void AddSubmit(const std::string& name, const std::string& help) {
    struct Raw {
      SubmitArgs args;
      std::string memory, time, grace, source_limit, output_limit;
      std::string array, each;
      std::vector<std::string> env, env_files, labels, extra;
      bool no_outputs = false;
    };
    auto raw = std::make_shared<Raw>();
    const bool local = name == "run";
    CLI::App* verb =
        Verb(app_, name, help,
             local ? "gpulayer run -- ./transcode.sh \"a b\""
                   : "gpulayer submit --source . --memory 4GiB -- python train.py --lr 0.1",
             [this, raw, local]() -> Action {
               takes_command_ = true;
               SubmitArgs& args = raw->args;
               JobSpec& spec = args.spec;
               if (const std::string hint = ForgottenDashes(); !hint.empty()) Usage(hint);
               if (!raw->extra.empty()) {
                 Usage("\"" + Printable(raw->extra[0]) +
                       "\" is no option; the command stands after `--`");
               }
               spec.command = command_;
               if (spec.command.empty() && spec.shell.empty()) {
                 if (!args.dry_run) Usage("no command. Write it after `--`, or use --shell");
               } else if (!spec.command.empty() && !spec.shell.empty()) {
                 Usage("--shell and a command after `--`: give one of them");
               }
               if (!raw->memory.empty()) {
                 spec.resources.memory_bytes = ToSize("--memory", raw->memory);
               }
               if (!raw->time.empty()) spec.time_limit = Need(ParseDuration(raw->time), "--time");
               if (!raw->grace.empty()) spec.grace = Need(ParseDuration(raw->grace), "--grace");
               if (!raw->output_limit.empty()) {
                 spec.outputs.limit_bytes = ToSize("--output-limit", raw->output_limit);
               }
               if (!raw->source_limit.empty()) ParseSourceLimit(raw->source_limit, &spec);
               spec.outputs.collect = !raw->no_outputs;
               if (raw->no_outputs && !spec.outputs.globs.empty()) {
                 Usage("--output and --no-outputs: give one of them");
               }
               if (spec.no_source && !spec.source_dir.empty()) {
                 Usage("--source and --no-source: give one of them");
               }
               for (const std::string& file : raw->env_files) {
                 const auto vars = Need(ReadEnvFile(file), "--env-file");
                 spec.env.insert(spec.env.end(), vars.begin(), vars.end());
               }
               for (const std::string& var : raw->env) spec.env.push_back(KeyValue("--env", var));
               for (const std::string& label : raw->labels) {
                 const auto [key, value] = KeyValue("--label", label);
                 spec.resources.labels[key] = value;
               }
               if (spec.resources.slots < 1) Usage("--slots: at least 1");
               ParseTasks(raw->array, raw->each, &spec);
               if (args.all_logs && args.detach) Usage("--all-logs and --detach: give one of them");
               if (spec.stdin_file == "-") {
                 Usage(
                     "--stdin: standard input is not shipped. Write it into a file first, and "
                     "name that: cat > input; gpulayer submit --stdin input -- ...");
               }
               if (!spec.stdin_file.empty()) NeedFile("--stdin", spec.stdin_file);
               if (!spec.command.empty() || !spec.shell.empty()) {
                 const Status fit = CheckSpec(spec);
                 // More than a kernel starts is refused by the verb: the usage is right.
                 if (fit.code() != StatusCode::kResourceExhausted) Need(fit);
               }
               if (local) args.common.target = "local";
               if (args.common.target == "local" && args.detach) {
                 Usage("--detach: a local run ends with its command; it cannot be left");
               }
               return [args] { return RunSubmit(args); };
             });
    SubmitArgs& args = raw->args;
    JobSpec& spec = args.spec;
    if (!local) {
      verb->add_option("--target", args.common.target,
                       "local, here, a login's name, or remote: the login in use");
    }
    verb->add_flag("--json", args.common.json,
                   "print one JSON document at the end; the job's output goes to standard error");
    verb->add_option("--name", spec.name, "name of the job (default: the program's)");
    verb->add_option("--shell", spec.shell, "a line for /bin/sh instead of a command");
    verb->add_option("--stdin", spec.stdin_file,
                     "file that becomes the standard input (default: none)");
    Many(verb, "--env", &raw->env, "environment variable of the job (repeat)");
    Many(verb, "--env-file", &raw->env_files, "file of K=V lines, # comments (repeat)");
    verb->add_option("--time", raw->time,
                     "time limit from the program's start, as 10m (default: none)");
    verb->add_option("--grace", raw->grace, "between SIGTERM and SIGKILL (default: 15s)");
    verb->add_option("--slots", spec.resources.slots, "CPUs (default: 1)");
    verb->add_option("--memory", raw->memory, "memory to reserve, as 4GiB (default: none)");
    Many(verb, "--label", &raw->labels, "only workers with this label (repeat)");
    verb->add_option("--zone", spec.resources.zone, "only workers of this zone");
    verb->add_option("--region", spec.resources.region, "only workers of this region");
    Many(verb, "--worker", &spec.resources.workers, "only this worker, by name or id (repeat)");
    verb->add_option("--source", spec.source_dir,
                     "folder that ships; the job starts in a copy of it");
    verb->add_option("--source-limit", raw->source_limit,
                     "a larger source is refused (default: 512MiB,20000)");
    verb->add_flag("--no-source", spec.no_source,
                   "ship nothing, though an argument names a file here");
    verb->add_flag("--dry-run", args.dry_run, "list what would ship, and submit nothing");
    Many(verb, "--output", &spec.outputs.globs, "only outputs that match, as '*.png' (repeat)");
    verb->add_flag("--no-outputs", raw->no_outputs, "bring nothing home");
    verb->add_option("--output-limit", raw->output_limit, "SIZE a task (default: 4GiB)");
    verb->add_option("--array", raw->array,
                     "FIRST-LAST[:STEP][%MAX], a task each, at most MAX at a time: 0-99%4");
    verb->add_option("--each", raw->each,
                     "FILE, a task a line; {} and $GPULAYER_ITEM are the line (-: standard input)");
    verb->add_flag("--all-logs", args.all_logs,
                   "print all tasks' output, each line behind its task");
    verb->add_option("--request-id", spec.request_id, "same id, same job");
    verb->add_flag("--wait-for-worker", spec.wait_for_worker,
                   "queue it even if no known worker could ever run it");
    if (local) {
      verb->add_flag("-d,--detach", args.detach, "refused with the reason")->group("");
    } else {
      verb->add_flag("-d,--detach", args.detach, "print the job's id and leave");
    }
    verb->add_option("extra", raw->extra, "")->group("");
    AddUnbuilt(verb, {"--accelerator",      "--devices",      "--device-memory", "--device-model",
                      "--framework",        "--python",       "--exclusive",     "--nodes",
                      "--procs-per-node",   "--launcher",     "--on-rank-exit",  "--input",
                      "--secret",           "--requirements", "--pip",           "--fresh-env",
                      "--prepare-time",     "--keep",         "--signal-to",     "--retries",
                      "--retry-on",         "--crash-limit",  "--lost-after",    "--fence",
                      "--priority",         "--after",        "--after-any",     "--hold",
                      "--checkpoint-limit", "--log-limit"});
  }

  static void ParseTasks(const std::string& array, const std::string& each, JobSpec* spec) {
    if (!array.empty() && !each.empty()) Usage("--array and --each: give one of them");
    if (!array.empty()) {
      const ArrayText parsed = Need(ParseArray(array), "--array");
      spec->array = parsed.tasks;
      spec->max_parallel = parsed.max_parallel;
    }
    if (each.empty()) return;
    spec->items = Need(ReadItems(each), "--each");
    if (spec->items.empty()) Usage("--each: " + Printable(each) + " has no line");
    // In a shell's hands an item's characters would mean something.
    if (spec->shell.find("{}") != std::string::npos) {
      Usage(
          "--each: {} is not replaced in a --shell line. Write \"$GPULAYER_ITEM\" there, with "
          "the quotes");
    }
  }

  static void NeedFile(const std::string& option, const std::string& path) {
    if (::access(path.c_str(), R_OK) == 0) return;
    Usage(option + ": " + Printable(path) + ": " + std::strerror(errno) +
          ". It wants a file that is here");
  }

  static void ParseSourceLimit(const std::string& text, JobSpec* spec) {
    const std::size_t comma = text.find(',');
    const std::string size = text.substr(0, comma);
    if (!size.empty()) spec->source_limit_bytes = ToSize("--source-limit", size);
    if (comma == std::string::npos) return;
    const std::string files = text.substr(comma + 1);
    const bool digits = !files.empty() && files.size() <= 12 &&
                        files.find_first_not_of("0123456789") == std::string::npos;
    if (!digits)
      Usage("--source-limit: \"" + Printable(text) + "\" is not SIZE,FILES as 2GiB,50000");
    spec->source_limit_files = std::stoll(files);
  }

  static std::pair<std::string, std::string> KeyValue(const std::string& option,
                                                      const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      Usage(option + ": \"" + Printable(text) + "\" is not of the form K=V");
    }
    if (text.substr(0, equals).find_first_of(" \t") != std::string::npos) {
      Usage(option + ": \"" + Printable(text) + "\": the name holds a space; write K=V");
    }
    return {text.substr(0, equals), text.substr(equals + 1)};
  }

  void AddJobs() {
    CLI::App* job =
        Group("job", "List, follow and change jobs.", "gpulayer job list --state running");
    AddList(*job, "list");
    AddList(app_, "ps");
    AddOne(*job, "show", "Show a job, its tasks and attempts.", RunJobShow);
    AddOne(*job, "explain", "Say why a job is where it is.", RunJobExplain);
    AddOne(*job, "attach", "Follow a job as if it had been submitted here.", RunJobAttach);
    AddLogs(*job, "logs");
    AddLogs(app_, "logs");
    AddWait(*job);
    AddCancel(*job, "cancel");
    AddCancel(app_, "cancel");
    AddResult(*job);
    AddRetry(*job);
    for (const char* name : {"release", "set", "exec"}) AddUnbuiltVerb(*job, name);
  }

  void AddList(CLI::App& parent, const std::string& name) {
    struct Raw {
      ListArgs args;
      std::string state, user;
    };
    auto raw = std::make_shared<Raw>();
    CLI::App* verb = Verb(parent, name, "List jobs, newest first.",
                          "gpulayer job list --state running", [raw]() -> Action {
                            if (!raw->state.empty()) {
                              raw->args.options.state = JobStateFromString(raw->state);
                              if (!raw->args.options.state) {
                                Usage("--state: \"" + Printable(raw->state) +
                                      "\" is no state. There are " + StateNames());
                              }
                            }
                            if (!raw->user.empty()) raw->args.options.user = raw->user;
                            if (raw->args.options.before.value_or(1) < 1) {
                              Usage("--before: the number of a job");
                            }
                            if (raw->args.options.limit < 1 || raw->args.options.limit > 1000) {
                              Usage("--limit: 1 to 1000");
                            }
                            return [raw] { return RunJobList(raw->args); };
                          });
    AddCommon(verb, &raw->args.common);
    verb->add_option("--state", raw->state, "one of " + StateNames());
    verb->add_option("--user", raw->user, "only this user's");
    verb->add_option("--name", raw->args.options.name_glob, "only names that match, as 'train*'");
    verb->add_option("--limit", raw->args.options.limit, "at most so many (default: 100)");
    verb->add_option("--before", raw->args.options.before, "the next page: jobs before this one");
  }

  void AddOne(CLI::App& parent, const std::string& name, const std::string& help,
              int (*run)(const JobArgs&)) {
    struct Raw {
      JobArgs args;
      std::string job;
    };
    auto raw = std::make_shared<Raw>();
    CLI::App* verb =
        Verb(parent, name, help, "gpulayer job " + name + " 42", [raw, run]() -> Action {
          if (raw->job.empty()) Usage("which job? Give its number");
          raw->args.job = ToJob(raw->job);
          return [raw, run] { return run(raw->args); };
        });
    AddCommon(verb, &raw->args.common);
    if (name == "attach") {
      verb->add_flag("--all-logs", raw->args.all_logs,
                     "print all tasks' output, each line behind its task");
    }
    verb->add_option("ID", raw->job, "number of the job");
  }

  void AddLogs(CLI::App& parent, const std::string& name) {
    struct Raw {
      LogsArgs args;
      std::string job;
      std::optional<std::int32_t> attempt;
      bool only_out = false, only_err = false;
    };
    auto raw = std::make_shared<Raw>();
    raw->args.options.follow = false;
    CLI::App* verb = Verb(parent, name, "Print what a job wrote, byte for byte.",
                          "gpulayer job logs -f 42", [raw]() -> Action {
                            if (raw->job.empty()) Usage("which job? Give its number");
                            const TaskSelector task = Need(ParseTask(raw->job), "job");
                            raw->args.job = task.job;
                            raw->args.task_given = task.task.has_value();
                            raw->args.options.task = task.task.value_or(0);
                            if (raw->only_out && raw->only_err)
                              Usage("--stdout and --stderr: give one of them");
                            raw->args.options.out = !raw->only_err;
                            raw->args.options.err = !raw->only_out;
                            if (raw->args.options.tail_lines.value_or(0) < 0) {
                              Usage("--tail: 0 or more");
                            }
                            if (raw->attempt.value_or(1) < 1) Usage("--attempt: 1 or more");
                            raw->args.options.attempt = raw->attempt.value_or(0);
                            return [raw] { return RunJobLogs(raw->args); };
                          });
    verb->add_option("--target", raw->args.common.target, "as submit's");
    verb->add_flag("-f,--follow", raw->args.options.follow,
                   "wait for more until the job ends, and exit with its code");
    verb->add_flag("--stdout", raw->only_out, "standard output only");
    verb->add_flag("--stderr", raw->only_err, "standard error only");
    verb->add_option("--attempt", raw->attempt, "of this attempt (default: the newest)");
    verb->add_option("--tail", raw->args.options.tail_lines, "the last N lines");
    verb->add_option("ID", raw->job, "number of the job, or JOB.TASK");
    AddUnbuilt(verb, {"--rank"});
  }

  void AddWait(CLI::App& parent) {
    struct Raw {
      WaitArgs args;
      std::vector<std::string> jobs;
    };
    auto raw = std::make_shared<Raw>();
    CLI::App* verb = Verb(parent, "wait", "Wait for jobs; exit with the worst one's code.",
                          "gpulayer job wait 42 43", [raw]() -> Action {
                            if (raw->jobs.empty()) Usage("which jobs? Give their numbers");
                            for (const std::string& job : raw->jobs) {
                              raw->args.jobs.push_back(ToJob(job));
                            }
                            return [raw] { return RunJobWait(raw->args); };
                          });
    AddCommon(verb, &raw->args.common);
    verb->add_option("ID", raw->jobs, "numbers of the jobs");
  }

  void AddCancel(CLI::App& parent, const std::string& name) {
    struct Raw {
      CancelArgs args;
      std::vector<std::string> tasks;
    };
    auto raw = std::make_shared<Raw>();
    CLI::App* verb =
        Verb(parent, name, "Cancel jobs or tasks.", "gpulayer job cancel 42", [raw]() -> Action {
          if (raw->tasks.empty()) Usage("which jobs? Give their numbers");
          for (const std::string& task : raw->tasks) {
            raw->args.tasks.push_back(Need(ParseTask(task), "job"));
          }
          return [raw] { return RunJobCancel(raw->args); };
        });
    AddCommon(verb, &raw->args.common);
    verb->add_flag("--now", raw->args.options.now, "without the job's grace");
    verb->add_option("ID", raw->tasks, "numbers of jobs, or JOB.TASK");
    AddUnbuilt(verb, {"--name", "--state", "--mine"});
  }

  void AddResult(CLI::App& parent) {
    struct Raw {
      ResultArgs args;
      std::string job;
    };
    auto raw = std::make_shared<Raw>();
    CLI::App* verb = Verb(parent, "result", "Show how a job ended, and bring its outputs.",
                          "gpulayer job result 42 --download", [raw]() -> Action {
                            if (raw->job.empty()) Usage("which job? Give its number");
                            raw->args.job = ToJob(raw->job);
                            if (!raw->args.to.empty()) raw->args.download = true;
                            return [raw] { return RunJobResult(raw->args); };
                          });
    AddCommon(verb, &raw->args.common);
    verb->add_flag("--download", raw->args.download, "bring the outputs into the run folder");
    verb->add_option("--to", raw->args.to, "bring the outputs directly into this folder");
    verb->add_option("ID", raw->job, "number of the job");
  }

  void AddRetry(CLI::App& parent) {
    struct Raw {
      RetryArgs args;
      std::string job;
    };
    auto raw = std::make_shared<Raw>();
    CLI::App* verb = Verb(parent, "retry", "Run a job again, as a new one; prints its id.",
                          "gpulayer job retry 42 --failed", [raw]() -> Action {
                            if (raw->job.empty()) Usage("which job? Give its number");
                            raw->args.job = ToJob(raw->job);
                            return [raw] { return RunJobRetry(raw->args); };
                          });
    AddCommon(verb, &raw->args.common);
    verb->add_flag("--failed", raw->args.options.unsuccessful_only,
                   "of several tasks only those that did not succeed");
    verb->add_option("--request-id", raw->args.options.request_id, "same id, same job");
    verb->add_option("ID", raw->job, "number of the job");
    AddUnbuilt(verb, {"--resume"});
  }

  void AddWorkers() {
    CLI::App* worker =
        Group("worker", "Look at the machines that run work.", "gpulayer worker list");
    auto list = std::make_shared<WorkerArgs>();
    AddCommon(Verb(*worker, "list", "List workers.", "gpulayer worker list",
                   [list]() -> Action { return [list] { return RunWorkerList(*list); }; }),
              &list->common);
    auto show = std::make_shared<WorkerArgs>();
    CLI::App* verb = Verb(*worker, "show", "Show one worker.", "gpulayer worker show gpu-box",
                          [show]() -> Action {
                            if (show->worker.empty()) Usage("which worker? Give its name or id");
                            return [show] { return RunWorkerShow(*show); };
                          });
    AddCommon(verb, &show->common);
    verb->add_option("NAME", show->worker, "name or id");
    for (const char* name : {"drain", "resume", "remove"}) AddUnbuiltVerb(*worker, name);

    CLI::App* resources = Group("resources", "Look at this machine.", "gpulayer resources detect");
    auto detect = std::make_shared<Common>();
    CLI::App* d = Verb(*resources, "detect", "What a worker on this machine would offer.",
                       "gpulayer resources detect",
                       [detect]() -> Action { return [detect] { return RunDetect(*detect); }; });
    d->add_flag("--json", detect->json, "print one JSON document");
  }

  void AddTokens() {
    CLI::App* token = Group("token", "Let people and machines in, or out.",
                            "gpulayer token create --role client --expires 7d");
    struct Raw {
      TokenArgs args;
      std::string expires;
    };
    auto create = std::make_shared<Raw>();
    CLI::App* verb = Verb(*token, "create", "Make a token for join or login.",
                          "gpulayer token create --role client --expires 1d", [create]() -> Action {
                            const std::string& role = create->args.role;
                            if (role != "client" && role != "worker" && role != "admin") {
                              Usage("--role: client, worker or admin");
                            }
                            if (!create->expires.empty()) {
                              create->args.life = Need(ParseDuration(create->expires), "--expires");
                              if (create->args.life->count() <= 0) {
                                Usage(
                                    "--expires: more than 0, as 1d; without it the token is good "
                                    "until it is revoked");
                              }
                            }
                            return [create] { return RunTokenCreate(create->args); };
                          });
    AddCommon(verb, &create->args.common);
    verb->add_option("--role", create->args.role, "client, worker or admin");
    verb->add_option("--expires", create->expires,
                     "how long it is good for, as 1d (default: until it is revoked)");
    verb->add_option("--user", create->args.user, "whose jobs they are (default: yours)");

    auto list = std::make_shared<TokenArgs>();
    AddCommon(
        Verb(*token, "list", "List tokens and the credentials made of them.", "gpulayer token list",
             [list]() -> Action { return [list] { return RunTokenList(*list); }; }),
        &list->common);
    auto revoke = std::make_shared<TokenArgs>();
    CLI::App* r =
        Verb(*token, "revoke", "End a token with its credentials, or one credential, at once.",
             "gpulayer token revoke 3f9c", [revoke]() -> Action {
               if (revoke->id.empty()) Usage("which token? Give its id");
               return [revoke] { return RunTokenRevoke(*revoke); };
             });
    AddCommon(r, &revoke->common);
    r->add_option("ID", revoke->id, "the id, as `token list` shows it");
  }

  void AddHost() {
    auto up = std::make_shared<UpArgs>();
    auto no_worker = std::make_shared<bool>(false);
    auto listen = std::make_shared<std::string>();
    CLI::App* verb = Verb(app_, "up", "Start server and worker on this machine.", "gpulayer up",
                          [up, no_worker, listen]() -> Action {
                            if (*no_worker) up->options.worker = false;
                            if (up->options.slots.value_or(1) < 1) Usage("--slots: at least 1");
                            if (!listen->empty()) {
                              Need(CheckListen(*listen));
                              up->options.listen = *listen;
                            }
                            return [up] { return RunUp(*up); };
                          });
    verb->add_option("--listen", *listen, "address for other machines (default: 0.0.0.0:7461)");
    verb->add_option("--data-dir", up->options.data_dir, "where everything is kept");
    verb->add_option("--slots", up->options.slots, "CPUs to offer (default: all)");
    verb->add_flag("--no-worker", *no_worker, "server only: this machine runs no jobs");
    verb->add_flag("--foreground", up->foreground, "stay until a signal, then stop");
    verb->add_flag("--json", up->json, "print one JSON document");
    AddUnbuilt(verb, {"--http", "--service"});

    auto down = std::make_shared<DownArgs>();
    CLI::App* d = Verb(app_, "down", "Stop what up or join started here.", "gpulayer down",
                       [down]() -> Action { return [down] { return RunDown(*down); }; });
    d->add_option("--data-dir", down->options.data_dir, "as given to up or join");
    AddJson(d, &down->json);
    AddUnbuilt(d, {"--drain"});
    AddJoin();
    AddLogin();
  }

  void AddJoin() {
    struct Raw {
      JoinArgs args;
      std::vector<std::string> labels;
    };
    auto raw = std::make_shared<Raw>();
    CLI::App* verb = Verb(app_, "join", "Make this machine a worker of another one's server.",
                          "gpulayer join gpu-box:7461 --token @token", [raw]() -> Action {
                            const JoinOptions& asked = raw->args.options;
                            if (asked.address.empty() && !asked.token.empty())
                              Usage("which server? Give its address");
                            for (const std::string& label : raw->labels) {
                              const auto [key, value] = KeyValue("--label", label);
                              raw->args.options.labels[key] = value;
                            }
                            Need(CheckJoin(asked));
                            if (raw->args.options.slots.value_or(1) < 1) {
                              Usage("--slots: at least 1");
                            }
                            return [raw] { return RunJoin(raw->args); };
                          });
    JoinOptions& options = raw->args.options;
    verb->add_option("ADDRESS", options.address,
                     "host:port of the server; none: start again the worker that this machine is");
    verb->add_option("--token", options.token,
                     "token, - (standard input), @FILE, or GPULAYER_TOKEN");
    verb->add_option("--name", options.name, "name of this worker (default: the host's)");
    verb->add_option("--slots", options.slots, "CPUs to offer (default: all)");
    verb->add_option("--zone", options.zone, "what it is near to");
    verb->add_option("--region", options.region, "where that is");
    Many(verb, "--label", &raw->labels, "what jobs can ask for with --label (repeat)");
    verb->add_option("--data-dir", options.data_dir, "where everything is kept");
    verb->add_flag("--foreground", raw->args.foreground, "stay until a signal, then stop");
    AddJson(verb, &raw->args.json);
    AddUnbuilt(verb, {"--advertise-address", "--service"});
  }

  void AddLogin() {
    auto login = std::make_shared<LoginArgs>();
    CLI::App* verb = Verb(app_, "login", "Submit to another machine's server from here.",
                          "gpulayer login gpu-box:7461 --token @token", [login]() -> Action {
                            if (login->options.address.empty())
                              Usage("which server? Give its address");
                            Need(CheckLogin(login->options));
                            return [login] { return RunLogin(*login); };
                          });
    verb->add_option("ADDRESS", login->options.address, "host:port of the server");
    verb->add_option("--token", login->options.token,
                     "token, - (standard input), @FILE, or GPULAYER_TOKEN");
    verb->add_option("--name", login->options.name, "name for it here (default: the host's)");

    AddJson(verb, &login->json);

    auto gone = std::make_shared<TargetArgs>();
    CLI::App* out =
        Verb(app_, "logout", "Forget a login.", "gpulayer logout gpu-box", [gone]() -> Action {
          const std::string& name = gone->name;
          // "here" was a name like another once (docs/adr/0006).
          if (!name.empty() && name != "here") Need(CheckTargetName(name));
          return [gone] { return RunLogout(*gone); };
        });
    out->add_option("NAME", gone->name, "which (default: the one in use)");
    AddJson(out, &gone->json);

    CLI::App* target = Group("target", "Choose where work goes.", "gpulayer target use gpu-box");
    auto common = std::make_shared<Common>();
    CLI::App* list =
        Verb(*target, "list", "List logins.", "gpulayer target list",
             [common]() -> Action { return [common] { return RunTargetList(*common); }; });
    list->add_flag("--json", common->json, "print one JSON document");
    auto use = std::make_shared<TargetArgs>();
    CLI::App* u =
        Verb(*target, "use", "Make a login the one in use.", "gpulayer target use gpu-box",
             [use]() -> Action {
               const std::string& name = use->name;
               if (name.empty()) Usage("which login? Give its name");
               if (name == "here" || name == "local" || name == "remote") {
                 Usage("\"" + name +
                       "\" has a meaning of its own and is no login. For the server that `up` "
                       "started here: --target here or GPULAYER_TARGET=here while a login "
                       "is in use; `gpulayer logout` forgets the login");
               }
               Need(CheckTargetName(name));
               return [use] { return RunTargetUse(*use); };
             });
    u->add_option("NAME", use->name, "name of the login");
    AddJson(u, &use->json);
  }

  void AddRest() {
    auto status = std::make_shared<Common>();
    AddCommon(Verb(app_, "status", "Show the server and what it does.", "gpulayer status",
                   [status]() -> Action { return [status] { return RunStatus(*status); }; }),
              status.get());
    auto version = std::make_shared<Common>();
    CLI::App* v =
        Verb(app_, "version", "Print the version.", "gpulayer version",
             [version]() -> Action { return [version] { return RunVersion(*version); }; });
    v->add_flag("--json", version->json, "print one JSON document");
    auto shell = std::make_shared<std::string>();
    CLI::App* c = Verb(app_, "completion", "Print completions for a shell.",
                       "source <(gpulayer completion bash)", [this, shell]() -> Action {
                         if (*shell != "bash" && *shell != "zsh" && *shell != "fish") {
                           Usage("which shell? bash, zsh or fish");
                         }
                         const std::vector<VerbInfo> verbs = Describe();
                         return [shell, verbs] { return RunCompletion(*shell, verbs); };
                       });
    c->add_option("SHELL", *shell, "bash, zsh or fish");
  }

  std::vector<VerbInfo> Describe() {
    std::vector<VerbInfo> out;
    std::function<void(CLI::App*, std::vector<std::string>)> walk =
        [&](CLI::App* app, const std::vector<std::string>& path) {
          for (CLI::App* sub : app->get_subcommands([](CLI::App*) { return true; })) {
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

  CLI::App app_;
  std::vector<std::string> words_;  // before `--`
  std::vector<std::string> command_;
  bool version_ = false;  // for the help only: Rewrite makes it the verb
  bool has_command_ = false;
  bool takes_command_ = false;
  std::string help_of_;
  const CLI::App* verb_ = nullptr;
  Action run_;
};

}  // namespace

Parsed Parse(int argc, char** argv) { return Parser().Run(argc, argv); }

}  // namespace gpulayer::cli
