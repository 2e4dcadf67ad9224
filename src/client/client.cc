#include "gpulayer/client.h"

#include <utility>

#include "base/text.h"
#include "client/client_impl.h"
#include "client/convert.h"
#include "client/exec_session.h"
#include "client/list_source.h"
#include "client/pages.h"
#include "client/retry.h"
#include "gpulayer/v1/admin.pb.h"
#include "gpulayer/v1/workers.pb.h"
#include "tree/run_folder.h"
#include "tree/scan.h"

namespace gpulayer::api {

using client::Method;

Status CheckSpec(const JobSpec& spec) { return client::ToProto(spec).status(); }

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(const Client&) = default;
Client& Client::operator=(const Client&) = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::Connect(const ClientOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(
      client::Target target,
      client::ResolveTarget({options.target, options.config_dir, options.data_dir}));
  std::unique_ptr<client::LocalServer> local;
  if (target.kind == client::Target::Kind::kLocal) {
    GPULAYER_ASSIGN_OR_RETURN(local, client::LocalServer::Start(
                                         options.interrupt ? options.interrupt->state() : nullptr));
    target.endpoint.socket = local->socket();
  }
  std::unique_ptr<client::Transport> link = client::MakeGrpcTransport(target.endpoint);
  if (local) link = client::MakeLocalTransport(std::move(link), *local);
  auto transport = std::make_unique<client::RetryTransport>(std::move(link), Clock::System(),
                                                            client::InterruptibleSleeper);
  GPULAYER_ASSIGN_OR_RETURN(
      std::shared_ptr<Impl> impl,
      Impl::Make(options, std::move(target), std::move(local), std::move(transport)));
  return Client(std::move(impl));
}

Result<Job> Client::Submit(const JobSpec& spec) {
  GPULAYER_ASSIGN_OR_RETURN(std::vector<Job> jobs, impl_->Submit(impl_, {&spec, 1}));
  return std::move(jobs.front());
}

Result<std::vector<Job>> Client::SubmitBatch(const std::vector<JobSpec>& specs) {
  return impl_->Submit(impl_, specs);
}

Result<SourceListing> Client::PreviewSource(const JobSpec& spec) {
  SourceListing out;
  if (spec.source_dir.empty()) return out;
  GPULAYER_ASSIGN_OR_RETURN(tree::Listing listing,
                            client::ListSource(spec.source_dir, {spec.source_limit_bytes,
                                                                 spec.source_limit_files,
                                                                 {spec.command},
                                                                 client::OwnFolders("", ""),
                                                                 true}));
  for (const tree::ListedEntry& entry : listing.entries) {
    if (entry.type == EntryType::kFolder) continue;
    const std::int64_t size = entry.type == EntryType::kFile ? entry.stamp.size : 0;
    out.files.push_back({entry.path, size});
  }
  out.total_bytes = listing.bytes;
  out.ignored = std::move(listing.ignored);
  for (std::string& folder : listing.kept_out) {
    // That it does not ship surprises nobody.
    if (folder != ".git/" && !folder.ends_with("/.git/")) out.ignored.push_back(std::move(folder));
  }
  for (const tree::Warning& warning : listing.warnings) {
    out.warnings.push_back(tree::ToString(warning));
  }
  if (listing.more_warnings > 0) {
    out.warnings.push_back("left out " + std::to_string(listing.more_warnings) + " more");
  }
  return out;
}

Status Client::CheckDownload(const DownloadOptions& options) {
  // A folder that is named is made with all above it; what is in its way is said then.
  if (!options.to.empty()) return OkStatus();
  return tree::CheckRunsPlace(options.base.empty() ? "." : options.base);
}

Job Client::Attach(std::int64_t job) const { return Job(*this, job); }

Result<JobPage> Client::List(const ListOptions& options) {
  v1::ListJobsRequest request;
  if (options.state) request.set_state(static_cast<std::int32_t>(*options.state));
  if (options.user) request.set_user(*options.user);
  request.set_name_glob(options.name_glob);
  if (options.before) request.set_before(*options.before);
  request.set_limit(options.limit);
  v1::ListJobsReply reply;
  GPULAYER_RETURN_IF_ERROR(impl_->Call(Method::kListJobs, request, &reply));
  JobPage page;
  for (const v1::JobInfo& job : reply.jobs()) page.jobs.push_back(client::ToInfo(job));
  if (reply.has_next_before()) page.next_page = reply.next_before();
  return page;
}

Result<Job> Client::Retry(std::int64_t job, const RetryOptions& options) {
  return impl_->Retry(impl_, job, options);
}

Result<JobInfo> Client::Get(std::int64_t job, const TaskOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(const v1::GetJobReply reply, impl_->GetPage(job, options));
  return client::ToInfo(reply);
}

Result<CancelSummary> Client::Cancel(const std::vector<TaskSelector>& tasks,
                                     const CancelOptions& options) {
  v1::CancelRequest request;
  for (const TaskSelector& task : tasks) {
    v1::CancelRequest::Selector* selector = request.add_tasks();
    selector->set_job(task.job);
    if (task.task) selector->set_task(*task.task);
  }
  request.set_now(options.now);
  v1::CancelReply reply;
  GPULAYER_RETURN_IF_ERROR(impl_->Call(Method::kCancel, request, &reply));
  return CancelSummary{reply.cancelled(), reply.already_ended(), reply.finishing()};
}

Result<Explanation> Client::Explain(std::int64_t job) {
  v1::ExplainRequest request;
  request.set_job(job);
  v1::ExplainReply reply;
  GPULAYER_RETURN_IF_ERROR(impl_->Call(Method::kExplain, request, &reply));
  return client::ToInfo(reply);
}

Status Client::StreamLogs(std::int64_t job, const LogOptions& options,
                          const std::function<bool(const LogChunk&)>& on_chunk) {
  return impl_->StreamLogs(job, options, on_chunk);
}

Result<ExecSession> Client::Exec(std::int64_t job, const ExecOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(std::unique_ptr<ExecSession::Impl> session,
                            impl_->Exec(impl_, job, options));
  return ExecSession(std::move(session));
}

Result<JobInfo> Client::Watch(std::int64_t job,
                              const std::function<void(const JobInfo&)>& on_change,
                              std::optional<std::chrono::milliseconds> timeout) {
  return impl_->Watch(job, on_change, timeout);
}

Result<JobResult> Client::Wait(std::int64_t job, std::optional<std::chrono::milliseconds> timeout) {
  std::optional<JobResult> result;
  const auto take = [&](const JobInfo& info) { return result = ResultOf(info), true; };
  GPULAYER_RETURN_IF_ERROR(impl_->WaitEach({job}, take, timeout));
  return *std::move(result);
}

Status Client::WaitEach(const std::vector<std::int64_t>& jobs,
                        const std::function<bool(const JobInfo&)>& on_end,
                        std::optional<std::chrono::milliseconds> timeout) {
  return impl_->WaitEach(jobs, on_end, timeout);
}

Result<DownloadReport> Client::Download(std::int64_t job, const DownloadOptions& options) {
  return impl_->Download(job, options);
}

Result<std::vector<WorkerInfo>> Client::Workers() {
  std::vector<WorkerInfo> out;
  GPULAYER_RETURN_IF_ERROR((client::ForEachPage<v1::ListWorkersRequest, v1::ListWorkersReply>(
      [&](const auto& request, auto* reply) {
        return impl_->Call(Method::kListWorkers, request, reply);
      },
      [&](const v1::ListWorkersReply& reply) {
        for (const auto& worker : reply.workers()) out.push_back(client::ToInfo(worker));
      })));
  return out;
}

Result<ServerInfo> Client::ServerStatus() {
  v1::StatusReply reply;
  GPULAYER_RETURN_IF_ERROR(impl_->Call(Method::kStatus, client::StatusQuestion(), &reply));
  return client::ToInfo(reply);
}

Result<NewToken> Client::CreateToken(const std::string& role, const std::string& user,
                                     std::optional<std::chrono::milliseconds> life) {
  v1::CreateTokenRequest request;
  request.set_role(role);
  request.set_user(user);
  if (life) request.set_expires_in_ms(life->count());
  v1::CreateTokenReply reply;
  GPULAYER_RETURN_IF_ERROR(impl_->Call(Method::kCreateToken, request, &reply));
  return NewToken{reply.token(), reply.id()};
}

Result<std::vector<TokenInfo>> Client::ListTokens() {
  std::vector<TokenInfo> out;
  GPULAYER_RETURN_IF_ERROR((client::ForEachPage<v1::ListTokensRequest, v1::ListTokensReply>(
      [&](const auto& request, auto* reply) {
        return impl_->Call(Method::kListTokens, request, reply);
      },
      [&](const v1::ListTokensReply& reply) {
        for (const auto& token : reply.tokens()) out.push_back(client::ToInfo(token));
      })));
  return out;
}

Status Client::RevokeToken(const std::string& id) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  v1::RevokeTokenReply reply;
  return impl_->Call(Method::kRevokeToken, request, &reply);
}

const std::string& Client::target() const { return impl_->target().name; }

const std::string& Client::address() const {
  const client::Endpoint& endpoint = impl_->target().endpoint;
  return endpoint.socket.empty() ? endpoint.address : endpoint.socket;
}

Result<JobInfo> Job::Info() { return client_.Get(id_); }
Status Job::StreamLogs(const std::function<bool(const LogChunk&)>& on_chunk) {
  return client_.StreamLogs(id_, {}, on_chunk);
}
Status Job::StreamLogs(const LogOptions& options,
                       const std::function<bool(const LogChunk&)>& on_chunk) {
  return client_.StreamLogs(id_, options, on_chunk);
}
Result<ExecSession> Job::Exec(const ExecOptions& options) { return client_.Exec(id_, options); }
Result<JobResult> Job::Wait(std::optional<std::chrono::milliseconds> timeout) {
  return client_.Wait(id_, timeout);
}
Result<CancelSummary> Job::Cancel(const CancelOptions& options) {
  return client_.Cancel({{id_, std::nullopt}}, options);
}
Result<Explanation> Job::Explain() { return client_.Explain(id_); }
Result<DownloadReport> Job::Download(const DownloadOptions& options) {
  return client_.Download(id_, options);
}

}  // namespace gpulayer::api
