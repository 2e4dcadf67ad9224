#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "gpulayer/v1/admin.grpc.pb.h"
#include "model/limits.h"
#include "server/rpc/respond.h"
#include "server/rpc/services.h"
#include "wire/convert.h"
#include "wire/version.h"

namespace gpulayer::rpc {
namespace {

namespace pb = ::gpulayer::v1;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

Status CheckText(const char* what, const std::string& text) {
  if (text.empty() || text.size() > limits::kMaxNameBytes || Printable(text) != text) {
    return InvalidArgument(std::string(what) + ": 1 to " + std::to_string(limits::kMaxNameBytes) +
                           " bytes of printable UTF-8 are needed");
  }
  return OkStatus();
}

Result<Role> ToRole(const std::string& text) {
  const std::optional<Role> role = security::RoleFromString(text);
  if (!role)
    return InvalidArgument("role \"" + Printable(text) + "\": client, worker or admin is needed");
  return *role;
}

void ToProto(const TokenRecord& in, pb::ListTokensReply::Token* out) {
  out->set_id(in.id);
  out->set_credential(in.kind == TokenRecord::Kind::kCredential);
  out->set_role(std::string(ToString(in.role)));
  out->set_user(in.user.value());
  out->set_subject(in.subject);
  out->set_parent(in.parent);
  out->set_created_at_us(ToMicros(in.created));
  if (in.expires) out->set_expires_at_us(ToMicros(*in.expires));
  if (in.revoked) out->set_revoked_at_us(ToMicros(*in.revoked));
}

class AdminService final : public pb::Admin::CallbackService {
 public:
  explicit AdminService(Parts& parts) : parts_(parts) {}

  ServerUnaryReactor* Exchange(CallbackServerContext* context, const pb::ExchangeRequest* request,
                               pb::ExchangeReply* reply) override {
    return OnPool(
        context, "Admin.Exchange",
        [this, request, reply](const Principal& caller) -> gpulayer::Status {
          GPULAYER_RETURN_IF_ERROR(wire::CheckPeerVersion(request->version(), "the caller"));
          GPULAYER_ASSIGN_OR_RETURN(const Role wanted, ToRole(request->wanted_role()));
          GPULAYER_RETURN_IF_ERROR(CheckText("subject", request->subject()));
          GPULAYER_ASSIGN_OR_RETURN(const security::TokenAuthority::Made made,
                                    parts_.tokens.Exchange(caller, wanted, request->subject()));
          *reply->mutable_version() = wire::OwnVersion();
          reply->set_credential(made.text);
          reply->set_role(std::string(ToString(wanted)));
          reply->set_user(caller.user.value());
          wire::ToProto(parts_.identity, reply->mutable_server());
          return OkStatus();
        });
  }

  ServerUnaryReactor* Status(CallbackServerContext* context, const pb::StatusRequest* request,
                             pb::StatusReply* reply) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Admin.Status");
    if (!caller.ok()) return FinishNow(context, caller.status());
    const gpulayer::Status version = wire::CheckPeerVersion(request->version(), "the caller");
    if (!version.ok()) return FinishNow(context, version);
    *reply->mutable_version() = wire::OwnVersion();
    wire::ToProto(parts_.identity, reply->mutable_server());
    reply->set_role(std::string(ToString(caller->role)));
    reply->set_user(caller->user.value());
    reply->set_started_at_us(ToMicros(parts_.started));
    reply->set_blobs_received(parts_.blobs_received.load());
    reply->set_blob_bytes_received(parts_.blob_bytes_received.load());
    for (const std::string& address : parts_.addresses) reply->add_addresses(address);
    if (caller->admin()) reply->set_data_dir(parts_.data_dir);
    ServerUnaryReactor* reactor = context->DefaultReactor();
    auto responder = std::make_shared<Responder>(reactor);
    const gpulayer::Status posted =
        parts_.engine.Query([reply, responder](const core::Core& core, Instant) {
          const StateCounts counts = core.TotalCounts();
          for (int i = 0; i < 10; ++i) {
            reply->add_task_counts(IsTerminal(static_cast<TaskState>(i)) ? 0 : counts.count[i]);
          }
          std::int64_t known = 0;
          std::int64_t online = 0;
          std::int64_t slots = 0;
          std::int64_t used = 0;
          for (const WorkerView& worker : core.Workers()) {
            ++known;
            if (worker.state != WorkerState::kOnline) continue;
            ++online;
            slots += worker.record.profile.resources.slots;
            used += worker.slots_used;
          }
          reply->set_workers_known(known);
          reply->set_workers_online(online);
          reply->set_slots_total(slots);
          reply->set_slots_used(used);
          responder->Finish(OkStatus());
        });
    if (!posted.ok()) responder->Finish(Refusal(posted));
    return reactor;
  }

  ServerUnaryReactor* CreateToken(CallbackServerContext* context,
                                  const pb::CreateTokenRequest* request,
                                  pb::CreateTokenReply* reply) override {
    return OnPool(context, "Admin.CreateToken",
                  [this, request, reply](const Principal& caller) -> gpulayer::Status {
                    GPULAYER_ASSIGN_OR_RETURN(const Role role, ToRole(request->role()));
                    const UserName user =
                        request->user().empty() ? caller.user : UserName(request->user());
                    GPULAYER_RETURN_IF_ERROR(CheckText("user", user.value()));
                    std::optional<Duration> life;
                    if (request->has_expires_in_ms()) {
                      constexpr std::int64_t kMost = std::int64_t{100} * 365 * 24 * 3'600'000;
                      if (request->expires_in_ms() <= 0)
                        return InvalidArgument("token: its life must be more than 0");
                      life = std::chrono::milliseconds(std::min(request->expires_in_ms(), kMost));
                    }
                    GPULAYER_ASSIGN_OR_RETURN(const security::TokenAuthority::Made made,
                                              parts_.tokens.Create(role, user, life));
                    reply->set_token(made.text);
                    reply->set_id(made.id);
                    return OkStatus();
                  });
  }

  ServerUnaryReactor* ListTokens(CallbackServerContext* context,
                                 const pb::ListTokensRequest* request,
                                 pb::ListTokensReply* reply) override {
    return OnPool(
        context, "Admin.ListTokens", [this, request, reply](const Principal&) -> gpulayer::Status {
          if (request->limit() < 0) return InvalidArgument("tokens: a limit below 0");
          const std::vector<TokenRecord> tokens = parts_.tokens.List();
          auto next = tokens.begin();
          if (!request->after().empty()) {
            next = std::find_if(tokens.begin(), tokens.end(), [&](const TokenRecord& token) {
              return token.id == request->after();
            });
            if (next == tokens.end())
              return InvalidArgument("tokens: no token " + Printable(request->after()));
            ++next;
          }
          const std::int64_t most = PageSize(request->limit());
          std::size_t bytes = 0;
          for (; next != tokens.end(); ++next) {
            if (reply->tokens_size() >= most || bytes >= kPageBytes) {
              reply->set_next(std::prev(next)->id);
              break;
            }
            ToProto(*next, reply->add_tokens());
            bytes += reply->tokens(reply->tokens_size() - 1).ByteSizeLong();
          }
          return OkStatus();
        });
  }

  ServerUnaryReactor* RevokeToken(CallbackServerContext* context,
                                  const pb::RevokeTokenRequest* request,
                                  pb::RevokeTokenReply* /*reply*/) override {
    return OnPool(
        context, "Admin.RevokeToken", [this, request](const Principal& caller) -> gpulayer::Status {
          const std::string id = request->id().empty() ? caller.token_id : request->id();
          if (id.empty()) return InvalidArgument("revoke: no token is named");
          // A login may end itself; a token, which others may hold too, is an admin's to end.
          if (!caller.admin() && !(caller.credential && id == caller.token_id)) {
            return PermissionDenied("this is a " + std::string(ToString(caller.role)) +
                                    "'s token; revoking another one needs an admin token");
          }
          const gpulayer::Status revoked = parts_.tokens.Revoke(id);
          if (revoked.code() != StatusCode::kNotFound) {
            for (const TokenRecord& token : parts_.tokens.List()) {
              if (token.id != id && token.parent != id) continue;
              parts_.streams.EndOf(token.id, Unauthenticated("token was revoked"));
              GiveUpWorkerOf(token.id);
            }
          }
          return revoked;
        });
  }

 private:
  // A queue too full to take it leaves the worker to its lease.
  void GiveUpWorkerOf(const std::string& credential) {
    const std::optional<WorkerId> worker = parts_.tokens.ShutOut(credential);
    if (!worker) return;
    LogInfo("worker " + worker->value() + " is given up: its credential was revoked");
    IgnoreError(parts_.engine.Post(core::Event(core::WorkerRevoked{*worker})),
                "its lease ends by itself");
  }

  // Tokens are written to the database: not on gRPC's threads.
  template <typename Do>
  ServerUnaryReactor* OnPool(CallbackServerContext* context, const char* method, Do work) {
    Result<Principal> caller = parts_.guard.Admit(*context, method);
    if (!caller.ok()) return FinishNow(context, caller.status());
    ServerUnaryReactor* reactor = context->DefaultReactor();
    auto responder = std::make_shared<Responder>(reactor);
    const gpulayer::Status posted = parts_.io.Post(
        [work, caller = *caller, responder]() -> void { responder->Finish(Run(work, caller)); });
    if (!posted.ok()) responder->Finish(Refusal(posted));
    return reactor;
  }

  template <typename Do>
  static gpulayer::Status Run(const Do& work, const Principal& caller) {
    return work(caller);
  }

  Parts& parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(Parts& parts) {
  return std::make_unique<AdminService>(parts);
}

}  // namespace gpulayer::rpc
