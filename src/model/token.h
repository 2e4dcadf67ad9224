// The text of tokens and credentials: what a person pastes after --token and what travels as the
// bearer.
//
//   gl1.<role>.<id>.<secret>.<sha256 of the CA's public key>   a token
//   glc1.<role>.<id>.<secret>                                  a credential: what a token was
//   exchanged for
//
// Pure. Never put `secret`, or the whole text, into a message or a log.
#ifndef GPULAYER_MODEL_TOKEN_H_
#define GPULAYER_MODEL_TOKEN_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace gpulayer {

// In every server's certificate, and what every client verifies whatever address it dialled: it
// names the role, not the host, since a machine has many addresses.
inline constexpr char kTlsServerName[] = "gpulayer-server";

struct TokenText {
  bool credential = false;
  std::string role;    // "client", "worker" or "admin"
  std::string id;      // lower-case hex; what `token revoke` takes
  std::string secret;  // lower-case hex
  // Of a token only: 64 hex digits, SHA-256 of the server CA's public key (SubjectPublicKeyInfo,
  // DER).
  std::string ca_fingerprint;
  friend bool operator==(const TokenText&, const TokenText&) = default;
};

std::string FormatToken(const TokenText& token);
// INVALID_ARGUMENT says what is wrong without repeating the text. White space around it is not part
// of it.
Result<TokenText> ParseToken(std::string_view text);

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_TOKEN_H_
