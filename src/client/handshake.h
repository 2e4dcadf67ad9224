// The first contact with a server: who it is, by the token, and what the token is exchanged for.
#ifndef GPULAYER_CLIENT_HANDSHAKE_H_
#define GPULAYER_CLIENT_HANDSHAKE_H_

#include <string>

#include "base/status.h"
#include "client/grpc_transport.h"

namespace gpulayer::client {

struct Introduction {
  std::string address;  // "host:port"
  std::string ca_pem;
  std::string credential;
  std::string role;
  std::string user;
  std::string server_uuid;
};

// Compares the server's CA with the token's fingerprint in a handshake that trusts nobody, then
// connects again trusting this CA alone, and exchanges the token for a credential of `subject`.
// `role`: "worker" or "client".
// Blocking: 5 s for what cannot be reached, 15 s for what does not answer, 45 s in all.
// Errors:   INVALID_ARGUMENT: address or token; PERMISSION_DENIED: another server than the token's,
// or the token is
//           for another role; UNAUTHENTICATED: wrong, expired, revoked; UNAVAILABLE with what is in
//           the way.
Result<Introduction> Introduce(const std::string& address, const std::string& token,
                               const std::string& role, const std::string& subject);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_HANDSHAKE_H_
