#include <utility>

#include "gpulayer/v1/workers.grpc.pb.h"
#include "server/rpc/respond.h"
#include "server/rpc/services.h"
#include "server/rpc/session.h"
#include "wire/jobs.h"

namespace gpulayer::rpc {
namespace {

using grpc::CallbackServerContext;

// Empty: there is none with this id.
std::string NameOf(const std::vector<WorkerView>& workers, const std::string& id) {
  for (const WorkerView& worker : workers) {
    if (worker.record.profile.id.value() == id) return worker.record.profile.name;
  }
  return "";
}

// All that a worker is told of another one: that it is there.
void AddNamesake(const WorkerView& worker, v1::ListWorkersReply::Worker* out) {
  out->set_id(worker.record.profile.id.value());
  out->set_name(worker.record.profile.name);
  out->set_state(static_cast<std::int32_t>(worker.state));
}

class WorkersService final : public v1::Workers::CallbackService {
 public:
  explicit WorkersService(Parts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>* Session(
      CallbackServerContext* context) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Workers.Session");
    if (!caller.ok()) {
      return new Refused<grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>>(
          caller.status());
    }
    return StartSession(parts_, context, *caller);
  }

  grpc::ServerUnaryReactor* List(CallbackServerContext* context,
                                 const v1::ListWorkersRequest* request,
                                 v1::ListWorkersReply* reply) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Workers.List");
    if (!caller.ok()) return FinishNow(context, caller.status());
    if (request->limit() < 0)
      return FinishNow(context, InvalidArgument("workers: a limit below 0"));
    const std::string only = caller->role == Role::kWorker ? caller->subject : "";
    if (caller->role == Role::kWorker && only.empty()) {
      return FinishNow(context, PermissionDenied("a worker's token sees no workers: exchange it "
                                                 "for a credential first (`gpulayer join`)"));
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    auto responder = std::make_shared<Responder>(reactor);
    const Status posted =
        parts_.engine.Query([request, reply, only, responder](const core::Core& core, Instant) {
          const std::int64_t most = PageSize(request->limit());
          std::size_t bytes = 0;
          const std::vector<WorkerView> workers = core.Workers();
          const std::string own_name = NameOf(workers, only);
          for (const WorkerView& worker : workers) {
            const std::string& id = worker.record.profile.id.value();
            if (id <= request->after()) continue;
            if (!only.empty() && id != only) {
              const bool namesake =
                  worker.record.profile.name == own_name && worker.state == WorkerState::kOnline;
              if (namesake) AddNamesake(worker, reply->add_workers());
              continue;
            }
            if (reply->workers_size() >= most || bytes >= kPageBytes) {
              reply->set_next(reply->workers(reply->workers_size() - 1).id());
              break;
            }
            v1::ListWorkersReply::Worker* out = reply->add_workers();
            wire::ToProto(worker, out);
            bytes += out->ByteSizeLong();
          }
          responder->Finish(OkStatus());
        });
    if (!posted.ok()) responder->Finish(Refusal(posted));
    return reactor;
  }

 private:
  Parts& parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkersService(Parts& parts) {
  return std::make_unique<WorkersService>(parts);
}

}  // namespace gpulayer::rpc
