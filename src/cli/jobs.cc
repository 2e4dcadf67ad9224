// job list, show, explain, cancel, result: one question, one answer.
#include "cli/args.h"
#include "cli/follow.h"
#include "cli/follow_array.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/verb.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

std::string ExitText(const Outcome& outcome) {
  if (outcome.exit_code) return std::to_string(*outcome.exit_code);
  if (outcome.signal) return "signal " + std::to_string(*outcome.signal);
  return "";
}

// How long it ran, or has run by this machine's clock; empty: it never began.
std::string RanText(const JobInfo& job) {
  const Time now =
      std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  // One that waits for another attempt does not run.
  if (job.state == JobState::kQueued || job.state == JobState::kPreparing) return "";
  const Time until = job.ended.value_or(now);
  if (!job.started || until < *job.started || (!job.ended && IsTerminal(job.state))) return "";
  const auto ran = std::chrono::duration_cast<std::chrono::milliseconds>(until - *job.started);
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(ran);
  if (whole.count() > 0 || !job.ended) return FormatDuration(whole);
  return ran.count() > 0 ? FormatDuration(ran) : "<1ms";
}

// "ended" says nothing of how. A task's last attempt ended as the task did.
std::string AttemptText(const TaskInfo& task, const AttemptInfo& attempt) {
  if (attempt.state != AttemptState::kEnded) return ToString(attempt.state);
  const bool last = attempt.number == task.attempts.back().number;
  if (last && IsTerminal(task.state)) return ToString(task.state);
  switch (attempt.outcome.cause) {
    case CauseKind::kNone: return ToString(attempt.state);
    case CauseKind::kCancelled: return ToString(JobState::kCancelled);
    case CauseKind::kTimeLimit: return ToString(JobState::kTimedOut);
    case CauseKind::kServerStopped: return "stopped";
    default:
      return ToString(attempt.outcome.exit_code == 0 ? JobState::kSucceeded : JobState::kFailed);
  }
}

std::string SecretNames(const JobSpec& spec) {
  std::string names;
  for (const auto& [name, value] : spec.secrets) {
    names += (names.empty() ? "" : ", ") + Printable(name);
  }
  return names;
}

std::string JobText(const JobInfo& job) {
  const ResourceRequest& r = job.request.resources;
  std::string text = Fields({
      {"job", std::to_string(job.id)},
      {"name", job.request.name},
      {"user", job.user},
      {"state", ToString(job.state)},
      {"exit", ExitText(job.outcome)},
      {"cause", job.outcome.cause == CauseKind::kNone ||
                        (job.outcome.cause == CauseKind::kProgram && job.outcome.cause_text.empty())
                    ? ""
                    : std::string(ToString(job.outcome.cause)) +
                          (job.outcome.cause_text.empty() ? "" : ": " + job.outcome.cause_text)},
      {"retry of", job.retry_of > 0 ? "job " + std::to_string(job.retry_of) : ""},
      {"tasks", job.is_array ? ArrayProgress(job) : ""},
      {"command", ShellWords(job.request.command)},
      {"secrets", SecretNames(job.request)},
      {"slots", std::to_string(r.slots)},
      {"memory", r.memory_bytes > 0 ? FormatSize(r.memory_bytes) : ""},
      {"source", job.source_hash},
      {"created", TimeText(job.created)},
      {"started", TimeText(job.started)},
      {"ended", TimeText(job.ended)},
      {IsTerminal(job.state) ? "ran for" : "running for", RanText(job)},
  });
  std::vector<std::string> head = {"ATTEMPT", "STATE", "WORKER", "EXIT", "STARTED", "ENDED"};
  if (job.has_items) head.emplace_back("ITEM");
  Table attempts(head);
  bool any = false;
  for (const TaskInfo& task : job.tasks) {
    for (const AttemptInfo& a : task.attempts) {
      any = true;
      std::vector<std::string> row = {std::to_string(job.id) + "." + std::to_string(task.index) +
                                          "#" + std::to_string(a.number),
                                      AttemptText(task, a),
                                      a.worker,
                                      ExitText(a.outcome),
                                      TimeText(a.started),
                                      TimeText(a.ended)};
      if (job.has_items) row.push_back(task.item.value_or(""));
      attempts.Add(std::move(row));
    }
  }
  if (any) text += "\n" + attempts.ToText();
  for (const std::string& line : KeptLines(job)) text += line + "\n";
  return text;
}

// A line each; empty: all came home.
std::string LeftOutText(const JobInfo& job) {
  std::vector<LeftOutFile> files;
  std::int64_t count = 0;
  for (const TaskInfo& task : job.tasks) {
    files.insert(files.end(), task.left_out.begin(), task.left_out.end());
    count += task.left_out_count;
  }
  std::string out;
  for (const std::string& line : LeftOutLines(files, count)) out += line + "\n";
  return out;
}

// Of the tasks behind the first page what they brought, and no more: there may be a million.
Status AddOutputsOfTheRest(Client& client, JobInfo* job) {
  TaskOptions options;
  options.items = false;
  for (std::optional<std::int64_t> next = job->next_task; next;) {
    options.from_task = *next;
    Result<JobInfo> page = client.Get(job->id, options);
    if (!page.ok()) return page.status();
    TaskInfo sum;
    for (const TaskInfo& task : page->tasks) {
      sum.output_files += task.output_files;
      sum.output_bytes += task.output_bytes;
      sum.left_out_count += task.left_out_count;
    }
    job->tasks.push_back(std::move(sum));
    next = page->next_task;
  }
  return {};
}

// All or none: a server that refuses one of several has cancelled none of them.
Status NothingCancelled(const Status& refused) {
  const bool by_server =
      refused.code() == StatusCode::kNotFound || refused.code() == StatusCode::kPermissionDenied;
  if (!by_server) return refused;  // whether the request was carried out is not known
  return Status(refused.code(), refused.message() + ". Nothing was cancelled.");
}

}  // namespace

int RunJobList(const ListArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const JobPage page, client.List(args.options));
    if (args.common.json) return PrintOut(JobListJson(page)), 0;
    Table table({"ID", "NAME", "STATE", "USER", "EXIT", "CREATED", "RAN FOR"});
    for (const JobInfo& job : page.jobs) {
      table.Add({std::to_string(job.id), job.request.name, ToString(job.state), job.user,
                 ExitText(job.outcome), TimeText(job.created), RanText(job)});
    }
    PrintOut(table.ToText());
    if (page.next_page) {
      PrintNote("there are more: --before " + std::to_string(*page.next_page));
    }
    return 0;
  });
}

int RunJobShow(const JobArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const JobInfo job, client.Get(args.job, args.tasks));
    if (args.common.json) return PrintOut(JobJson(job)), 0;
    PrintOut(JobText(job));
    if (job.next_task) {
      std::string states;
      for (const JobState state : args.tasks.states) {
        states += " --state " + std::string(ToString(state));
      }
      PrintNote("there are more tasks: `gpulayer job show " + std::to_string(job.id) + states +
                " --from " + std::to_string(*job.next_task) + "`");
    }
    if (args.tasks.states.empty()) SayFailedTasks(job);
    return 0;
  });
}

int RunJobExplain(const JobArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const Explanation why, client.Explain(args.job));
    if (args.common.json) return PrintOut(ExplanationJson(why)), 0;
    std::string text = Fields({{"job", std::to_string(why.job)},
                               {"state", ToString(why.state)},
                               {"needs", why.needs},
                               {"waiting since", TimeText(why.waiting_since)},
                               {"ahead of it", why.ahead > 0 ? std::to_string(why.ahead) : ""},
                               {"in short", why.summary}});
    if (!why.workers.empty()) {
      Table table({"WORKER", "VERDICT", "WHY"});
      for (const Explanation::Worker& w : why.workers) {
        std::string lacks;
        for (const std::string& lack : w.lacks) lacks += (lacks.empty() ? "" : "; ") + lack;
        table.Add({w.name, ToString(w.kind), lacks});
      }
      text += "\n" + table.ToText();
    }
    PrintOut(text);
    return 0;
  });
}

int RunJobCancel(const CancelArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    const Result<CancelSummary> answer = client.Cancel(args.tasks, args.options);
    if (!answer.ok())
      return args.tasks.size() > 1 ? NothingCancelled(answer.status()) : answer.status();
    const CancelSummary& done = *answer;
    if (args.common.json) return PrintOut(CancelJson(done)), 0;
    // A program that runs has its grace from now on.
    std::string text =
        "cancelling " + std::to_string(done.cancelled) + (done.cancelled == 1 ? " task" : " tasks");
    if (done.already_ended > 0) {
      text += ", " + std::to_string(done.already_ended) + " already over";
    }
    if (done.finishing > 0) {
      text += ", " + std::to_string(done.finishing) +
              (done.finishing == 1 ? " finishing: its program is over, its outputs travel"
                                   : " finishing: their programs are over, their outputs travel");
    }
    PrintOut(text + "\n");
    return 0;
  });
}

int RunJobRetry(const RetryArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const Job job, client.Retry(args.job, args.options));
    for (const std::string& warning : job.warnings()) PrintNote(warning);
    PrintOut(args.common.json ? SubmittedJson({job.id(), job.existed(), job.warnings()})
                              : std::to_string(job.id()) + "\n");
    return 0;
  });
}

int RunJobResult(const ResultArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    ResultDocument result;
    GPULAYER_TRY(result.job, client.Get(args.job));
    if (!IsTerminal(result.job.state)) {
      return Status(StatusCode::kFailedPrecondition,
                    "job " + std::to_string(args.job) + ": not over yet (" +
                        ToString(result.job.state) + "). Wait with `gpulayer job wait " +
                        std::to_string(args.job) + "`.");
    }
    if (args.download) {
      DownloadOptions options;
      options.to = args.to;
      GPULAYER_TRY(result.outputs, client.Download(args.job, options));
    }
    if (args.common.json) {
      if (result.outputs) SayOutputs(*result.outputs, args.to.empty() ? args.job : 0);
      return PrintOut(ResultJson(result)), 0;
    }
    if (const Status rest = AddOutputsOfTheRest(client, &result.job); !rest.ok()) return rest;
    std::optional<std::string> brought;
    if (result.outputs) brought = result.outputs->folder;
    PrintOut(JobText(result.job) + OutputsText(result.job, brought) + LeftOutText(result.job));
    return 0;
  });
}

}  // namespace gpulayer::cli
