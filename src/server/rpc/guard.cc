#include "server/rpc/guard.h"

#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "server/rpc/respond.h"

namespace gpulayer::rpc {
namespace {

constexpr bool kYes = true;
constexpr bool kNo = false;

constexpr MethodRule kRules[] = {
    // name, deed, client, worker
    {"Jobs.Submit", "submitting", kYes, kNo},
    {"Jobs.Cancel", "cancelling", kYes, kNo},
    {"Jobs.List", "listing jobs", kYes, kNo},
    {"Jobs.Get", "reading a job", kYes, kNo},
    {"Jobs.Explain", "explaining a job", kYes, kNo},
    {"Jobs.Watch", "watching a job", kYes, kNo},
    {"Logs.Read", "reading logs", kYes, kNo},
    {"Artifacts.Missing", "sending files", kYes, kYes},
    {"Artifacts.Upload", "sending files", kYes, kYes},
    {"Artifacts.Download", "fetching files", kYes, kYes},
    {"Workers.Session", "working", kNo, kYes},
    {"Workers.List", "listing workers", kYes, kYes},
    {"Exec.Run", "running a command inside a job", kYes, kNo},
    {"Exec.Serve", "serving a command inside a job", kNo, kYes},
    {"Admin.Exchange", "logging in", kYes, kYes},
    {"Admin.Status", "asking for the status", kYes, kYes},
    {"Admin.CreateToken", "making a token", kNo, kNo},
    {"Admin.ListTokens", "listing tokens", kNo, kNo},
    {"Admin.RevokeToken", "revoking a token", kYes, kYes},
};

const MethodRule* Find(const char* method) {
  for (const MethodRule& rule : kRules) {
    if (std::strcmp(rule.name, method) == 0) return &rule;
  }
  return nullptr;
}

bool Allows(const MethodRule& rule, Role role) {
  switch (role) {
    case Role::kAdmin: return true;
    case Role::kClient: return rule.client;
    case Role::kWorker: return rule.worker;
  }
  return false;
}

// A connection's address family is the kernel's word, and the socket's mode 0600 keeps it to its
// owner. Nor may it have come by TLS: both must say so.
bool IsUnixSocket(const grpc::CallbackServerContext& context) {
  if (context.peer().rfind("unix:", 0) != 0) return false;
  const auto auth = context.auth_context();
  if (!auth) return true;
  for (const grpc::string_ref& value : auth->FindPropertyValues("transport_security_type")) {
    if (value == "ssl") return false;
  }
  return true;
}

}  // namespace

std::span<const MethodRule> MethodRules() { return kRules; }

Guard::Guard(security::TokenAuthority& tokens, UserName local_user)
    : tokens_(tokens), local_user_(std::move(local_user)) {}

Result<Principal> Guard::Identify(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find("authorization");
  if (it == metadata.end()) {
    if (IsUnixSocket(context)) {
      Principal owner;
      owner.role = Role::kAdmin;
      owner.user = local_user_;
      return owner;
    }
    return Unauthenticated("no token was sent. Run `gpulayer login ADDRESS --token TOKEN` first.");
  }
  std::string_view text(it->second.data(), it->second.size());
  constexpr std::string_view kBearer = "Bearer ";
  if (text.rfind(kBearer, 0) == 0) text.remove_prefix(kBearer.size());
  return tokens_.Authenticate(text);
}

bool IsOnThisMachine(const grpc::CallbackServerContext& context) {
  const std::string peer = context.peer();
  return peer.starts_with("unix:") || peer.starts_with("ipv4:127.") ||
         peer.starts_with("ipv6:[::1]") || peer.starts_with("ipv6:%5B::1%5D");
}

Result<Principal> Guard::Admit(const grpc::CallbackServerContext& context, const char* method) {
  if (stopping_.load(std::memory_order_acquire)) return StoppingStatus();
  const MethodRule* rule = Find(method);
  if (rule == nullptr) return Internal(std::string(method) + ": not in the table of methods");
  GPULAYER_ASSIGN_OR_RETURN(Principal caller, Identify(context));
  if (!Allows(*rule, caller.role)) {
    const char* needed = rule->client ? "a client" : rule->worker ? "a worker" : "an admin";
    const std::string_view role = ToString(caller.role);
    return PermissionDenied("this is a " + std::string(role) + "'s token; " + rule->deed +
                            " needs " + needed + " token");
  }
  if (context.deadline() <= std::chrono::system_clock::now()) {
    return DeadlineExceeded(std::string(method) +
                            ": the caller's time was over before it was begun");
  }
  return caller;
}

}  // namespace gpulayer::rpc
