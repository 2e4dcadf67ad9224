// job with all that is below it; ps, logs and cancel.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/print.h"
#include "cli/secrets.h"
#include "cli/verbs.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

std::int64_t ToJob(const std::string& text) {
  const TaskSelector task = Need(ParseTask(text), "job");
  if (task.task) {
    const std::string job = std::to_string(task.job);
    Usage("job \"" + Printable(text) + "\": a whole job is meant here: write " + job +
          ". Of one task there is `gpulayer job logs " + Printable(text) +
          "`, `job cancel` and `gpulayer job show " + job + " --from " +
          std::to_string(*task.task) + "`; its outputs lie in the folder of its number");
  }
  return task.job;
}

void AddJob(Verb& verb, std::int64_t* job) {
  verb.Word("ID", [job](const std::string& text) { *job = ToJob(text); }, "number of the job");
}

void CheckJob(std::int64_t job) {
  if (job == 0) Usage("which job? Give its number");
}

std::string StateNames() {
  std::string out;
  for (int i = 1; i <= static_cast<int>(JobState::kTimedOut); ++i) {
    out += (i == 1 ? "" : ", ") + std::string(ToString(static_cast<JobState>(i)));
  }
  return out;
}

JobState ToState(const std::string& text) {
  const std::optional<JobState> state = JobStateFromString(text);
  if (!state) {
    Usage("--state: \"" + Printable(text) + "\" is no state. There are " + StateNames());
  }
  return *state;
}

void AddList(Parser& parser, const std::string& path) {
  auto args = std::make_shared<ListArgs>();
  ListOptions& options = args->options;
  Verb verb = parser.Add(path, "List jobs, newest first.", "gpulayer " + path + " --state running");
  AddCommon(verb, &args->common);
  verb.Text(
      "--state", "STATE", [&options](const std::string& text) { options.state = ToState(text); },
      "one of " + StateNames());
  verb.Text(
      "--user", "NAME", [&options](const std::string& text) { options.user = text; },
      "only this user's");
  verb.Text("--name", "NAME", &options.name_glob, "only names that match, as 'train*'");
  verb.Number("--limit", kNumber, &options.limit, "at most so many (default: 100)");
  verb.Number("--before", "ID", &options.before, "the next page: jobs before this one");
  verb.Check([&options] {
    if (options.before.value_or(1) < 1) Usage("--before: the number of a job");
    if (options.limit < 1 || options.limit > 1000) Usage("--limit: 1 to 1000");
  });
  verb.Runs([args] { return RunJobList(*args); });
}

// Of a verb about one job; returns where more options may go.
std::shared_ptr<JobArgs> AddOne(Verb& verb, int (*run)(const JobArgs&)) {
  auto args = std::make_shared<JobArgs>();
  AddCommon(verb, &args->common);
  AddJob(verb, &args->job);
  verb.Check([args] { CheckJob(args->job); });
  verb.Runs([args, run] { return run(*args); });
  return args;
}

void AddShow(Parser& parser) {
  Verb verb = parser.Add("job show", "Show a job, its tasks and attempts.",
                         "gpulayer job show 42 --state failed");
  const auto args = AddOne(verb, RunJobShow);
  TaskOptions& tasks = args->tasks;
  verb.Text(
      "--state", "STATE", [&tasks](const std::string& text) { tasks.states = {ToState(text)}; },
      "only tasks in it: " + StateNames());
  verb.Number("--from", "TASK", &tasks.from_task,
              "tasks from this number on (at most 1000 are shown at once)");
  verb.Check([&tasks] {
    if (tasks.from_task < 0) Usage("--from: the number of a task, 0 or more");
  });
}

void AddExplain(Parser& parser) {
  Verb verb = parser.Add("job explain", "Say why a job is where it is.", "gpulayer job explain 42");
  AddOne(verb, RunJobExplain);
}

void AddAttach(Parser& parser) {
  Verb verb =
      parser.Add("job attach",
                 "Follow a job as if it had been submitted here: Ctrl-C cancels it (`logs -f` "
                 "and `job wait` leave it alone).",
                 "gpulayer job attach 42");
  const auto args = AddOne(verb, RunJobAttach);
  AddAllLogs(verb, &args->all_logs);
  verb.StandsForAProgram();
}

void AddLogs(Parser& parser, const std::string& path) {
  struct Typed {
    LogsArgs args;
    std::optional<std::int32_t> attempt;
    bool only_out = false, only_err = false;
  };
  auto typed = std::make_shared<Typed>();
  LogsArgs& args = typed->args;
  args.options.follow = false;
  Verb verb =
      parser.Add(path, "Print what a job wrote, byte for byte.", "gpulayer " + path + " -f 42");
  AddTarget(verb, &args.common.target);
  verb.Flag("-f,--follow", &args.options.follow,
            "wait for more until the job ends, and exit with its code");
  verb.Flag("--stdout", &typed->only_out, "standard output only");
  verb.Flag("--stderr", &typed->only_err, "standard error only");
  verb.Number("--attempt", kNumber, &typed->attempt, "of this attempt (default: the newest)");
  verb.Number("--tail", kNumber, &args.options.tail_lines, "the last N lines");
  verb.Word(
      "ID",
      [&args](const std::string& text) {
        const TaskSelector task = Need(ParseTask(text), "job");
        args.job = task.job;
        args.task_given = task.task.has_value();
        args.options.task = task.task.value_or(0);
      },
      "number of the job, or JOB.TASK");
  verb.NotBuilt({"--rank"});
  verb.Check([typed, &args] {
    CheckJob(args.job);
    if (typed->only_out && typed->only_err) Usage("--stdout and --stderr: give one of them");
    args.options.out = !typed->only_err;
    args.options.err = !typed->only_out;
    if (args.options.tail_lines.value_or(0) < 0) Usage("--tail: 0 or more");
    if (typed->attempt.value_or(1) < 1) Usage("--attempt: 1 or more");
    args.options.attempt = typed->attempt.value_or(0);
  });
  verb.Runs([typed] { return RunJobLogs(typed->args); });
}

void AddExec(Parser& parser) {
  auto args = std::make_shared<ExecArgs>();
  Verb verb =
      parser.Add("job exec",
                 "Run a command inside a running job: in its folder, with its environment and "
                 "devices. On a terminal without one: a shell.",
                 "gpulayer job exec 42 -- ls -l");
  AddTarget(verb, &args->target);
  verb.Word(
      "ID",
      [args](const std::string& text) {
        const TaskSelector task = Need(ParseTask(text), "job");
        args->job = task.job;
        args->task = task.task;
      },
      "number of the job, or JOB.TASK");
  verb.OptionalCommand(&args->command);
  verb.NotBuilt({"--rank"});
  verb.StandsForAProgram();
  verb.Check([args] {
    CheckJob(args->job);
    if (!args->command.empty()) {
      if (args->command.front().empty()) Usage("the program's name is empty");
      return;
    }
    if (!IsTerminal(STDIN_FILENO) || !IsTerminal(STDOUT_FILENO)) {
      Usage("what to run? Write it after `--`: gpulayer job exec " + std::to_string(args->job) +
            " -- ls -l. Without a command a shell starts, on a terminal only");
    }
    args->command = {"sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"};
  });
  verb.Runs([args] { return RunJobExec(*args); });
}

void AddWait(Parser& parser) {
  auto args = std::make_shared<WaitArgs>();
  Verb verb = parser.Add("job wait", "Wait for jobs; exit with the worst one's code.",
                         "gpulayer job wait 42 43");
  AddCommon(verb, &args->common);
  verb.Words(
      "ID", [args](const std::string& text) { args->jobs.push_back(ToJob(text)); },
      "numbers of the jobs");
  verb.StandsForAProgram();
  verb.Check([args] {
    if (args->jobs.empty()) Usage("which jobs? Give their numbers");
  });
  verb.Runs([args] { return RunJobWait(*args); });
}

void AddCancel(Parser& parser, const std::string& path) {
  auto args = std::make_shared<CancelArgs>();
  Verb verb = parser.Add(path, "Cancel jobs or tasks.", "gpulayer " + path + " 42");
  AddCommon(verb, &args->common);
  verb.Flag("--now", &args->options.now, "without the job's grace");
  verb.Words(
      "ID",
      [args](const std::string& text) { args->tasks.push_back(Need(ParseTask(text), "job")); },
      "numbers of jobs, or JOB.TASK");
  verb.NotBuilt({"--name", "--state", "--mine"});
  verb.Check([args] {
    if (args->tasks.empty()) Usage("which jobs? Give their numbers");
  });
  verb.Runs([args] { return RunJobCancel(*args); });
}

void AddResult(Parser& parser) {
  auto args = std::make_shared<ResultArgs>();
  Verb verb = parser.Add("job result", "Show how a job ended, and bring its outputs.",
                         "gpulayer job result 42 --download");
  AddCommon(verb, &args->common);
  verb.Flag("--download", &args->download, "bring the outputs into the run folder, anew");
  verb.Text("--to", kFolder, &args->to,
            "bring them directly into this folder; files there that differ are not replaced");
  AddJob(verb, &args->job);
  verb.Check([args] {
    CheckJob(args->job);
    if (!args->to.empty()) args->download = true;
  });
  verb.Runs([args] { return RunJobResult(*args); });
}

void AddRetry(Parser& parser) {
  auto args = std::make_shared<RetryArgs>();
  Verb verb = parser.Add("job retry", "Run a job again, as a new one; prints its id.",
                         "gpulayer job retry 42 --failed");
  AddCommon(verb, &args->common);
  verb.Flag("--failed", &args->options.unsuccessful_only,
            "of several tasks only those that did not succeed");
  verb.Text("--request-id", "ID", &args->options.request_id, "same id, same job");
  auto secrets = std::make_shared<std::vector<std::string>>();
  AddSecrets(verb, secrets.get());
  AddJob(verb, &args->job);
  verb.NotBuilt({"--resume"});
  verb.Check([args, secrets] {
    CheckJob(args->job);
    args->options.secrets = TakeSecrets(*secrets);
  });
  verb.Runs([args] { return RunJobRetry(*args); });
}

}  // namespace

void AddJobVerbs(Parser& parser) {
  parser.Group("job", "List, follow and change jobs.", "gpulayer job list --state running");
  AddList(parser, "job list");
  AddList(parser, "ps");
  AddShow(parser);
  AddExplain(parser);
  AddAttach(parser);
  AddLogs(parser, "job logs");
  AddLogs(parser, "logs");
  AddExec(parser);
  AddWait(parser);
  AddCancel(parser, "job cancel");
  AddCancel(parser, "cancel");
  AddResult(parser);
  AddRetry(parser);
  parser.NotBuilt({"job release", "job set"});
}

}  // namespace gpulayer::cli
