#include "client/token.h"

#include <unistd.h>

#include <cstdlib>

#include "base/fs.h"
#include "base/text.h"
#include "gpulayer/host.h"

namespace gpulayer {
namespace client {
namespace {

std::string Trimmed(std::string text) {
  const char* kSpace = " \t\r\n";
  text.erase(0, text.find_first_not_of(kSpace));
  text.erase(text.find_last_not_of(kSpace) + 1);
  return text;
}

// The first line of standard input, and not a byte more: the rest is somebody else's.
Result<std::string> ReadLineFromStdin() {
  std::string line;
  char c = 0;
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, ReadSome(STDIN_FILENO, &c, 1));
    if (n == 0 || c == '\n' || line.size() > 4096) return line;
    line += c;
  }
}

}  // namespace

Result<Token> ParseToken(std::string_view text) {
  const Status bad = InvalidArgument(
      "token: not of the form gl1.<role>.<id>.<secret>.<key>. Copy the whole line that "
      "`gpulayer up` or `gpulayer token create` printed.");
  const std::vector<std::string> parts = Split(text, '.');
  if (parts.size() != 5 || parts[0] != "gl1") return bad;
  for (const std::string& part : parts) {
    if (part.empty() || Printable(part) != part) return bad;
  }
  Result<Hash> key = Hash::FromHex(parts[4]);
  if (!key.ok()) return bad;
  return Token{std::string(text), parts[1], parts[2], *key};
}

std::string CredentialId(std::string_view credential) {
  const std::vector<std::string> parts = Split(credential, '.');
  return parts.size() == 4 && parts[0] == "glc1" ? parts[2] : "";
}

}  // namespace client

Result<std::string> api::ReadToken(const std::string& given) {
  std::string text = given;
  if (given.empty()) {
    const char* env = std::getenv("GPULAYER_TOKEN");
    if (env == nullptr || *env == '\0') {
      return InvalidArgument(
          "token: none was given. Use --token T, --token @FILE, --token - or GPULAYER_TOKEN.");
    }
    text = env;
  } else if (given == "-") {
    GPULAYER_ASSIGN_OR_RETURN(text, client::ReadLineFromStdin());
  } else if (given[0] == '@') {
    Result<std::string> file = ReadFile(given.substr(1));
    if (!file.ok()) return file.status().Prefixed("token");
    text = *file;
  }
  text = client::Trimmed(text);
  GPULAYER_RETURN_IF_ERROR(client::ParseToken(text).status());
  return text;
}

}  // namespace gpulayer
