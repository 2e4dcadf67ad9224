// One TCP connection and one TLS handshake, by hand: what a server shows before it is trusted, and
// why a channel could not be made.
#ifndef GPULAYER_CLIENT_TLS_PROBE_H_
#define GPULAYER_CLIENT_TLS_PROBE_H_

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "client/dial.h"

namespace gpulayer::client {

struct PeerCertificate {
  std::string pem;
  Hash key;  // SHA-256 of the public key (SPKI, DER)
  bool is_ca = false;
};

// How long a connection may take to be made, and then the peer to answer on it.
struct Patience {
  Duration connect;
  Duration answer;
  InterruptPtr interrupt = nullptr;  // ends both; what is said then is of no use
};

// UNAVAILABLE: it took the connection, and that was all.
Status Silent(const std::string& server, Duration patience);

// Connects and shakes hands without checking who it is; returns the chain, leaf first.
// Blocking: until `patience` is over.
// Errors:   UNAVAILABLE naming what is in the way: the name is not known, nobody listens, no
//           answer, no TLS there, the connection closed at once, silence on it.
Result<std::vector<PeerCertificate>> FetchChain(const HostPort& address, const Patience& patience);

// Why no channel to `address` comes about, with certificates checked against `ca_pem`: UNAVAILABLE
// as FetchChain's, or PERMISSION_DENIED: another CA. OK: nothing is in the way now.
Status DiagnoseTls(const HostPort& address, const std::string& ca_pem, const Patience& patience);

// The same for a unix socket.
Status DiagnoseSocket(const std::string& path);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_TLS_PROBE_H_
