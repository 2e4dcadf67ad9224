#include <algorithm>
#include <set>
#include <utility>

#include "base/fs.h"
#include "base/text.h"
#include "gpulayer/v1/jobs.grpc.pb.h"
#include "model/items.h"
#include "model/limits.h"
#include "model/variables.h"
#include "server/core/requests.h"
#include "server/rpc/job_views.h"
#include "server/rpc/respond.h"
#include "server/rpc/services.h"
#include "server/rpc/trees.h"
#include "server/rpc/watch.h"
#include "wire/convert.h"
#include "wire/jobs.h"

namespace gpulayer::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

// Each is looked up on the engine's thread, where everybody else waits meanwhile.
constexpr int kCancelSelectors = 10'000;

core::Caller ToCaller(const Principal& principal) { return {principal.user, principal.admin()}; }

// A job without a name is called by the first words of its command: many programs are "sh".
std::string NameOf(const std::vector<std::string>& command) {
  constexpr std::size_t kMostBytes = 30;
  std::string name = BaseName(command.front());
  for (std::size_t i = 1; i < command.size() && name.size() < kMostBytes; ++i) {
    name += " " + command[i].substr(0, kMostBytes);
  }
  name = Printable(name);
  std::size_t size = std::min(name.size(), kMostBytes);
  while (size > 0 && size < name.size() && (name[size] & 0xC0) == 0x80)
    --size;  // not within a character
  name.resize(size);
  return TrimmedEnd(name);
}

using Specs = std::vector<std::shared_ptr<const JobSpec>>;

struct Asked {
  Specs specs;
  std::vector<std::vector<EnvVar>> secrets;  // of each
};

Result<Asked> ToAsked(const pb::SubmitRequest& request) {
  if (request.jobs().empty()) return InvalidArgument("submit: no job in the request");
  if (!request.secrets().empty() && request.secrets_size() != request.jobs_size()) {
    return InvalidArgument("submit: secrets of " + std::to_string(request.secrets_size()) +
                           " jobs for " + std::to_string(request.jobs_size()));
  }
  Asked asked;
  for (int i = 0; i < request.jobs_size(); ++i) {
    const pb::JobSpec& in = request.jobs(i);
    if (in.ByteSizeLong() > limits::kMaxSpecBytes) {
      return InvalidArgument("job: " + FormatSize(static_cast<std::int64_t>(in.ByteSizeLong())) +
                             " of command and environment are over the limit of " +
                             FormatSize(static_cast<std::int64_t>(limits::kMaxSpecBytes)) +
                             ". Put them into files.");
    }
    GPULAYER_ASSIGN_OR_RETURN(JobSpec spec, wire::FromProto(in));
    GPULAYER_RETURN_IF_ERROR(CheckVariables(spec));
    std::vector<EnvVar> secrets;
    if (!request.secrets().empty()) secrets = wire::FromProto(request.secrets(i));
    GPULAYER_RETURN_IF_ERROR(CheckSecrets(spec, secrets));
    if (spec.name.empty()) spec.name = NameOf(spec.command);
    asked.specs.push_back(std::make_shared<const JobSpec>(std::move(spec)));
    asked.secrets.push_back(std::move(secrets));
  }
  return asked;
}

void EraseSecrets(Parts& parts, const Specs& specs) {
  for (const auto& spec : specs) parts.secrets.Erase(spec->secrets_ref);
}

// Before any row names them. All of them or none.
Status SealSecrets(Parts& parts, const std::vector<std::vector<EnvVar>>& secrets, Specs* specs) {
  for (std::size_t i = 0; i < specs->size(); ++i) {
    if (secrets[i].empty()) continue;
    Result<std::string> reference = parts.secrets.Put(secrets[i]);
    if (!reference.ok()) {
      EraseSecrets(parts, *specs);
      return reference.status();
    }
    JobSpec spec = *(*specs)[i];
    spec.secrets_ref = *std::move(reference);
    (*specs)[i] = std::make_shared<const JobSpec>(std::move(spec));
  }
  return OkStatus();
}

Result<std::shared_ptr<const LineFile>> OpenItems(Parts& parts, const Hash& hash) {
  return parts.items.Get(hash, [&]() -> Result<UniqueFd> {
    GPULAYER_ASSIGN_OR_RETURN(BlobStore::OpenBlob blob, parts.blobs.Open(hash));
    if (blob.size > limits::kMaxItemsBytes) {
      return InvalidArgument("job: items of " + FormatSize(blob.size) + " are over the limit of " +
                             FormatSize(limits::kMaxItemsBytes));
    }
    return std::move(blob.fd);
  });
}

Status CheckItemsHere(Parts& parts, const JobSpec& spec) {
  const auto lines = OpenItems(parts, spec.items);
  if (lines.status().code() == StatusCode::kNotFound) {
    return FailedPrecondition("items: blob " + spec.items.hex() +
                              " is not on the server. Upload it first.");
  }
  if (!lines.ok()) return lines.status();
  return CheckItems(spec, (*lines)->count(), (*lines)->longest(), (*lines)->has_nul());
}

Status CheckContent(Parts& parts, const Specs& specs) {
  std::set<Hash> trees;
  std::set<Hash> inputs;
  for (const auto& spec : specs) {
    if (!spec->source_tree.empty()) trees.insert(spec->source_tree);
    if (!spec->stdin_blob.empty()) inputs.insert(spec->stdin_blob);
  }
  for (const Hash& tree : trees) {
    if (const Status s = parts.trees.CheckIsHere(tree); !s.ok())
      return s.Prefixed("submit: source");
  }
  for (const Hash& input : inputs) {
    if (!parts.blobs.Has(input)) {
      return FailedPrecondition("submit: standard input: blob " + input.hex() +
                                " is not on the server. Upload it first.");
    }
  }
  for (const auto& spec : specs) {
    if (!spec->items.empty()) {
      GPULAYER_RETURN_IF_ERROR(CheckItemsHere(parts, *spec).Prefixed("submit"));
    }
  }
  return OkStatus();
}

using Selectors = std::vector<core::CancelTasks::Selector>;

// Of jobs that are over the core has forgotten which tasks they had. Of all others too: a job may end
// before the core hears of this, and what a job has never changes.
Status CheckTasksExist(StoreReader& reader, const Selectors& selectors) {
  std::vector<const core::CancelTasks::Selector*> tasks;
  for (const core::CancelTasks::Selector& selector : selectors) {
    if (selector.task) tasks.push_back(&selector);
  }
  // By job: one spec in memory at a time, of thousands that may have some MiB each.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const auto* a, const auto* b) { return a->job < b->job; });
  JobId job(0);
  std::shared_ptr<const JobSpec> spec;
  for (const core::CancelTasks::Selector* task : tasks) {
    if (task->job != job) {
      job = task->job;
      spec.reset();
      if (const Result<JobRecord> record = reader.GetJob(job); record.ok()) spec = record->spec;
    }
    if (spec != nullptr && !spec->HasTask(*task->task)) {  // without one the core says so
      return core::NoSuchTask("cancel job " + ToString(job), {job, *task->task}, *spec);
    }
  }
  return OkStatus();
}

// The core has compared those that are not over.
Status CheckSameRequests(StoreReader& reader, const Specs& specs, const core::SubmitReply& done,
                         pb::SubmitReply* reply) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!done.jobs[i].existed) continue;
    const Result<JobRecord> job = reader.GetJob(done.jobs[i].job);
    if (!job.ok()) continue;  // its row is gone: it is that job all the same
    GPULAYER_ASSIGN_OR_RETURN(const std::string warning,
                              core::SameRequest(*specs[i], *job->spec, done.jobs[i].job));
    if (!warning.empty()) reply->mutable_jobs(static_cast<int>(i))->set_warning(warning);
  }
  return OkStatus();
}

void ToProto(const core::SubmitReply& in, pb::SubmitReply* out) {
  for (const core::Submitted& job : in.jobs) {
    pb::SubmitReply::Submitted* submitted = out->add_jobs();
    submitted->set_job(job.job.value());
    submitted->set_existed(job.existed);
    submitted->set_warning(job.warning);
  }
}

class JobsService final : public pb::Jobs::CallbackService {
 public:
  explicit JobsService(Parts& parts) : parts_(parts) {}

  ServerUnaryReactor* Submit(CallbackServerContext* context, const pb::SubmitRequest* request,
                             pb::SubmitReply* reply) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Jobs.Submit");
    if (!caller.ok()) return FinishNow(context, caller.status());
    Result<Asked> asked = ToAsked(*request);
    if (!asked.ok()) return FinishNow(context, asked.status());
    ServerUnaryReactor* reactor = context->DefaultReactor();
    auto responder = std::make_shared<Responder>(reactor);
    core::SubmitJobs event{{}, ToCaller(*caller), std::move(asked->specs)};
    const Status posted =
        parts_.io.Post([this, event = std::move(event), secrets = std::move(asked->secrets), reply,
                        responder]() mutable {
          // Before the database needs the last of the room and every answer has to wait for it.
          if (const Status room = parts_.blobs.CheckRoom(); !room.ok()) {
            return responder->Finish(room.Prefixed("submit"));
          }
          const Status here = CheckContent(parts_, event.specs);
          if (!here.ok()) return responder->Finish(here);
          const Status sealed = SealSecrets(parts_, secrets, &event.specs);
          if (!sealed.ok()) return responder->Finish(sealed.Prefixed("submit"));
          PostSubmit(std::move(event), reply, responder);
        });
    if (!posted.ok()) responder->Finish(Refusal(posted));
    return reactor;
  }

  ServerUnaryReactor* Cancel(CallbackServerContext* context, const pb::CancelRequest* request,
                             pb::CancelReply* reply) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Jobs.Cancel");
    if (!caller.ok()) return FinishNow(context, caller.status());
    if (request->tasks_size() > kCancelSelectors) {
      return FinishNow(context,
                       InvalidArgument("cancel: " + std::to_string(request->tasks_size()) +
                                       " jobs and tasks are named, the limit is " +
                                       std::to_string(kCancelSelectors) + ". Cancel in parts."));
    }
    core::CancelTasks event;
    event.caller = ToCaller(*caller);
    event.request = RequestId(request->request_id());
    event.now = request->now();
    for (const pb::CancelRequest::Selector& in : request->tasks()) {
      core::CancelTasks::Selector selector;
      selector.job = JobId(in.job());
      if (in.has_task()) selector.task = TaskIndex(in.task());
      if (in.job() <= 0 || (in.has_task() && in.task() < 0)) {
        return FinishNow(context, InvalidArgument("cancel: not a job or task number"));
      }
      event.tasks.push_back(selector);
    }
    if (event.tasks.empty() == event.request.value().empty()) {
      return FinishNow(context, InvalidArgument("cancel: name either jobs or a request id"));
    }
    ServerUnaryReactor* reactor = context->DefaultReactor();
    auto responder = std::make_shared<Responder>(reactor);
    const bool names_tasks = std::any_of(
        event.tasks.begin(), event.tasks.end(),
        [](const core::CancelTasks::Selector& selector) { return selector.task.has_value(); });
    if (names_tasks) {
      CheckAndCancel(std::move(event), reply, responder);
    } else {
      PostCancel(std::move(event), reply, responder);
    }
    return reactor;
  }

  ServerUnaryReactor* List(CallbackServerContext* context, const pb::ListJobsRequest* request,
                           pb::ListJobsReply* reply) override {
    return Read(context, "Jobs.List", [request, reply](StoreReader& reader) {
      return ReadJobs(reader, *request, reply);
    });
  }

  ServerUnaryReactor* Get(CallbackServerContext* context, const pb::GetJobRequest* request,
                          pb::GetJobReply* reply) override {
    return Read(context, "Jobs.Get", [this, request, reply](StoreReader& reader) {
      TaskPage page;
      if (request->has_task()) page.only = TaskIndex(request->task());
      page.from = TaskIndex(request->from_task());
      page.limit = request->task_limit();
      for (const std::int32_t state : request->states()) {
        if (state < 1 || state > static_cast<std::int32_t>(TaskState::kTimedOut)) {
          return InvalidArgument("state " + std::to_string(state) + ": not known here");
        }
        page.states.push_back(static_cast<TaskState>(state));
      }
      GPULAYER_RETURN_IF_ERROR(ReadJob(reader, JobId(request->job()), page, reply));
      const Result<Hash> items = wire::HashFromBytes(reply->job().spec().items_blob(), "items");
      if (!request->items() || !items.ok() || items->empty()) return OkStatus();
      const auto lines = OpenItems(parts_, *items);
      if (lines.ok()) AddItems(**lines, reply);
      return OkStatus();
    });
  }

  ServerUnaryReactor* Explain(CallbackServerContext* context, const pb::ExplainRequest* request,
                              pb::ExplainReply* reply) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Jobs.Explain");
    if (!caller.ok()) return FinishNow(context, caller.status());
    ServerUnaryReactor* reactor = context->DefaultReactor();
    auto responder = std::make_shared<Responder>(reactor);
    const JobId job(request->job());
    const Status posted =
        parts_.engine.Query([this, job, reply, responder](const core::Core& core, Instant now) {
          Result<Explanation> explanation = core.Explain(job, now);
          if (explanation.ok()) {
            if (const Status room = parts_.blobs.CheckRoom(); !room.ok()) {
              explanation->summary += "; " + room.message();
            }
            wire::ToProto(*explanation, reply);
            return responder->Finish(OkStatus());
          }
          if (explanation.status().code() != StatusCode::kNotFound) {
            return responder->Finish(explanation.status());
          }
          ExplainEnded(job, reply, responder);
        });
    if (!posted.ok()) responder->Finish(Refusal(posted));
    return reactor;
  }

  grpc::ServerWriteReactor<pb::GetJobReply>* Watch(CallbackServerContext* context,
                                                   const pb::WatchRequest* request) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Jobs.Watch");
    if (!caller.ok())
      return new Refused<grpc::ServerWriteReactor<pb::GetJobReply>>(caller.status());
    return StartWatch(parts_, *caller, *request);
  }

 private:
  // All or none: what names a task of a job that is over is looked up before anything is cancelled.
  void CheckAndCancel(core::CancelTasks event, pb::CancelReply* reply,
                      const ResponderPtr& responder) {
    const Status posted = parts_.readers.Post(
        [this, event = std::move(event), reply, responder](StoreReader& reader) mutable {
          const Status exist = CheckTasksExist(reader, event.tasks);
          if (!exist.ok()) return responder->Finish(exist);
          PostCancel(std::move(event), reply, responder);
        });
    if (!posted.ok()) responder->Finish(Refusal(posted));
  }

  void PostCancel(core::CancelTasks event, pb::CancelReply* reply, const ResponderPtr& responder) {
    const Status posted =
        parts_.engine.Post(std::move(event), [reply, responder](core::ReplyBody body) {
          if (const auto* status = std::get_if<Status>(&body)) return responder->Finish(*status);
          if (const auto* done = std::get_if<core::CancelReply>(&body)) {
            reply->set_cancelled(done->cancelled);
            reply->set_already_ended(done->already_ended);
            reply->set_finishing(done->finishing);
            return responder->Finish(OkStatus());
          }
          responder->Finish(Internal("cancel: the wrong kind of answer"));
        });
    if (!posted.ok()) responder->Finish(Refusal(posted));
  }

  void PostSubmit(core::SubmitJobs event, pb::SubmitReply* reply, const ResponderPtr& responder) {
    const Specs specs = event.specs;
    const Status posted =
        parts_.engine.Post(std::move(event), [this, specs, reply, responder](core::ReplyBody body) {
          if (const auto* status = std::get_if<Status>(&body)) {
            EraseSecrets(parts_, specs);
            if (status->code() != StatusCode::kRejected) return responder->Finish(*status);
            reply->set_rejected(status->message());
            return responder->Finish(OkStatus());
          }
          if (const auto* done = std::get_if<core::SubmitReply>(&body)) {
            for (std::size_t i = 0; i < specs.size(); ++i) {
              // The job that was there has those that came with it.
              if (done->jobs[i].existed) parts_.secrets.Erase(specs[i]->secrets_ref);
            }
            ToProto(*done, reply);
            return CheckExisting(specs, *done, reply, responder);
          }
          responder->Finish(Internal("submit: the wrong kind of answer"));
        });
    if (posted.ok()) return;
    EraseSecrets(parts_, specs);
    responder->Finish(Refusal(posted));
  }

  void CheckExisting(const Specs& specs, const core::SubmitReply& done, pb::SubmitReply* reply,
                     const ResponderPtr& responder) {
    const bool existed = std::any_of(done.jobs.begin(), done.jobs.end(),
                                     [](const core::Submitted& job) { return job.existed; });
    if (!existed) return responder->Finish(OkStatus());
    const Status posted = parts_.readers.Post([specs, done, reply, responder](StoreReader& reader) {
      responder->Finish(CheckSameRequests(reader, specs, done, reply));
    });
    if (!posted.ok()) responder->Finish(Refusal(posted));
  }

  // Jobs that the core has forgotten are the store's to show.
  void ExplainEnded(JobId job, pb::ExplainReply* reply, const ResponderPtr& responder) {
    const Status posted = parts_.readers.Post([job, reply, responder](StoreReader& reader) {
      Result<JobRecord> record = reader.GetJob(job);
      if (!record.ok()) return responder->Finish(record.status());
      Explanation explanation;
      explanation.job = job;
      explanation.state = record->state;
      explanation.needs = Describe(record->spec->requirements);
      explanation.summary =
          "job " + ToString(job) + " has ended: " + std::string(ToString(record->state));
      if (!record->outcome.cause.text.empty())
        explanation.summary += " (" + record->outcome.cause.text + ")";
      wire::ToProto(explanation, reply);
      responder->Finish(OkStatus());
    });
    if (!posted.ok()) responder->Finish(Refusal(posted));
  }

  template <typename Fill>
  ServerUnaryReactor* Read(CallbackServerContext* context, const char* method, Fill fill) {
    Result<Principal> caller = parts_.guard.Admit(*context, method);
    if (!caller.ok()) return FinishNow(context, caller.status());
    ServerUnaryReactor* reactor = context->DefaultReactor();
    auto responder = std::make_shared<Responder>(reactor);
    const Status posted = parts_.readers.Post(
        [fill, responder](StoreReader& reader) { responder->Finish(fill(reader)); });
    if (!posted.ok()) responder->Finish(Refusal(posted));
    return reactor;
  }

  Parts& parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeJobsService(Parts& parts) {
  return std::make_unique<JobsService>(parts);
}

}  // namespace gpulayer::rpc
