// Who may call: tokens, the credentials they are exchanged for, and what a bearer text means.
//
// All records are held in memory beside the store (there are few), so a check costs one hash and no
// I/O, and a revocation holds from the moment Revoke() returns. Threads:   Authenticate from any
// thread, it never waits for I/O. Create, Exchange and Revoke write the database:
//            not for gRPC threads.
// Errors:    Authenticate: UNAUTHENTICATED "token is wrong", "token expired at ...", "token was
// revoked". Secrets:   only hashes are kept; a text is returned once, by Create and Exchange.
#ifndef GPULAYER_SERVER_SECURITY_TOKENS_H_
#define GPULAYER_SERVER_SECURITY_TOKENS_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "model/ids.h"
#include "server/store/store.h"

namespace gpulayer::security {

// The caller of one request.
struct Principal {
  Role role = Role::kClient;
  UserName user;
  std::string token_id;  // empty: the unix socket
  bool credential = false;
  std::string subject;  // of a credential: worker id, or the login's host name
  bool local() const { return token_id.empty(); }
  bool admin() const { return role == Role::kAdmin; }
};

std::optional<Role> RoleFromString(std::string_view text);

class TokenAuthority {
 public:
  // `store` and `clock` must outlive it. `ca_fingerprint` ends every token text.
  static Result<std::unique_ptr<TokenAuthority>> Open(Store& store, Clock& clock,
                                                      std::string ca_fingerprint);

  struct Made {
    std::string text;  // shown once
    std::string id;
  };
  Result<Made> Create(Role role, UserName user, std::optional<Duration> life);
  // A credential for `subject` out of a token. An admin's token may ask for any role, another only
  // for its own. FAILED_PRECONDITION: the caller is no token; PERMISSION_DENIED: another role was
  // wanted.
  Result<Made> Exchange(const Principal& token, Role wanted, std::string subject);
  // A token and the credentials made of it, or one credential. Holds at once. If the store fails it
  // says so; a repeat stores it. NOT_FOUND. Idempotent.
  Status Revoke(const std::string& id);
  // The worker that is shut out for good because credential `id` is revoked: none if that is no
  // worker's credential, or if the worker has joined again and has another one.
  std::optional<WorkerId> ShutOut(const std::string& id);
  std::vector<TokenRecord> List();  // by creation; secret_hash is left out

  Result<Principal> Authenticate(std::string_view bearer);

 private:
  TokenAuthority(Store& store, Clock& clock, std::string ca_fingerprint);
  Result<Made> Put(TokenRecord record, bool credential);

  Store& store_;
  Clock& clock_;
  const std::string ca_fingerprint_;
  Mutex mutex_;
  std::map<std::string, TokenRecord> records_ GPULAYER_GUARDED_BY(mutex_);  // by id
  std::set<std::string> unstored_ GPULAYER_GUARDED_BY(mutex_);  // revoked, but not yet in the store
};

}  // namespace gpulayer::security

#endif  // GPULAYER_SERVER_SECURITY_TOKENS_H_
