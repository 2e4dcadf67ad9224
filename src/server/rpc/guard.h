// The one gate of every call: who calls, may they, is there still time. Each handler begins with
// Admit().
//
// Threads:   Admit from any thread; it never waits.
// Errors:    UNAUTHENTICATED: no, wrong, expired or revoked token. PERMISSION_DENIED: a role that
// this method does not
//            serve. UNAVAILABLE: the server is stopping. DEADLINE_EXCEEDED: the caller has given up
//            already.
#ifndef GPULAYER_SERVER_RPC_GUARD_H_
#define GPULAYER_SERVER_RPC_GUARD_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <span>
#include <string>

#include "base/status.h"
#include "server/security/tokens.h"

namespace gpulayer::rpc {

using security::Principal;

// One method of gpulayer.v1 and who may call it. An admin may call every one.
struct MethodRule {
  const char* name;  // "Jobs.Submit"
  const char* deed;  // "submitting": for messages
  bool client = false;
  bool worker = false;
};

// All methods of all services. A method that is not in here is refused.
std::span<const MethodRule> MethodRules();

// As far as an address tells: a tunnel looks the same, which is why the caller has to look as well.
bool IsOnThisMachine(const grpc::CallbackServerContext& context);

class Guard {
 public:
  // `tokens` must outlive it. `local_user` is who calls over the unix socket.
  Guard(security::TokenAuthority& tokens, UserName local_user);

  // `method` as in MethodRules().
  Result<Principal> Admit(const grpc::CallbackServerContext& context, const char* method);

  void RefuseAll() { stopping_.store(true, std::memory_order_release); }

 private:
  Result<Principal> Identify(const grpc::CallbackServerContext& context);

  security::TokenAuthority& tokens_;
  const UserName local_user_;
  std::atomic<bool> stopping_{false};
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_GUARD_H_
