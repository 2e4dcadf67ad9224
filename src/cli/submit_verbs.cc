// submit, and run, which is submit on this machine.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cli/project.h"
#include "cli/secrets.h"
#include "cli/verbs.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

// What needs more than a conversion to become a SubmitArgs.
struct Typed {
  SubmitArgs args;
  std::vector<std::string> project_env, env, env_files, secrets;
  std::string array, each;
  bool no_outputs = false;
};

void ParseSourceLimit(const std::string& text, JobSpec* spec) {
  const std::size_t comma = text.find(',');
  const std::string size = text.substr(0, comma);
  if (!size.empty()) spec->source_limit_bytes = ToSize("--source-limit", size);
  if (comma == std::string::npos) return;
  const std::string files = text.substr(comma + 1);
  const bool digits = !files.empty() && files.size() <= 12 &&
                      files.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) {
    Usage("--source-limit: \"" + Printable(text) + "\" is not SIZE,FILES as 2GiB,50000");
  }
  spec->source_limit_files = std::stoll(files);
}

void CheckCommand(const SubmitArgs& args) {
  const JobSpec& spec = args.spec;
  if (spec.command.empty() && spec.shell.empty()) {
    if (!args.dry_run) Usage("no command. Write it after `--`, or use --shell");
  } else if (!spec.command.empty() && !spec.shell.empty()) {
    Usage("--shell and a command after `--`: give one of them");
  }
}

bool Contains(std::initializer_list<const char*> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What is typed wins, and GPULAYER_TARGET counts as typed.
std::vector<Preset> ProjectPresets(Typed* typed, const Verb::IsTyped& is_typed) {
  SubmitArgs& args = typed->args;
  const std::string& source = args.spec.source_dir;
  const Result<ProjectDefaults> project = ReadProjectDefaults(source.empty() ? "." : source);
  if (!project.ok()) Usage(project.status().message());
  const char* env = std::getenv("GPULAYER_TARGET");
  std::string target = args.common.target;  // of `run` too
  if (target.empty() && env != nullptr) target = env;
  const auto theirs = project->values.find("target");
  const bool own_target = !target.empty() || theirs == project->values.end();
  const bool local = (own_target ? target : theirs->second.texts.front()) == "local";
  std::vector<Preset> presets;
  for (const auto& [name, value] : project->values) {
    const std::string option = "--" + name;
    if (name == "target" && own_target) continue;
    // The private server has one worker.
    if (local && Contains({"worker", "label", "zone", "region", "wait-for-worker"}, name)) continue;
    if (name == "source" && is_typed("--no-source")) continue;
    if (name == "output" && is_typed("--no-outputs")) continue;
    if (name == "no-outputs" && is_typed("--output")) continue;
    const bool table = name == "env" || name == "label";
    if (is_typed(option) && !table) continue;
    args.project_options.push_back(name);
    if (name == "env") {  // before --env-file
      typed->project_env = value.texts;
      continue;
    }
    presets.push_back(
        {option, value.texts, Printable(project->file) + ":" + std::to_string(value.line), table});
  }
  args.project_file = project->file;
  return presets;
}

// What files set comes first, so that --env may change it.
void AddVariables(const Typed& typed, JobSpec* spec) {
  for (const std::string& var : typed.project_env) spec->env.push_back(ToKeyValue("env", var));
  for (const std::string& file : typed.env_files) {
    const auto vars = Need(ReadEnvFile(file), "--env-file");
    spec->env.insert(spec->env.end(), vars.begin(), vars.end());
  }
  for (const std::string& var : typed.env) spec->env.push_back(ToKeyValue("--env", var));
}

void ParseTasks(const std::string& array, const std::string& each, JobSpec* spec) {
  if (!array.empty() && !each.empty()) Usage("--array and --each: give one of them");
  if (!array.empty()) {
    const ArrayText parsed = Need(ParseArray(array), "--array");
    spec->array = parsed.tasks;
    spec->max_parallel = parsed.max_parallel;
  }
  if (each.empty()) return;
  spec->items = Need(ReadItems(each), "--each");
  if (spec->items.empty()) Usage("--each: " + Printable(each) + " has no line");
}

void CheckStdin(const std::string& path) {
  if (path.empty()) return;
  if (path == "-") {
    Usage(
        "--stdin: standard input is not shipped. Write it into a file first, and name that: cat > "
        "input; gpulayer submit --stdin input -- ...");
  }
  if (::access(path.c_str(), R_OK) == 0) return;
  Usage("--stdin: " + Printable(path) + ": " + std::strerror(errno) +
        ". It wants a file that is here");
}

void CheckSource(const std::string& dir) {
  struct stat info = {};
  if (dir.empty()) return;
  const bool found = ::stat(dir.c_str(), &info) == 0;
  if (found && S_ISDIR(info.st_mode)) return;
  Usage("--source: " + Printable(dir) + ": " + std::strerror(found ? ENOTDIR : errno) +
        ". It wants a folder that is here");
}

void Check(Typed& typed) {
  SubmitArgs& args = typed.args;
  JobSpec& spec = args.spec;
  spec.outputs.collect = !typed.no_outputs;
  if (typed.no_outputs && !spec.outputs.globs.empty()) {
    Usage("--output and --no-outputs: give one of them");
  }
  if (spec.no_source && !spec.source_dir.empty()) {
    Usage("--source and --no-source: give one of them");
  }
  AddVariables(typed, &spec);
  if (typed.each == "-" && std::any_of(typed.secrets.begin(), typed.secrets.end(), FromStdin)) {
    Usage("--secret and --each: standard input is one of them only");
  }
  if (!args.dry_run) spec.secrets = TakeSecrets(typed.secrets);
  if (spec.resources.slots < 1) Usage("--slots: at least 1");
  ParseTasks(typed.array, typed.each, &spec);
  if (args.all_logs && args.detach) Usage("--all-logs and --detach: give one of them");
  CheckStdin(spec.stdin_file);
  CheckSource(spec.source_dir);
  if (!spec.command.empty() || !spec.shell.empty()) {
    args.fit = CheckSpec(spec);
    // More than a kernel starts is refused by the verb: the usage is right.
    if (args.fit.code() != StatusCode::kResourceExhausted) Need(args.fit);
  }
  if (args.common.target == "local" && args.detach) {
    Usage("--detach: a local run ends with its command; it cannot be left");
  }
}

void AddSubmit(Parser& parser, const std::string& name, const std::string& help,
               const std::string& example) {
  const bool local = name == "run";
  auto typed = std::make_shared<Typed>();
  SubmitArgs& args = typed->args;
  JobSpec& spec = args.spec;
  Verb verb = parser.Add(name, help, example);
  if (local) {
    args.common.target = "local";
  } else {
    AddTarget(verb, &args.common.target);
  }
  verb.Command(&spec.command);
  verb.Check([&args] { CheckCommand(args); });
  verb.Flag("--json", &args.common.json,
            "print one JSON document at the end; the job's output goes to standard error");
  verb.Text("--name", "NAME", &spec.name, "name of the job (default: the command's first words)");
  verb.Text("--shell", "LINE", &spec.shell, "a line for /bin/sh instead of a command");
  verb.Text("--stdin", kFile, &spec.stdin_file,
            "file that becomes the standard input (default: none)");
  verb.Many("--env", "K=V", &typed->env,
            "one environment variable of the job; repeat the option for more");
  verb.Many("--env-file", kFile, &typed->env_files,
            "a file of K=V lines, # comments; may be repeated");
  AddSecrets(verb, &typed->secrets);
  verb.Duration("--time", &spec.time_limit,
                "time limit from the program's start, as 10m (default: none)");
  verb.Duration("--grace", &spec.grace, "between SIGTERM and SIGKILL (default: 15s)");
  verb.Number("--slots", kNumber, &spec.resources.slots, "CPUs (default: 1)");
  verb.Size("--memory", &spec.resources.memory_bytes, "memory to reserve, as 4GiB (default: none)");
  verb.ManyPairs("--label", &spec.resources.labels,
                 "only workers with this label; may be repeated");
  verb.Text("--zone", "NAME", &spec.resources.zone, "only workers of this zone");
  verb.Text("--region", "NAME", &spec.resources.region, "only workers of this region");
  verb.Many("--worker", "NAME", &spec.resources.workers,
            "only this worker, by name or id; repeated: any of them");
  verb.Text("--source", kFolder, &spec.source_dir,
            "folder that ships; the job starts in a copy of it");
  verb.Text(
      "--source-limit", "SIZE[,FILES]",
      [&spec](const std::string& text) { ParseSourceLimit(text, &spec); },
      "a larger source is refused (default: 512MiB,20000)");
  verb.Flag("--no-source", &spec.no_source, "ship nothing, though an argument names a file here");
  verb.Flag("--dry-run", &args.dry_run, "list what would ship, and submit nothing");
  verb.Many("--output", "GLOB", &spec.outputs.globs,
            "of the working directory only what matches, as '*.png' or ./top.txt; may be repeated");
  verb.Flag("--no-outputs", &typed->no_outputs, "bring nothing home");
  verb.Size("--output-limit", &spec.outputs.limit_bytes,
            "of each task; what is over it stays behind (default: 4GiB)");
  verb.Size("--log-limit", &spec.log_limit_bytes,
            "output kept of an attempt, its beginning and its end (default: 1GiB)");
  verb.Flag("--keep", &spec.keep, "leave the work folder of a failure on its worker");
  verb.Text("--array", "TASKS", &typed->array,
            "FIRST-LAST[:STEP][%MAX], a task each, at most MAX at a time: 0-99%4");
  verb.Text("--each", kFile, &typed->each,
            "FILE, a task a line; {} and $GPULAYER_ITEM are the line (-: standard input)");
  AddAllLogs(verb, &args.all_logs);
  verb.Text("--request-id", "ID", &spec.request_id, "same id, same job");
  verb.Flag("--wait-for-worker", &spec.wait_for_worker,
            "queue it even if no known worker could ever run it");
  if (local) {
    // The private server has one worker, and one job.
    for (const char* option :
         {"--worker", "--label", "--zone", "--region", "--wait-for-worker", "--request-id"}) {
      verb.Hide(option);
    }
    verb.HiddenFlag("-d,--detach", &args.detach, "refused with the reason");
  } else {
    verb.Flag("-d,--detach", &args.detach, "print the job's id and leave");
  }
  verb.NotBuilt({"--accelerator",    "--devices",  "--device-memory",   "--device-model",
                 "--framework",      "--python",   "--exclusive",       "--nodes",
                 "--procs-per-node", "--launcher", "--on-rank-exit",    "--input",
                 "--requirements",   "--pip",      "--fresh-env",       "--prepare-time",
                 "--signal-to",      "--retries",  "--retry-on",        "--crash-limit",
                 "--lost-after",     "--fence",    "--priority",        "--after",
                 "--after-any",      "--hold",     "--checkpoint-limit"});
  verb.StandsForAProgram();
  verb.Presets(
      [typed](const Verb::IsTyped& is_typed) { return ProjectPresets(typed.get(), is_typed); });
  verb.Check([typed] { Check(*typed); });
  verb.Runs([typed] { return RunSubmit(typed->args); });
}

}  // namespace

void AddSubmitVerbs(Parser& parser) {
  AddSubmit(parser, "submit", "Run a command on a worker and bring its outputs home.",
            "gpulayer submit --source . --memory 4GiB -- python train.py --lr 0.1");
  AddSubmit(parser, "run", "As submit, on this machine, in a private server that ends with it.",
            "gpulayer run -- sh -c 'echo hello from $GPULAYER_WORKER'");
}

}  // namespace gpulayer::cli
