// The server's own certificate authority and the certificate that its TLS listener shows.
//
// Files in <data_dir>/server/tls: ca.key and server.key (0600), ca.pem, server.pem. The CA is made
// once and lives ten years; clients pin it. The server's certificate is made again when less than
// 30 days of it are left. Threads:   free function; file I/O inside.
#ifndef GPULAYER_SERVER_SECURITY_TLS_H_
#define GPULAYER_SERVER_SECURITY_TLS_H_

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fs.h"
#include "base/status.h"

namespace gpulayer::security {

struct TlsIdentity {
  std::string ca_pem;
  std::string
      ca_fingerprint;     // hex SHA-256 of the CA's SubjectPublicKeyInfo: the end of every token
  std::string chain_pem;  // leaf, then CA
  std::string key_pem;    // the leaf's; never leaves this process but into the listener
};

// Reads what is in `dir`, makes what is missing or near its end. DATA_LOSS: the CA's files are
// damaged or do not belong together; nothing is replaced then, since every client has pinned them.
Result<TlsIdentity> LoadOrMakeTls(const std::string& dir, WallTime now, Durability durability);

// Hex SHA-256 of the public key of the first certificate in `pem`.
Result<std::string> PublicKeyFingerprint(std::string_view pem);

}  // namespace gpulayer::security

#endif  // GPULAYER_SERVER_SECURITY_TLS_H_
