#include "cli/follow_array.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/print.h"
#include "cli/thread.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kLongLine = 64 * 1024;
// More failures than these say little that is new; `job show` and `job logs` have them all.
constexpr std::size_t kFailuresShown = 20;
constexpr std::int64_t kTailLines = 10;
constexpr auto kLineGap = std::chrono::seconds(30);  // where lines are kept
constexpr auto kRedrawGap = milliseconds(200);       // on a terminal
constexpr auto kFailuresGap = milliseconds(1'000);   // between questions for failures

std::string TaskName(std::int64_t job, const TaskInfo& task) {
  std::string name = std::to_string(job) + "." + std::to_string(task.index);
  if (task.item) name += " (" + Printable(*task.item) + ")";
  return name;
}

std::string EndOf(const TaskInfo& task) {
  if (task.outcome.cause == CauseKind::kProgram && task.outcome.exit_code) {
    return "exit code " + std::to_string(*task.outcome.exit_code);
  }
  return task.outcome.cause_text.empty() ? ToString(task.outcome.cause)
                                         : Printable(task.outcome.cause_text);
}

// One line that is redrawn in place on a terminal; else a line now and then.
class Progress {
 public:
  explicit Progress(std::int64_t job) : job_(job), terminal_(IsTerminal(STDERR_FILENO)) {}

  void Show(const JobInfo& info, bool at_last) {
    const auto now = steady_clock::now();
    const std::string text = "job " + std::to_string(job_) + ": " + ArrayProgress(info);
    if (text == shown_ || (!at_last && now < next_)) return;
    next_ = now + (terminal_ ? std::chrono::duration_cast<milliseconds>(kRedrawGap)
                             : std::chrono::duration_cast<milliseconds>(kLineGap));
    shown_ = text;
    if (!terminal_) return PrintNote(text);
    Erase();
    Put("gpulayer: " + text);
    drawn_ = true;
    if (at_last) Put("\n");
  }
  // Before anything else is printed.
  void Erase() {
    if (std::exchange(drawn_, false)) Put("\r\x1B[K");
  }

 private:
  static void Put(const std::string& text) {
    ByteSink err(STDERR_FILENO, false);
    err.Write(text);  // nobody to tell if that fails
  }

  const std::int64_t job_;
  const bool terminal_;
  steady_clock::time_point next_{};
  std::string shown_;
  bool drawn_ = false;
};

// The end of each failed task's log, once.
class Failures {
 public:
  Failures(Client client, std::int64_t job) : client_(std::move(client)), job_(job) {}

  void Show(const JobInfo& info, Progress& progress, bool at_last) {
    std::int64_t failed = 0;
    for (const JobState state : States()) {
      const auto found = info.task_states.find(state);
      if (found != info.task_states.end()) failed += found->second;
    }
    const auto now = steady_clock::now();
    if (failed == known_ || full_ || (!at_last && now < next_)) return;
    next_ = now + kFailuresGap;
    TaskOptions options;
    options.states = States();
    const Result<JobInfo> page = client_.Get(job_, options);
    if (!page.ok()) return;  // a help alone; what matters comes with the end
    known_ = failed;
    for (const TaskInfo& task : page->tasks) {
      if (full_ || !shown_.insert(task.index).second) continue;
      progress.Erase();
      if (shown_.size() > kFailuresShown) {
        full_ = true;
        PrintNote("more tasks failed");  // the job's end says how to see them
      } else {
        ShowOne(task);
      }
    }
  }

 private:
  static std::vector<JobState> States() { return {JobState::kFailed, JobState::kTimedOut}; }

  void ShowOne(const TaskInfo& task) {
    PrintNote("task " + TaskName(job_, task) + " " + ToString(task.state) + ": " + EndOf(task));
    LogOptions options;
    options.task = task.index;
    options.follow = false;
    options.tail_lines = kTailLines;
    LinePrefixer lines("    ");
    ByteSink err(STDERR_FILENO);
    const Status read = client_.StreamLogs(job_, options, [&](const LogChunk& chunk) {
      return chunk.stream == LogStream::kNote || err.Write(lines.Take(chunk.data));
    });
    err.Write(lines.Finish());
    err.Finish();
    if (!read.ok() && !task.attempts.empty()) PrintError(read);
  }

  Client client_;
  const std::int64_t job_;
  std::int64_t known_ = 0;
  std::set<std::int64_t> shown_;
  bool full_ = false;
  steady_clock::time_point next_{};
};

// The logs of all tasks as they are written.
class AllLogs {
 public:
  AllLogs(Client client, std::int64_t job, const FollowArrayOptions& options)
      : client_(std::move(client)),
        job_(job),
        on_unwritten_(options.on_unwritten),
        readers_at_once_(options.log_readers),
        out_(options.json ? STDERR_FILENO : STDOUT_FILENO),
        err_(STDERR_FILENO) {}
  ~AllLogs() { Finish(What::kUnderWay); }
  AllLogs(const AllLogs&) = delete;
  AllLogs& operator=(const AllLogs&) = delete;

  // kUnderWay: those that wait for a reader are dropped. Each would find out by itself, and as
  // slowly, that the server is lost.
  enum class What { kAll, kUnderWay };

  // Reads what is left. The errno of the job's output, if not all could be printed; else 0.
  int Finish(What what) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      no_more_ = true;
      if (what == What::kUnderWay) tasks_.clear();
    }
    changed_.notify_all();
    for (std::thread& reader : readers_) reader.join();
    readers_.clear();
    Run();  // what there was no thread for: late is better than never
    return unwritten_;
  }

  // Tasks start in the order of their numbers: those behind the last one that was seen at work.
  // (Cancelled ones that never started come in any order.)
  Status LookForMore() {
    TaskOptions options;
    options.items = false;
    options.from_task = next_;
    for (;;) {
      const Result<JobInfo> page = client_.Get(job_, options);
      if (!page.ok()) return page.status();
      for (const TaskInfo& task : page->tasks) {
        if (task.attempts.empty()) continue;
        next_ = task.index + 1;
        Add(task.index);
      }
      if (!page->next_task) return OkStatus();
      options.from_task = *page->next_task;
    }
  }

 private:
  void Add(std::int64_t task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(task);
    if (readers_.size() < readers_at_once_ && tasks_.size() > idle_) {
      std::thread reader = TryThread([this] { Run(); });
      if (reader.joinable()) readers_.push_back(std::move(reader));
    }
    changed_.notify_one();
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return no_more_ || !tasks_.empty(); });
      --idle_;
      if (tasks_.empty()) return;
      const std::int64_t task = tasks_.front();
      tasks_.pop_front();
      lock.unlock();
      Read(task);
      lock.lock();
    }
  }

  void Read(std::int64_t task) {
    const std::string prefix = std::to_string(job_) + "." + std::to_string(task) + ": ";
    LinePrefixer out(prefix);
    LinePrefixer err(prefix);
    LogOptions options;
    options.task = task;
    const Status read = client_.StreamLogs(job_, options, [&](const LogChunk& chunk) {
      if (chunk.dropped_bytes > 0) PrintLogNote(prefix + chunk.data);
      if (chunk.stream == LogStream::kNote) return true;
      const bool is_out = chunk.stream == LogStream::kOut;
      return Put(is_out ? out_ : err_, (is_out ? out : err).Take(chunk.data));
    });
    Put(out_, out.Finish());
    Put(err_, err.Finish());
    if (!read.ok() && read.code() != StatusCode::kCancelled) {
      PrintError(read.Prefixed("log of task " + std::to_string(job_) + "." + std::to_string(task)));
    }
  }

  bool Put(ByteSink& sink, const std::string& lines) {
    if (lines.empty()) return true;
    const std::lock_guard<std::mutex> lock(print_);
    if (sink.Write(lines) || sink.fd() == STDERR_FILENO) return true;  // nobody to tell of that
    unwritten_ = sink.error();
    on_unwritten_();
    return false;
  }

  Client client_;
  const std::int64_t job_;
  const std::function<void()> on_unwritten_;
  const std::size_t readers_at_once_;
  std::int64_t next_ = 0;  // of the caller's thread

  std::mutex print_;
  ByteSink out_;
  ByteSink err_;
  int unwritten_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::int64_t> tasks_;
  std::size_t idle_ = 0;
  bool no_more_ = false;
  std::vector<std::thread> readers_;
};

}  // namespace

std::string ArrayProgress(const JobInfo& job) {
  std::int64_t done = 0;
  std::string rest;
  for (const auto& [state, count] : job.task_states) {
    if (IsTerminal(state)) done += count;
    if (state != JobState::kSucceeded && state != JobState::kQueued) {
      rest += ", " + std::to_string(count) + " " + ToString(state);
    }
  }
  return std::to_string(done) + " of " + std::to_string(job.task_count) + " done" + rest;
}

std::string LinePrefixer::Take(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const bool whole = end != std::string_view::npos;
    line_ += bytes.substr(0, whole ? end + 1 : std::string_view::npos);
    bytes.remove_prefix(whole ? end + 1 : bytes.size());
    if (!whole && line_.size() < kLongLine) break;
    out += (within_ ? "" : prefix_) + line_;
    line_.clear();
    within_ = !whole;
  }
  return out;
}

std::string LinePrefixer::Finish() {
  if (line_.empty() && !within_) return "";
  std::string out = (within_ ? "" : prefix_) + line_ + "\n";
  line_.clear();
  within_ = false;
  return out;
}

Result<JobInfo> FollowArray(Client client, std::int64_t job, const FollowArrayOptions& options,
                            int* unwritten) {
  Progress progress(job);
  Failures failures(client, job);
  std::optional<AllLogs> logs;
  if (options.all_logs) logs.emplace(client, job, options);
  Status looked;
  std::optional<JobInfo> over;
  Result<JobInfo> end = client.Watch(job, [&](const JobInfo& info) {
    if (IsTerminal(info.state)) over = info;
    if (logs) {
      looked = logs->LookForMore();
      return;
    }
    failures.Show(info, progress, IsTerminal(info.state));
    progress.Show(info, IsTerminal(info.state));
  });
  progress.Erase();
  if (logs) {
    *unwritten = logs->Finish(end.ok() ? AllLogs::What::kAll : AllLogs::What::kUnderWay);
    // What ended the calls is no news of the job.
    if (*unwritten != 0) return over ? *std::move(over) : std::move(end);
  }
  if (end.ok() && !looked.ok()) return looked;
  return end;
}

}  // namespace gpulayer::cli
