#include <utility>

#include "gpulayer/v1/workers.grpc.pb.h"
#include "server/rpc/respond.h"
#include "server/rpc/services.h"
#include "server/rpc/session.h"
#include "wire/jobs.h"

namespace gpulayer::rpc {
namespace {

using grpc::CallbackServerContext;

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
          for (const WorkerView& worker : core.Workers()) {
            const std::string& id = worker.record.profile.id.value();
            if (id <= request->after() || (!only.empty() && id != only)) continue;
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
