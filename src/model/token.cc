#include "model/token.h"

#include <algorithm>

#include "base/text.h"

namespace gpulayer {
namespace {

bool IsHex(std::string_view text, std::size_t least, std::size_t most) {
  return text.size() >= least && text.size() <= most &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

std::string FormatToken(const TokenText& token) {
  std::string text =
      (token.credential ? "glc1." : "gl1.") + token.role + "." + token.id + "." + token.secret;
  if (!token.credential) text += "." + token.ca_fingerprint;
  return text;
}

Result<TokenText> ParseToken(std::string_view text) {
  const Status bad = InvalidArgument(
      "token: not a token of gpulayer (gl1.ROLE.ID.SECRET.FINGERPRINT). Copy the whole line that "
      "was printed.");
  const std::string_view trimmed = Trim(text);
  if (trimmed.size() > 400) return bad;
  const std::vector<std::string> parts = Split(trimmed, '.');
  TokenText token;
  token.credential = parts[0] == "glc1";
  if (!token.credential && parts[0] != "gl1") return bad;
  if (parts.size() != (token.credential ? 4U : 5U)) return bad;
  token.role = parts[1];
  token.id = parts[2];
  token.secret = parts[3];
  if (token.role != "client" && token.role != "worker" && token.role != "admin") return bad;
  if (!IsHex(token.id, 8, 64) || !IsHex(token.secret, 32, 128)) return bad;
  if (!token.credential) {
    token.ca_fingerprint = parts[4];
    if (!IsHex(token.ca_fingerprint, 64, 64)) return bad;
  }
  return token;
}

}  // namespace gpulayer
