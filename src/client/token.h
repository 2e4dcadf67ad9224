// The text of a token, and how people hand one over.
#ifndef GPULAYER_CLIENT_TOKEN_H_
#define GPULAYER_CLIENT_TOKEN_H_

#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"

namespace gpulayer::client {

// gl1.<role>.<id>.<secret>.<sha256 hex of the CA's public key>
struct Token {
  std::string text;
  std::string role;
  std::string id;
  Hash ca_key;
};

// INVALID_ARGUMENT without the text itself: it may be a secret with a typing error.
Result<Token> ParseToken(std::string_view text);

// The id in a credential, glc1.<role>.<id>.<secret>; empty if it is none.
std::string CredentialId(std::string_view credential);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_TOKEN_H_
