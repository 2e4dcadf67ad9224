#include "cli/follow.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "cli/args.h"
#include "cli/follow_array.h"
#include "cli/hints.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/thread.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

using std::chrono::milliseconds;

// Says why nothing comes, once that has lasted: at once on a terminal, later where lines are kept.
// Where no thread is to be had nothing is said.
class WaitTeller {
 public:
  WaitTeller(Client client, std::int64_t job) : client_(std::move(client)), job_(job) {
    thread_ = TryThread([this] { Run(); });
  }
  ~WaitTeller() {
    Quiet();
    if (thread_.joinable()) thread_.join();
  }
  WaitTeller(const WaitTeller&) = delete;
  WaitTeller& operator=(const WaitTeller&) = delete;

  void Quiet() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      quiet_ = true;
    }
    cv_.notify_all();
  }

 private:
  bool Pause(milliseconds d) {
    std::unique_lock<std::mutex> lock(mutex_);
    return !cv_.wait_for(lock, d, [this] { return quiet_; });
  }

  void Run() {
    const bool terminal = IsTerminal(STDERR_FILENO);
    std::string said;
    milliseconds pause = terminal ? milliseconds(1'000) : milliseconds(10'000);
    while (Pause(pause)) {
      pause = terminal ? milliseconds(5'000) : milliseconds(60'000);
      const Result<Explanation> why = client_.Explain(job_);
      if (!why.ok() || IsTerminal(why->state) || why->state == JobState::kRunning) return;
      std::string line = "job " + std::to_string(job_) + " " + ToString(why->state);
      if (!why->summary.empty()) line += ": " + Printable(why->summary);
      if (WithoutDuration(line) == said) continue;
      said = WithoutDuration(line);
      PrintNote(line);
    }
  }

  static bool IsTerminal(int fd) { return cli::IsTerminal(fd); }
  static bool IsTerminal(JobState state) { return api::IsTerminal(state); }

  Client client_;
  const std::int64_t job_;
  std::mutex mutex_;
  std::condition_variable cv_;
  bool quiet_ = false;
  std::thread thread_;
};

bool HasPrivateServer(const Client& client) { return client.target() == "local"; }

// Whoever followed a job to an error of ours wants to know what becomes of it.
int Lost(const Status& status, const Client& client, std::int64_t job, const std::string& again) {
  PrintError(status);
  switch (status.code()) {
    case StatusCode::kNotFound:  // there is no such job, or task, or attempt
    case StatusCode::kOutOfRange:
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition: break;  // says it itself, as the end of a private server
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied:
      PrintNote(AfterUs(job, HasPrivateServer(client), again) + " after a new `gpulayer login`");
      break;
    default: PrintNote(AfterUs(job, HasPrivateServer(client), again));
  }
  return kCouldNot;
}

// Standard output cannot be written to.
int Unwritten(int error, bool over, const Client& client, std::int64_t job,
              const std::string& again) {
  const std::string after = over ? "job " + std::to_string(job) + " is over"
                                 : AfterUs(job, HasPrivateServer(client), again);
  if (error == EPIPE) {
    PrintNote("standard output is closed; " + after);
    return 128 + SIGPIPE;
  }
  PrintNote(WriteErrorText(STDOUT_FILENO, error) + "; " + after);
  return kCouldNot;
}

// The run folder could not be made or filled. The bytes of a private server end with us: they are
// put where there is room for them.
Result<DownloadReport> Rescue(Client& client, std::int64_t job) {
  const char* tmp = std::getenv("TMPDIR");
  const std::string root = tmp != nullptr && *tmp != '\0' ? tmp : "/tmp";
  std::string folder = root + "/gpulayer-outputs-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "TMPDIR " + Printable(root) + ": " + std::strerror(errno) +
                      ". Set it to a folder that is there and may be written in.");
  }
  DownloadOptions options;
  options.to = folder;
  Result<DownloadReport> report = client.Download(job, options);
  const bool filled = report.ok() && !report->folder.empty();
  if (!filled && ::rmdir(folder.c_str()) != 0) {
    PrintNote("what came of the outputs before that is in " + Printable(folder));
  }
  return report;
}

// Outputs that did not come home: said, and where they are.
std::optional<DownloadReport> SayWhereOutputsAre(Client& client, std::int64_t job,
                                                 const Status& why) {
  PrintError(why);
  const std::string name = std::to_string(job);
  if (!HasPrivateServer(client)) {
    PrintNote("the outputs are still on the server: `gpulayer job result " + name + " --to DIR`");
    return std::nullopt;
  }
  const std::string lost =
      "the outputs of job " + name + " are lost: they end with its private server";
  if (why.code() == StatusCode::kCancelled) {  // whoever did not wait for them wants no other copy
    PrintNote(lost);
    return std::nullopt;
  }
  Result<DownloadReport> rescued = Rescue(client, job);
  if (rescued.ok()) {
    PrintNote("the outputs are in " + Printable(rescued->folder) + " instead");
    return *std::move(rescued);
  }
  PrintError(rescued.status());
  PrintNote(lost);
  return std::nullopt;
}

// The log's end comes with the job's; a moment between the two is waited for.
Result<JobInfo> FinalInfo(Client& client, std::int64_t job) {
  Result<JobInfo> info = client.Get(job);
  if (info.ok() && !IsTerminal(info->state)) info = client.Watch(job, nullptr);
  return info;
}

// Of one task among others: the job's own, with this task's end in the place of the job's.
Result<JobInfo> FinalInfoOfTask(Client& client, std::int64_t job, std::int64_t task) {
  TaskOptions options;
  options.from_task = task;
  Result<JobInfo> info = client.Get(job, options);
  const auto own = [&]() -> const TaskInfo* {
    const bool found = !info->tasks.empty() && info->tasks.front().index == task;
    return found ? &info->tasks.front() : nullptr;
  };
  if (info.ok() && (own() == nullptr || !IsTerminal(own()->state))) {
    // What was followed was one attempt; the end of the task's whole log is that of the task.
    LogOptions to_the_end;
    to_the_end.task = task;
    to_the_end.out = to_the_end.err = false;
    const Status over = client.StreamLogs(job, to_the_end, [](const LogChunk&) { return true; });
    if (!over.ok()) return over;
    info = client.Get(job, options);
  }
  if (!info.ok()) return info;
  info->is_array = false;
  if (own() != nullptr) {
    info->state = own()->state;
    info->outcome = own()->outcome;
    info->tasks.resize(1);
  } else {  // of many that are cancelled before they start the server keeps no record each
    info->state = JobState::kCancelled;
    info->outcome = Outcome();
    info->outcome.cause = CauseKind::kCancelled;
  }
  return info;
}

}  // namespace

void SayEnd(const JobInfo& job, const std::string& source_dir) {
  const std::string name = "job " + std::to_string(job.id);
  const Outcome& end = job.outcome;
  if (job.is_array) {
    if (job.state == JobState::kSucceeded) return;
    PrintNote(name + " " + ToString(job.state) + ": " + ArrayProgress(job));
    return;
  }
  if (end.cause == CauseKind::kProgram || job.state == JobState::kSucceeded) return;
  std::string why = Printable(end.cause_text);
  if (why.empty()) why = ToString(end.cause);
  if (const std::string text = ProgramText(job, source_dir); !text.empty()) why = text;
  if (end.cause == CauseKind::kSignal && end.signal) {
    why = "ended by signal " + std::to_string(*end.signal);
  }
  PrintNote(name + " " + ToString(job.state) + ": " + why);
}

void SayFailedTasks(const JobInfo& job) {
  const bool failed = job.state == JobState::kFailed || job.state == JobState::kTimedOut;
  if (!job.is_array || !failed) return;
  const std::string id = std::to_string(job.id);
  PrintNote("which tasks: `gpulayer job show " + id + " --state " + ToString(job.state) +
            "`; what one wrote: `gpulayer job logs " + id +
            ".TASK`; run them again: `gpulayer job " + "retry " + id + " --failed`");
}

void SayOutputs(const DownloadReport& report, std::int64_t job) {
  const std::string name = report.folder.substr(report.folder.rfind('/') + 1);
  const bool unexpected = job > 0 && name != std::to_string(job);
  if (!report.folder.empty() && (unexpected || IsTerminal(STDERR_FILENO))) {
    PrintNote("outputs in " + Printable(report.folder) + ": " + std::to_string(report.files) +
              (report.files == 1 ? " file, " : " files, ") + FormatSize(report.bytes));
  }
  for (const std::string& line : LeftOutLines(report.left_out, report.left_out_count)) {
    PrintNote(line);
  }
}

namespace {

// Its bytes as they are written, to the last one. Nothing: go on to its end; else the exit code.
std::optional<int> FollowBytes(Session& session, const Client& given, std::int64_t job,
                               const FollowOptions& options) {
  Client client = given;
  ByteSink out(options.json ? STDERR_FILENO : STDOUT_FILENO);
  ByteSink err(STDERR_FILENO);
  bool reader_gone = false;
  Status streamed;
  {
    std::optional<WaitTeller> teller;
    if (options.say_waiting) teller.emplace(client, job);
    streamed = client.StreamLogs(job, options.log, [&](const LogChunk& chunk) {
      if (teller) teller->Quiet();
      if (chunk.stream == LogStream::kOut) {
        reader_gone = !out.Write(chunk.data) && !options.json;
      } else if (chunk.stream == LogStream::kErr) {
        err.Write(chunk.data);  // nobody to tell if that fails
      } else {
        PrintLogNote(chunk.data);
      }
      return !reader_gone;
    });
  }
  out.Finish();
  err.Finish();
  if (session.left() != 0) return session.Leave(job);
  if (reader_gone) {
    const Result<JobInfo> info = client.Get(job);
    return Unwritten(out.error(), info.ok() && IsTerminal(info->state), client, job, options.again);
  }
  if (!streamed.ok()) return Lost(streamed, client, job, options.again);
  return std::nullopt;
}

// Of a private server this is the only time to say it.
void SayKept(Client& client, const JobInfo& job) {
  constexpr std::size_t kShown = 10;
  Result<JobInfo> whole = Status(StatusCode::kUnknown, "");
  if (job.is_array) {  // an array's view lacks what its tasks did
    TaskOptions failed;
    failed.states = {JobState::kFailed, JobState::kTimedOut};
    failed.items = false;
    whole = client.Get(job.id, failed);
  }
  std::vector<std::string> lines = KeptLines(whole.ok() ? *whole : job);
  const std::size_t more = lines.size() > kShown ? lines.size() - kShown : 0;
  lines.resize(lines.size() - more);
  for (const std::string& line : lines) PrintNote(line);
  if (more > 0) {
    PrintNote("and " + std::to_string(more) + " more: `gpulayer job show " +
              std::to_string(job.id) + "`");
  }
}

}  // namespace

int FollowJob(Session& session, Client client, std::int64_t job, const FollowOptions& options) {
  Result<JobInfo> info = Status(StatusCode::kUnknown, "");
  if (options.array) {
    int unwritten = 0;
    Interrupt leave = session.leave();  // as if the reader's end were a signal
    info = FollowArray(client, job,
                       {options.all_logs, options.json, [leave]() mutable { leave.Throw(); }},
                       &unwritten);
    if (unwritten != 0 && session.left() == 0) {
      return Unwritten(unwritten, info.ok(), client, job, options.again);
    }
  } else {
    const std::optional<int> code = FollowBytes(session, client, job, options);
    if (code) return *code;
    info = options.task ? FinalInfoOfTask(client, job, *options.task) : FinalInfo(client, job);
  }
  if (session.left() != 0) return session.Leave(job);
  if (!info.ok()) return Lost(info.status(), client, job, options.again);
  session.Disowns();

  int code = ShellExitCode(*info);
  std::optional<DownloadReport> report;
  if (options.outputs && info->request.outputs.collect) {
    Result<DownloadReport> brought = client.Download(job);
    if (brought.ok()) {
      SayOutputs(*brought, job);
      report = *std::move(brought);
    } else {
      report = SayWhereOutputsAre(client, job, brought.status());
      if (code == 0) code = session.left() != 0 ? 128 + session.left() : kCouldNot;
    }
  }
  if (!options.array) {
    SayEnd(*info, options.source_dir);
  } else if (!HasPrivateServer(client)) {  // its last line says how it ended
    SayFailedTasks(*info);
  }
  if (info->request.keep) SayKept(client, *info);
  if (options.json) PrintOut(ResultJson({*info, report}));
  return code;
}

}  // namespace gpulayer::cli
