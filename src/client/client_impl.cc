#include "client/client_impl.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/account_limits.h"
#include "base/fs.h"
#include "base/random.h"
#include "base/text.h"
#include "client/convert.h"
#include "client/exec_session.h"
#include "client/paths.h"
#include "client/retry.h"
#include "gpulayer/v1/admin.pb.h"
#include "model/limits.h"
#include "wire/convert.h"
#include "wire/tree.h"
#include "wire/version.h"

namespace gpulayer {

using client::CallOptions;
using client::Method;

namespace {

std::string NotOver(const std::string& what, std::optional<std::chrono::milliseconds> after) {
  return "wait for " + what + ": not over" + (after ? " after " + FormatDuration(*after) : "") +
         ". It goes on.";
}

// What a clock cannot count is a year.
std::chrono::milliseconds Bounded(std::chrono::milliseconds time) {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 365);
  return std::clamp(time, -kMost, kMost);
}

api::ClientOptions Bounded(api::ClientOptions options) {
  options.call_timeout = Bounded(options.call_timeout);
  options.reconnect_for = Bounded(options.reconnect_for);
  return options;
}

}  // namespace

api::Client::Impl::Impl(ClientOptions options, client::Target target,
                        std::unique_ptr<client::LocalServer> local,
                        std::unique_ptr<client::Transport> transport)
    : options_(Bounded(std::move(options))),
      target_(std::move(target)),
      interrupt_(options_.interrupt ? options_.interrupt->state() : nullptr),
      local_(std::move(local)),
      transport_(std::move(transport)) {}

Result<std::shared_ptr<api::Client::Impl>> api::Client::Impl::Make(
    ClientOptions options, client::Target target, std::unique_ptr<client::LocalServer> local,
    std::unique_ptr<client::Transport> transport) {
  std::shared_ptr<Impl> impl(
      new Impl(std::move(options), std::move(target), std::move(local), std::move(transport)));
  v1::StatusReply reply;
  GPULAYER_RETURN_IF_ERROR(impl->Call(Method::kStatus, client::StatusQuestion(), &reply));
  GPULAYER_RETURN_IF_ERROR(wire::CheckPeerVersion(reply.version(), "the server"));
  impl->server_uuid_ = reply.server().uuid();
  impl->server_version_ = reply.version();
  return impl;
}

Status api::Client::Impl::Call(Method method, const google::protobuf::MessageLite& request,
                               google::protobuf::MessageLite* reply) {
  return transport_->Call(method, request, reply,
                          {std::chrono::steady_clock::now() + options_.call_timeout, interrupt_});
}

Result<v1::JobSpec> api::Client::Impl::Ship(const JobSpec& spec, std::span<const JobSpec> batch,
                                            std::map<std::string, client::Shipped>* sources,
                                            std::vector<std::string>* warnings) {
  GPULAYER_ASSIGN_OR_RETURN(v1::JobSpec out, client::ToProto(spec));
  GPULAYER_RETURN_IF_ERROR(client::CheckFilesHere(spec));
  client::ShipOptions ship;
  ship.source = {spec.source_limit_bytes,
                 spec.source_limit_files,
                 {},
                 client::OwnFolders(options_.config_dir, options_.data_dir),
                 false};
  if (const std::string cache = client::CacheDir(); !cache.empty()) {
    ship.cache_dir = JoinPath(cache, "hashes");
  }
  ship.call_timeout = options_.call_timeout;
  ship.interrupt = interrupt_;
  if (!spec.source_dir.empty()) {
    auto found = sources->find(spec.source_dir);
    if (found == sources->end()) {
      // Listed once for all of them.
      for (const JobSpec& other : batch) {
        if (other.source_dir == spec.source_dir) ship.source.commands.push_back(other.command);
      }
      GPULAYER_ASSIGN_OR_RETURN(client::Shipped shipped,
                                client::ShipSource(*transport_, spec.source_dir, ship));
      *warnings = shipped.warnings;
      found = sources->emplace(spec.source_dir, std::move(shipped)).first;
    }
    out.set_source_tree(std::string(found->second.tree.bytes()));
  }
  if (!spec.stdin_file.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(const client::Shipped shipped,
                              client::ShipFile(*transport_, spec.stdin_file, ship));
    out.set_stdin_blob(std::string(shipped.tree.bytes()));
  }
  if (!spec.items.empty()) {
    std::size_t size = 0;
    for (const std::string& item : spec.items) size += item.size() + 1;
    std::string lines;
    lines.reserve(size);  // up to 256 MiB, once
    for (const std::string& item : spec.items) lines.append(item).push_back('\n');
    GPULAYER_ASSIGN_OR_RETURN(const client::Shipped shipped,
                              client::ShipBytes(*transport_, lines, ship));
    out.set_items_blob(std::string(shipped.tree.bytes()));
  }
  return out;
}

Status api::Client::Impl::AddSecrets(const std::vector<std::map<std::string, std::string>>& secrets,
                                     v1::SubmitRequest* request) const {
  if (std::all_of(secrets.begin(), secrets.end(), [](const auto& s) { return s.empty(); })) {
    return OkStatus();
  }
  // It would run the job without them.
  if (!wire::HasFeature(server_version_, wire::kSecretsFeature)) {
    return FailedPrecondition("submit: the server's version " + server_version_.program() +
                              " knows no secrets. Upgrade it.");
  }
  for (const auto& of_job : secrets) {
    std::vector<EnvVar> values;
    for (const auto& [name, value] : of_job) values.push_back({name, value});
    wire::ToProto(values, request->add_secrets());
  }
  return OkStatus();
}

// The answer is outstanding: the request may have arrived, or may yet arrive. After this it is
// cancelled or barred. The interrupt was thrown already, so this call has none.
void api::Client::Impl::CancelRequestIds(const v1::SubmitRequest& request) {
  constexpr auto kPatience = std::chrono::seconds(5);
  const CallOptions options{std::chrono::steady_clock::now() + kPatience, nullptr};
  for (const v1::JobSpec& job : request.jobs()) {
    v1::CancelRequest cancel;
    cancel.set_request_id(job.request_id());
    v1::CancelReply reply;
    IgnoreError(transport_->Call(Method::kCancel, cancel, &reply, options),
                "the caller is told CANCELLED; an unreachable server has nothing of the request");
  }
}

Result<std::vector<api::Job>> api::Client::Impl::Submit(const std::shared_ptr<Impl>& self,
                                                        std::span<const JobSpec> specs) {
  if (specs.empty()) return std::vector<Job>();
  v1::SubmitRequest request;
  std::vector<std::map<std::string, std::string>> secrets;
  for (const JobSpec& spec : specs) secrets.push_back(spec.secrets);
  GPULAYER_RETURN_IF_ERROR(AddSecrets(secrets, &request));
  std::map<std::string, client::Shipped> sources;
  std::vector<std::vector<std::string>> warnings(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    Result<v1::JobSpec> job = Ship(specs[i], specs, &sources, &warnings[i]);
    if (!job.ok()) {
      if (client::Thrown(interrupt_)) return Cancelled("interrupted: nothing was submitted");
      if (job.status().code() != StatusCode::kUnavailable) return job.status();
      return Unavailable(job.status().message() + " Nothing was submitted.");
    }
    *request.add_jobs() = *std::move(job);
  }
  return Queue(self, request, std::move(warnings));
}

Result<std::vector<api::Job>> api::Client::Impl::Queue(
    const std::shared_ptr<Impl>& self, const v1::SubmitRequest& request,
    std::vector<std::vector<std::string>> warnings) {
  if (request.ByteSizeLong() > limits::kMaxMessageBytes - 1024) {
    return InvalidArgument(
        "submit: " + FormatSize(static_cast<std::int64_t>(request.ByteSizeLong())) +
        " of commands and environments are over the limit of " +
        FormatSize(static_cast<std::int64_t>(limits::kMaxMessageBytes)) +
        " a call. Put them into files, or submit fewer at once.");
  }
  v1::SubmitReply reply;
  const Status status = Call(Method::kSubmit, request, &reply);
  if (!status.ok()) {
    if (!client::Thrown(interrupt_)) return status;
    CancelRequestIds(request);
    return Cancelled("interrupted before the server had answered: the submit is cancelled");
  }
  if (!reply.rejected().empty()) return Status(StatusCode::kRejected, reply.rejected());
  if (reply.jobs_size() != request.jobs_size()) {
    return Internal("submit: the server answered for another number of jobs");
  }
  std::vector<Job> jobs;
  for (int i = 0; i < reply.jobs_size(); ++i) {
    Job job(Client(self), reply.jobs(i).job());
    job.existed_ = reply.jobs(i).existed();
    job.warnings_ = std::move(warnings[static_cast<std::size_t>(i)]);
    if (!reply.jobs(i).warning().empty()) job.warnings_.push_back(reply.jobs(i).warning());
    jobs.push_back(std::move(job));
  }
  return jobs;
}

Status api::Client::Impl::LeaveOutSuccessful(std::int64_t job, v1::JobSpec* spec) {
  GPULAYER_ASSIGN_OR_RETURN(const gpulayer::JobSpec asked, wire::FromProto(*spec));
  IntervalSet rest = asked.only.empty() ? IntervalSet::Range(0, asked.tasks.count) : asked.only;
  TaskOptions succeeded{0, {JobState::kSucceeded}, false};
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const v1::GetJobReply page, GetPage(job, succeeded));
    for (const v1::TaskInfo& task : page.tasks()) {
      rest.Remove(asked.tasks.PositionOf(TaskIndex(task.index())));
    }
    if (!page.has_next_task()) break;
    succeeded.from_task = page.next_task();
  }
  if (rest.empty()) {
    return FailedPrecondition(
        "retry job " + std::to_string(job) +
        ": nothing of it failed. To run all of it again: `gpulayer job retry " +
        std::to_string(job) + "`.");
  }
  const auto runs = static_cast<std::int64_t>(rest.runs().size());
  if (runs > limits::kMaxTaskRuns) {
    const std::string name = std::to_string(job);
    return ResourceExhausted("retry job " + name + ": its tasks that did not succeed are in " +
                             std::to_string(runs) + " separate runs of numbers; the limit is " +
                             std::to_string(limits::kMaxTaskRuns) +
                             ". Run all of it again (`gpulayer job retry " + name +
                             "`), or submit some of them with --array or --each.");
  }
  if (asked.array) spec->set_only(rest.ToText());
  return OkStatus();
}

Result<api::Job> api::Client::Impl::Retry(const std::shared_ptr<Impl>& self, std::int64_t job,
                                          const RetryOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(const v1::GetJobReply known, GetPage(job, {0, {}, false}));
  const auto state = static_cast<JobState>(known.job().state());
  if (!IsTerminal(state)) {
    const std::string name = std::to_string(job);
    return FailedPrecondition("retry job " + name + ": not over yet (" + api::ToString(state) +
                              "). Wait with `gpulayer job wait " + name +
                              "`, or end it with `gpulayer job cancel " + name + "`.");
  }
  v1::SubmitRequest request;
  v1::JobSpec* spec = request.add_jobs();
  *spec = known.job().spec();
  spec->set_request_id(options.request_id.empty() ? RandomHex(16) : options.request_id);
  spec->set_retry_of(job);
  std::string missing;
  for (const std::string& name : spec->secrets()) {
    if (!options.secrets.contains(name)) missing += " --secret " + Printable(name);
  }
  if (!missing.empty()) {
    return FailedPrecondition("retry job " + std::to_string(job) +
                              ": its secrets were erased at its end. Give them again:" + missing);
  }
  for (const auto& [name, value] : options.secrets) {
    if (std::find(spec->secrets().begin(), spec->secrets().end(), name) == spec->secrets().end()) {
      return InvalidArgument("retry job " + std::to_string(job) + ": it has no secret " +
                             Printable(name));
    }
  }
  GPULAYER_RETURN_IF_ERROR(AddSecrets({options.secrets}, &request));
  if (options.unsuccessful_only) GPULAYER_RETURN_IF_ERROR(LeaveOutSuccessful(job, spec));
  GPULAYER_ASSIGN_OR_RETURN(std::vector<Job> jobs, Queue(self, request, {{}}));
  return std::move(jobs.front());
}

Status api::Client::Impl::StreamLogs(std::int64_t job, const LogOptions& options,
                                     const std::function<bool(const LogChunk&)>& on_chunk) {
  if (!on_chunk) return InvalidArgument("stream logs: the function that takes them is empty");
  v1::ReadLogsRequest request;
  request.set_job(job);
  request.set_task(options.task);
  request.set_attempt(options.attempt);
  request.set_follow(options.follow);
  request.set_no_stdout(!options.out);
  request.set_no_stderr(!options.err);
  if (options.tail_lines) request.set_tail_lines(*options.tail_lines);
  client::Resumable<v1::ReadLogsRequest, v1::LogChunk> stream(
      std::move(request),
      [this](const v1::ReadLogsRequest& r) { return transport_->ReadLogs(r, interrupt_); },
      [](const v1::LogChunk& chunk, v1::ReadLogsRequest* r) {
        r->set_attempt(chunk.attempt());
        r->set_offset(chunk.next_offset());
        r->clear_tail_lines();
      },
      client::RetryPolicy(Clock::System(), options_.reconnect_for),
      client::InterruptibleSleeper(interrupt_), options_.on_notice);
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(std::optional<v1::LogChunk> chunk, stream.Read());
    if (!chunk) return OkStatus();
    for (v1::LogChunk::Piece& piece : *chunk->mutable_pieces()) {
      LogChunk out;
      out.stream = static_cast<LogStream>(piece.stream());
      out.data = std::move(*piece.mutable_data());
      out.attempt = chunk->attempt();
      out.at = Time(std::chrono::microseconds(piece.wall_us()));
      out.dropped_bytes = piece.dropped_bytes();
      if (!on_chunk(out)) return OkStatus();
    }
  }
}

Result<std::unique_ptr<api::ExecSession::Impl>> api::Client::Impl::Exec(
    const std::shared_ptr<Impl>& self, std::int64_t job, const ExecOptions& options) {
  return ExecSession::Impl::Open(self, transport_->Exec(interrupt_), job, options,
                                 options_.call_timeout);
}

Result<api::JobInfo> api::Client::Impl::Watch(std::int64_t job,
                                              const std::function<void(const JobInfo&)>& on_change,
                                              std::optional<std::chrono::milliseconds> timeout) {
  if (timeout && *timeout <= std::chrono::milliseconds(0)) {
    // Only a look: one that is over is told, however short the time.
    GPULAYER_ASSIGN_OR_RETURN(const v1::GetJobReply now, GetPage(job, {}));
    JobInfo info = client::ToInfo(now);
    if (on_change) on_change(info);
    if (IsTerminal(info.state)) return info;
    return DeadlineExceeded(NotOver("job " + std::to_string(job), std::nullopt));
  }
  std::optional<JobInfo> last;
  if (!on_change) {
    const auto take = [&](const JobInfo& info) { return last = info, true; };
    GPULAYER_RETURN_IF_ERROR(WaitEach({job}, take, timeout));
    return *std::move(last);
  }
  v1::WatchRequest request;
  request.set_job(job);
  GPULAYER_RETURN_IF_ERROR(
      ReadViews(std::move(request), timeout, "job " + std::to_string(job), [&](JobInfo info) {
        on_change(info);
        last = std::move(info);
        return true;
      }));
  if (!last || !IsTerminal(last->state)) {
    return Internal("watch job " + std::to_string(job) + ": the server ended before the job");
  }
  return *std::move(last);
}

Status api::Client::Impl::WaitEach(const std::vector<std::int64_t>& jobs,
                                   const std::function<bool(const JobInfo&)>& on_end,
                                   std::optional<std::chrono::milliseconds> timeout) {
  if (jobs.empty()) return OkStatus();
  const std::string what = jobs.size() == 1 ? "job " + std::to_string(jobs.front())
                                            : std::to_string(jobs.size()) + " jobs";
  v1::WatchRequest request;
  request.set_end_only(true);
  std::set<std::int64_t> left(jobs.begin(), jobs.end());
  request.mutable_jobs()->Assign(left.begin(), left.end());
  bool enough = false;
  if (timeout && *timeout <= std::chrono::milliseconds(0)) {
    for (const std::int64_t job : std::set(left)) {
      GPULAYER_ASSIGN_OR_RETURN(const v1::GetJobReply now, GetPage(job, {}));
      JobInfo info = client::ToInfo(now);
      if (!IsTerminal(info.state)) continue;
      left.erase(job);
      if (!on_end(info)) return OkStatus();
    }
    if (left.empty()) return OkStatus();
    return DeadlineExceeded(NotOver(what, std::nullopt));
  }
  if (left.size() == 1) request.set_job(*left.begin());  // all that an older server looks at
  bool early = false;
  GPULAYER_RETURN_IF_ERROR(ReadViews(std::move(request), timeout, what, [&](const JobInfo& info) {
    early = !IsTerminal(info.state);
    if (early) return false;
    left.erase(info.id);
    enough = !on_end(info);
    return !enough && !left.empty();
  }));
  if (early)
    return Internal("wait for " + what + ": the server told of an end before it was there");
  if (enough || left.empty()) return OkStatus();
  return Internal("wait for job " + std::to_string(*left.begin()) +
                  ": the server ended before the job");
}

Status api::Client::Impl::ReadViews(v1::WatchRequest request,
                                    std::optional<std::chrono::milliseconds> timeout,
                                    const std::string& what,
                                    const std::function<bool(JobInfo)>& on_view) {
  // A deadline is an interrupt of its own, thrown by whichever comes first.
  Interrupt stop;
  client::WakeScope chain(interrupt_, [&stop] { stop.Throw(); });
  std::optional<client::Alarm> alarm;
  if (timeout) alarm.emplace(stop.state(), Bounded(*timeout));
  if (alarm && !alarm->set()) {
    return ResourceExhausted(what + ": no thread is to be had. " + kRaiseLimits);
  }
  client::Resumable<v1::WatchRequest, v1::GetJobReply> stream(
      std::move(request),
      [&](const v1::WatchRequest& r) { return transport_->Watch(r, stop.state()); },
      [](const v1::GetJobReply& told, v1::WatchRequest* again) {
        auto* jobs = again->mutable_jobs();
        const auto at = std::find(jobs->begin(), jobs->end(), told.job().id());
        if (at != jobs->end()) jobs->erase(at);
      },
      client::RetryPolicy(Clock::System(), options_.reconnect_for),
      client::InterruptibleSleeper(stop.state()), options_.on_notice);
  for (;;) {
    Result<std::optional<v1::GetJobReply>> reply = stream.Read();
    if (!reply.ok()) {
      if (alarm && alarm->rang() && !client::Thrown(interrupt_)) {
        return DeadlineExceeded(NotOver(what, timeout));
      }
      return reply.status();
    }
    if (!reply->has_value()) return OkStatus();
    if (!on_view(client::ToInfo(**reply))) return OkStatus();
  }
}

Result<v1::GetJobReply> api::Client::Impl::GetPage(std::int64_t job, const TaskOptions& options) {
  v1::GetJobRequest request;
  request.set_job(job);
  request.set_from_task(options.from_task);
  request.set_items(options.items);
  for (const JobState state : options.states) {
    request.add_states(static_cast<std::int32_t>(state));
  }
  request.set_task_limit(static_cast<std::int32_t>(limits::kMaxPageItems));
  v1::GetJobReply reply;
  GPULAYER_RETURN_IF_ERROR(Call(Method::kGetJob, request, &reply));
  return reply;
}

tree::RunFolderRequest api::Client::Impl::FolderRequest(std::int64_t job,
                                                        const DownloadOptions& options) const {
  tree::RunFolderRequest request;
  if (!options.base.empty()) request.base_dir = options.base;
  request.server_uuid = server_uuid_;
  request.job = JobId(job);
  using Naming = tree::RunFolderRequest::Naming;
  if (!options.to.empty()) {
    request.naming = Naming::kTo;
    request.to = options.to;
  } else if (target_.kind == client::Target::Kind::kLocal) {
    request.naming = Naming::kLocal;
  } else if (!target_.login_in_use) {
    request.naming = Naming::kOtherTarget;
    request.target = target_.name;
  }
  return request;
}

Result<std::string> api::Client::Impl::RunFolder(std::int64_t job, const DownloadOptions& options) {
  const tree::RunFolderRequest request = FolderRequest(job, options);
  if (request.naming != tree::RunFolderRequest::Naming::kLocal) {
    return tree::MakeRunFolder(request);
  }
  // The next free number is taken at each call: a second download is to find the first one's.
  MutexLock lock(mutex_);
  std::string& folder = local_folders_[job];
  if (folder.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(folder, tree::MakeRunFolder(request));
  }
  return folder;
}

Status api::Client::Impl::ForEachOutput(
    std::int64_t job, const std::function<Status(const v1::TaskInfo&, const std::string&)>& body) {
  std::optional<std::int64_t> from = 0;
  while (from) {
    GPULAYER_ASSIGN_OR_RETURN(const v1::GetJobReply page, GetPage(job, {*from, {}, false}));
    from = page.has_next_task() ? std::optional(page.next_task()) : std::nullopt;
    for (const v1::TaskInfo& task : page.tasks()) {
      const std::string folder = page.job().spec().array() ? std::to_string(task.index()) : "";
      GPULAYER_RETURN_IF_ERROR(body(task, folder));
    }
  }
  return OkStatus();
}

Result<Tree> api::Client::Impl::FetchTree(const v1::TaskInfo& task,
                                          const client::FetchOptions& fetch) {
  GPULAYER_ASSIGN_OR_RETURN(const Hash hash, Hash::FromBytes(task.outputs().tree()));
  GPULAYER_ASSIGN_OR_RETURN(const std::string manifest,
                            client::FetchBytes(*transport_, hash, fetch));
  GPULAYER_ASSIGN_OR_RETURN(Tree tree, wire::ParseTree(manifest));
  GPULAYER_RETURN_IF_ERROR(tree::CheckTree(tree));
  return tree;
}

// A folder that the user named may hold files of theirs.
Status api::Client::Impl::CheckReplacesNothing(std::int64_t job, const DownloadOptions& options) {
  constexpr std::size_t kNamed = 5;
  if (options.to.empty() || !PathExists(options.to)) return OkStatus();
  GPULAYER_RETURN_IF_ERROR(RunFolder(job, options).status());
  const client::FetchOptions fetch{options.to, options_.reconnect_for, interrupt_};
  const tree::RunFolderRequest request = FolderRequest(job, options);
  std::vector<std::string> others;
  GPULAYER_RETURN_IF_ERROR(
      ForEachOutput(job, [&](const v1::TaskInfo& task, const std::string& subfolder) -> Status {
        if (task.outputs().tree().empty() || others.size() > kNamed) return OkStatus();
        GPULAYER_ASSIGN_OR_RETURN(const Tree tree, FetchTree(task, fetch));
        for (std::string& path :
             tree::FindOthers(request, subfolder, tree, kNamed + 1 - others.size())) {
          others.push_back(Printable(path));
        }
        return OkStatus();
      }));
  if (others.empty()) return OkStatus();
  const bool more = others.size() > kNamed;
  if (more) others.resize(kNamed);
  return FailedPrecondition(
      "outputs of job " + std::to_string(job) + " to " + Printable(options.to) +
      ": there with other content: " + Join(others, ", ") + (more ? " and more" : "") +
      ". Nothing was written. Remove them, or choose another folder");
}

Result<api::DownloadReport> api::Client::Impl::Download(std::int64_t job,
                                                        const DownloadOptions& options) {
  GPULAYER_RETURN_IF_ERROR(CheckReplacesNothing(job, options));
  DownloadReport report;
  GPULAYER_RETURN_IF_ERROR(
      ForEachOutput(job, [&](const v1::TaskInfo& task, const std::string& subfolder) -> Status {
        const v1::OutputResult& outputs = task.outputs();
        report.left_out_count += outputs.left_out_count();
        for (const v1::LeftOut& left : outputs.left_out()) {
          if (report.left_out.size() < limits::kLeftOutShown) {
            report.left_out.push_back({left.path(), left.size_bytes(), left.reason()});
          }
        }
        if (outputs.tree().empty()) return OkStatus();
        if (report.folder.empty()) {
          GPULAYER_ASSIGN_OR_RETURN(report.folder, RunFolder(job, options));
        }
        const client::FetchOptions fetch{report.folder, options_.reconnect_for, interrupt_};
        GPULAYER_ASSIGN_OR_RETURN(const Tree tree, FetchTree(task, fetch));
        std::vector<Hash> blobs;
        for (const TreeEntry& entry : tree.entries) {
          if (entry.type == EntryType::kFile) blobs.push_back(entry.hash);
        }
        client::BlobFetcher fetcher(*transport_, std::move(blobs), fetch);
        const Status laid = tree::UnpackInto(report.folder, subfolder, tree,
                                             [&](const Hash& h) { return fetcher.Open(h); });
        if (!laid.ok()) return laid.Prefixed("outputs of job " + std::to_string(job));
        report.files += outputs.files();
        report.bytes += outputs.bytes();
        return OkStatus();
      }));
  return report;
}

}  // namespace gpulayer
