// job logs, attach, wait: what stands for a job, and exits with its code.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "cli/args.h"
#include "cli/follow.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/session.h"

namespace gpulayer::cli {
namespace {

int Failed(const Session& session, const Status& status, std::int64_t job, int code = kCouldNot) {
  if (session.left() != 0) return session.Leave(job);
  PrintError(status);
  return code;
}

}  // namespace

int RunJobLogs(const LogsArgs& args) {
  Session session;
  // Only a follower stands for the program and exits with its code.
  const int failed = args.options.follow ? kCouldNot : kFailed;
  Result<Client> client = Client::Connect(session.Options(args.common.target));
  if (!client.ok()) return Failed(session, client.status(), args.job, failed);
  if (!args.task_given) {
    const Result<JobInfo> info = client->Get(args.job);
    if (!info.ok()) return Failed(session, info.status(), args.job, failed);
    if (info->is_array) {
      const std::string job = std::to_string(args.job);
      const std::int64_t first = info->request.array ? info->request.array->first : 0;
      PrintNote("job " + job + " has " + std::to_string(info->task_count) +
                (info->task_count == 1 ? " task" : " tasks") +
                ": name one, as `gpulayer job logs " + job + "." + std::to_string(first) +
                "`, or follow all of them: `gpulayer job attach " + job + " --all-logs`");
      return failed;
    }
  }
  FollowOptions options;
  options.again = "logs -f " + std::to_string(args.job);
  if (args.task_given) {
    options.task = args.options.task;
    options.again += "." + std::to_string(args.options.task);
  }
  session.FollowsWith(options.again);
  options.log = args.options;
  options.outputs = false;
  options.say_waiting = false;
  if (args.options.follow) return FollowJob(session, *client, args.job, options);
  ByteSink out(1);
  ByteSink err(2);
  const Status status = client->StreamLogs(args.job, args.options, [&](const LogChunk& chunk) {
    if (chunk.stream == LogStream::kNote) return PrintLogNote(chunk.data), true;
    return (chunk.stream == LogStream::kOut ? out : err).Write(chunk.data);
  });
  out.Finish();
  err.Finish();
  for (const ByteSink* sink : {&out, &err}) {
    if (sink->error() == 0) continue;
    // `| head` has seen enough: a program that hears SIGPIPE would say nothing either.
    if (sink->error() == EPIPE) return 128 + SIGPIPE;
    PrintNote(WriteErrorText(sink == &out ? 1 : 2, sink->error()) + ". The log above is cut.");
    return failed;
  }
  return status.ok() ? 0 : Failed(session, status, args.job, failed);
}

int RunJobAttach(const JobArgs& args) {
  Session session;
  Result<Client> client = Client::Connect(session.Options(args.common.target));
  if (!client.ok()) return Failed(session, client.status(), args.job);
  const Result<JobInfo> info = client->Get(args.job);
  if (!info.ok()) return Failed(session, info.status(), args.job);
  session.Owns(*client, args.job);
  if (IsTerminal(STDERR_FILENO) && !IsTerminal(info->state)) {
    const std::string id = std::to_string(args.job);
    PrintNote("Ctrl-C cancels job " + id +
              (info->is_array ? "; `gpulayer job wait " + id + "` waits for it without that"
                              : "; `gpulayer logs -f " + id + "` follows it without that"));
  }
  FollowOptions options;
  options.array = info->is_array;
  options.all_logs = args.all_logs;
  options.json = args.common.json;
  return FollowJob(session, *client, args.job, options);
}

int RunJobWait(const WaitArgs& args) {
  Session session;
  Result<Client> client = Client::Connect(session.Options(args.common.target));
  if (!client.ok()) return Failed(session, client.status(), args.jobs.front());
  std::map<std::int64_t, JobResult> ended;
  const Status waited = client->WaitEach(args.jobs, [&](const JobInfo& info) {
    SayEnd(info);
    SayFailedTasks(info);
    ended[info.id] = ResultOf(info);
    return true;
  });
  if (!waited.ok()) {
    const auto left = std::find_if(args.jobs.begin(), args.jobs.end(),
                                   [&](std::int64_t job) { return !ended.contains(job); });
    const std::int64_t job = left != args.jobs.end() ? *left : args.jobs.front();
    session.FollowsWith("job wait " + std::to_string(job));
    return Failed(session, waited, job);
  }
  std::vector<JobResult> results;
  int worst = 0;
  for (const std::int64_t job : args.jobs) {
    results.push_back(ended[job]);
    // The largest code is the worst: 130, 128+N, 12x, then the programs' own.
    worst = std::max(worst, results.back().shell_exit_code);
  }
  if (args.common.json) PrintOut(ResultListJson(results));
  return worst;
}

}  // namespace gpulayer::cli
