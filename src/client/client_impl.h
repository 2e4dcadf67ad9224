// The connection behind api::Client: target, transport, and what was learnt of the server.
#ifndef GPULAYER_CLIENT_CLIENT_IMPL_H_
#define GPULAYER_CLIENT_CLIENT_IMPL_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/fetch.h"
#include "client/local_server.h"
#include "client/ship.h"
#include "client/targets.h"
#include "client/transport.h"
#include "gpulayer/client.h"
#include "model/tree.h"
#include "tree/run_folder.h"

namespace gpulayer {

// Threads: every method from any thread; all but `local_folders_` is constant after construction.
class api::Client::Impl {
 public:
  // `transport` is asked for the server's status once.
  static Result<std::shared_ptr<Impl>> Make(ClientOptions options, client::Target target,
                                            std::unique_ptr<client::LocalServer> local,
                                            std::unique_ptr<client::Transport> transport);

  Result<std::vector<Job>> Submit(const std::shared_ptr<Impl>& self,
                                  std::span<const JobSpec> specs);
  Result<Job> Retry(const std::shared_ptr<Impl>& self, std::int64_t job,
                    const RetryOptions& options);
  Status StreamLogs(std::int64_t job, const LogOptions& options,
                    const std::function<bool(const LogChunk&)>& on_chunk);
  Result<std::unique_ptr<ExecSession::Impl>> Exec(const std::shared_ptr<Impl>& self,
                                                  std::int64_t job, const ExecOptions& options);
  Result<JobInfo> Watch(std::int64_t job, const std::function<void(const JobInfo&)>& on_change,
                        std::optional<std::chrono::milliseconds> timeout);
  Status WaitEach(const std::vector<std::int64_t>& jobs,
                  const std::function<bool(const JobInfo&)>& on_end,
                  std::optional<std::chrono::milliseconds> timeout);
  Result<DownloadReport> Download(std::int64_t job, const DownloadOptions& options);
  // With a page of its tasks.
  Result<v1::GetJobReply> GetPage(std::int64_t job, const TaskOptions& options);

  Status Call(client::Method method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite* reply);

  const client::Target& target() const { return target_; }

 private:
  Impl(ClientOptions options, client::Target target, std::unique_ptr<client::LocalServer> local,
       std::unique_ptr<client::Transport> transport);

  // `batch`: all that are submitted with it.
  Result<v1::JobSpec> Ship(const JobSpec& spec, std::span<const JobSpec> batch,
                           std::map<std::string, client::Shipped>* sources,
                           std::vector<std::string>* warnings);
  // A watch to its end, until `on_view` says false or `timeout` is over; `what` is waited for.
  Status ReadViews(v1::WatchRequest request, std::optional<std::chrono::milliseconds> timeout,
                   const std::string& what, const std::function<bool(JobInfo)>& on_view);
  tree::RunFolderRequest FolderRequest(std::int64_t job, const DownloadOptions& options) const;
  Result<std::string> RunFolder(std::int64_t job, const DownloadOptions& options);
  // For each task that has left `queued`, with the name of its folder within the run folder; empty: that
  // itself.
  Status ForEachOutput(
      std::int64_t job,
      const std::function<Status(const v1::TaskInfo&, const std::string& subfolder)>& body);
  Result<Tree> FetchTree(const v1::TaskInfo& task, const client::FetchOptions& fetch);
  Status CheckReplacesNothing(std::int64_t job, const DownloadOptions& options);
  // Takes those that succeeded out of what `spec`, the job's own, asks for.
  Status LeaveOutSuccessful(std::int64_t job, v1::JobSpec* spec);
  Result<std::vector<Job>> Queue(const std::shared_ptr<Impl>& self,
                                 const v1::SubmitRequest& request,
                                 std::vector<std::vector<std::string>> warnings);
  // Beside the jobs that are in the request, in their order. FAILED_PRECONDITION: an older server.
  Status AddSecrets(const std::vector<std::map<std::string, std::string>>& secrets,
                    v1::SubmitRequest* request) const;
  void CancelRequestIds(const v1::SubmitRequest& request);

  const ClientOptions options_;
  const client::Target target_;
  const client::InterruptPtr interrupt_;
  const std::unique_ptr<client::LocalServer> local_;  // outlives the transport
  const std::unique_ptr<client::Transport> transport_;
  std::string server_uuid_;
  v1::Version server_version_;
  Mutex mutex_;
  std::map<std::int64_t, std::string> local_folders_ GPULAYER_GUARDED_BY(mutex_);  // by job
};

}  // namespace gpulayer

#endif  // GPULAYER_CLIENT_CLIENT_IMPL_H_
