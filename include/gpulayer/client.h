// A client of a GPUlayer server: submit commands, follow them, bring their outputs home.
//
//   gpulayer::Result<gpulayer::Client> client = gpulayer::Client::Connect({});
//   gpulayer::JobSpec spec;
//   spec.command = {"./render", "7"};
//   spec.source_dir = "scene";
//   gpulayer::Result<gpulayer::Job> job = client->Submit(spec);
//   gpulayer::Result<gpulayer::JobResult> done = job->Wait();
//
// Nothing here throws, and every call has a deadline.
#ifndef GPULAYER_CLIENT_H_
#define GPULAYER_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulayer/exec.h"
#include "gpulayer/export.h"
#include "gpulayer/interrupt.h"
#include "gpulayer/job_info.h"
#include "gpulayer/job_spec.h"
#include "gpulayer/status.h"

namespace gpulayer {
GPULAYER_API_BEGIN

struct ClientOptions {
  // "local" (a private server that lives as long as the client), "here" (the server that `gpulayer
  // up` started on this machine), "remote" (the login in use) or a login's name. Empty:
  // GPULAYER_TARGET, else the login in use, else the server that `gpulayer up` started here.
  std::string target;
  // Whose server "that `up` started here" means. Empty: GPULAYER_DATA_DIR, else the user's own.
  std::string data_dir;
  // Where logins are kept. Empty: GPULAYER_CONFIG_DIR, else $XDG_CONFIG_HOME/gpulayer.
  std::string config_dir;
  // How long a single question to the server may take, repeats included.
  std::chrono::milliseconds call_timeout{30'000};
  // How long a call that follows a job (StreamLogs, Wait) goes on trying to reach a server that
  // it has lost.
  std::chrono::milliseconds reconnect_for{300'000};
  // Ends every call of the client.
  std::optional<Interrupt> interrupt;
  // One line for a person about what happens meanwhile ("connection lost, trying again"). Called
  // from the thread whose call it concerns; must not call the client. Empty: nobody is told.
  std::function<void(const std::string&)> on_notice;
};

enum class LogStream : std::int32_t {
  kNote = 0,  // GPUlayer's own words: "dropped N bytes of output here"
  kOut = 1,
  kErr = 2,
};

struct LogChunk {
  LogStream stream = LogStream::kOut;
  std::string data;  // bytes as written
  std::int32_t attempt = 0;
  Time at{};                       // the worker's wall clock
  std::int64_t dropped_bytes = 0;  // of a note: output that is missing here
};

struct LogOptions {
  std::int64_t task = 0;
  std::int32_t attempt =
      0;               // 0: the newest; with follow the first that is not over, then each newer one
  bool follow = true;  // false: what is stored now
  bool out = true;
  bool err = true;
  std::optional<std::int64_t> tail_lines;
};

struct ListOptions {
  std::optional<JobState> state;
  std::optional<std::string> user;
  std::string name_glob;               // empty: any
  std::optional<std::int64_t> before;  // JobPage::next_page of the page before
  std::int32_t limit = 100;            // at most 1000
};

struct JobPage {
  std::vector<JobInfo> jobs;  // newest first, without tasks
  std::optional<std::int64_t> next_page;
};

struct TaskOptions {
  std::int64_t from_task = 0;    // JobInfo::next_task of the page before
  std::vector<JobState> states;  // only tasks in one of them; none: any
  bool items = true;             // with each task's item
};

// A whole job, or one task of it.
struct TaskSelector {
  std::int64_t job = 0;
  std::optional<std::int64_t> task;
};

struct RetryOptions {
  bool unsuccessful_only =
      false;               // of several tasks those that did not succeed, under their numbers
  std::string request_id;  // as JobSpec's
  // A value for each of the job's, and no other: those of the job are erased since its end.
  std::map<std::string, std::string> secrets;
};

struct CancelOptions {
  bool now = false;  // SIGKILL at once, without the job's grace
};

struct CancelSummary {
  std::int64_t cancelled = 0;      // tasks
  std::int64_t already_ended = 0;  // tasks
  // Tasks whose program was over while their outputs are on their way: they end as it did.
  std::int64_t finishing = 0;
};

struct DownloadOptions {
  // The tree is laid directly in here; a file that is there with other content is no output's to
  // replace. Empty: the job's run folder under `base`, where a later download replaces what is there.
  std::string to;
  // Where run folders are made. Empty: the current directory.
  std::string base;
};

struct DownloadReport {
  std::string folder;  // where it lies; empty: the job has no outputs
  std::int64_t files = 0;
  std::int64_t bytes = 0;
  std::vector<LeftOutFile> left_out;  // what did not come home
  std::int64_t left_out_count = 0;
};

class Job;

// Connection to one server.
// Threads:   every method may be called from any thread at once. A copy is the same connection.
// Processes: it is of the process that connected. In a forked child every call that asks the server
//            is FAILED_PRECONDITION at once: connect anew there.
// Ownership: the connection (and with target "local" the server) ends with the last copy and the
//            last Job.
// Blocking:  all methods but the accessors wait for the server, at most
//            ClientOptions::call_timeout; Submit and Download as long as bytes move.
//            ClientOptions::interrupt ends any wait.
// Errors:    UNAVAILABLE: not reachable, with the reason. UNAUTHENTICATED: no, wrong, expired or
//            revoked token. PERMISSION_DENIED: the role or user may not. DEADLINE_EXCEEDED,
//            CANCELLED. Others at each method.
class GPULAYER_EXPORT Client {
 public:
  // Connects and checks versions. FAILED_PRECONDITION: no target to be found ("run `gpulayer
  // up`..."), versions that do not fit. NOT_FOUND: no login of that name.
  static Result<Client> Connect(const ClientOptions& options);

  // A moved-from client may only be destroyed or assigned to.
  Client(const Client&);
  Client& operator=(const Client&);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Ships the source (only what the server lacks), then queues the job. Repeats and lost answers
  // are harmless: a request id is drawn. ALREADY_EXISTS: a job of the given request id asks for
  // something else. Interrupted before the request went out: nothing is
  // submitted; after: it is cancelled. INVALID_ARGUMENT: the spec. NOT_FOUND: the source is
  // not here. RESOURCE_EXHAUSTED: over the
  // source limit, with the largest folders; server full. REJECTED: no known worker can ever run
  // it, with each one's nearest miss. FAILED_PRECONDITION: the server's version knows no secrets.
  Result<Job> Submit(const JobSpec& spec);
  // All of them or none.
  Result<std::vector<Job>> SubmitBatch(const std::vector<JobSpec>& specs);
  // What Submit would ship; asks no server. INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED as
  // Submit.
  static Result<SourceListing> PreviewSource(const JobSpec& spec);

  // Whether Download could make a run folder here now; asks no server and makes nothing.
  // FAILED_PRECONDITION: no, and why.
  static Status CheckDownload(const DownloadOptions& options = {});

  // The same again as a new job: command, source, limits. FAILED_PRECONDITION: it is not over yet, its
  // files are no longer there, a secret of it has no value in `options` (which is named), or with `unsuccessful_only` nothing is left to do. NOT_FOUND. Others
  // as Submit.
  Result<Job> Retry(std::int64_t job, const RetryOptions& options = {});

  // A handle of a job that exists, or not: no call is made.
  Job Attach(std::int64_t job) const;
  Result<JobPage> List(const ListOptions& options);
  // With up to 1000 of its tasks that have left `queued`. NOT_FOUND.
  Result<JobInfo> Get(std::int64_t job, const TaskOptions& options = {});
  // NOT_FOUND: one of them does not exist; nothing was cancelled then.
  Result<CancelSummary> Cancel(const std::vector<TaskSelector>& tasks,
                               const CancelOptions& options = {});
  Result<Explanation> Explain(std::int64_t job);
  // Calls `on_chunk` for each piece of output in order of arrival, until the log ends (with
  // follow: the task), or `on_chunk` returns false (OK). Survives lost connections without gap or
  // repeat.
  Status StreamLogs(std::int64_t job, const LogOptions& options,
                    const std::function<bool(const LogChunk&)>& on_chunk);
  // Runs a command inside the job, which has to run itself; returns once its worker has answered.
  // PERMISSION_DENIED: another user's job. FAILED_PRECONDITION: the job or task does not run, or its
  // worker's version knows no such commands. INVALID_ARGUMENT: no command, or several tasks and none
  // named. NOT_FOUND. RESOURCE_EXHAUSTED: too many at once.
  Result<ExecSession> Exec(std::int64_t job, const ExecOptions& options);
  // Calls `on_change` with the job as it is and again after changes; returns it once over, its
  // last log byte stored. `timeout` over: DEADLINE_EXCEEDED. None: as long as the job takes.
  Result<JobInfo> Watch(std::int64_t job, const std::function<void(const JobInfo&)>& on_change,
                        std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  Result<JobResult> Wait(std::int64_t job,
                         std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // Waits for all of up to 10,000 jobs at once. `on_end` is called once for each: first for those that
  // are over, then for the others as they end; false: OK, no more is waited for. NOT_FOUND: one of
  // them is no job. INVALID_ARGUMENT: more than 10,000. `timeout` over: DEADLINE_EXCEEDED.
  Status WaitEach(const std::vector<std::int64_t>& jobs,
                  const std::function<bool(const JobInfo&)>& on_end,
                  std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // Brings the outputs of all tasks that are over. NOT_FOUND: no such job. FAILED_PRECONDITION: files of
  // others are in the way, which are named; nothing was written. Repeating fetches them all again.
  Result<DownloadReport> Download(std::int64_t job, const DownloadOptions& options = {});

  Result<std::vector<WorkerInfo>> Workers();
  Result<ServerInfo> ServerStatus();

  // For an admin. `role`: "client", "worker" or "admin"; `user` empty: the caller's; no `life`:
  // does not expire.
  Result<NewToken> CreateToken(const std::string& role, const std::string& user,
                               std::optional<std::chrono::milliseconds> life);
  Result<std::vector<TokenInfo>> ListTokens();
  // Of a token (and the credentials that were made of it) or of one credential.
  Status RevokeToken(const std::string& id);

  // "local", a login's name, or "here" for the server `up` started.
  const std::string& target() const;
  const std::string& address() const;  // "host:port", or the socket's path

  class Impl;

 private:
  friend class Job;
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// A job of a client's server; keeps the connection alive.
// Threads:   as Client. Movable and copyable.
// Blocking, Errors: as the methods of Client that bear the same names.
class GPULAYER_EXPORT Job {
 public:
  std::int64_t id() const { return id_; }
  // Submit found a job with the same request id.
  bool existed() const { return existed_; }
  // What a person should know: files left out, no worker known yet.
  const std::vector<std::string>& warnings() const { return warnings_; }

  Result<JobInfo> Info();
  // Output of task 0 until the job ends; with options whatever they say.
  Status StreamLogs(const std::function<bool(const LogChunk&)>& on_chunk);
  Status StreamLogs(const LogOptions& options,
                    const std::function<bool(const LogChunk&)>& on_chunk);
  Result<ExecSession> Exec(const ExecOptions& options);
  Result<JobResult> Wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  Result<CancelSummary> Cancel(const CancelOptions& options = {});
  Result<Explanation> Explain();
  Result<DownloadReport> Download(const DownloadOptions& options = {});

 private:
  friend class Client;
  Job(Client client, std::int64_t id) : client_(std::move(client)), id_(id) {}
  Client client_;
  std::int64_t id_ = 0;
  bool existed_ = false;
  std::vector<std::string> warnings_;
};

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_CLIENT_H_
