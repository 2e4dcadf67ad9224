// How people hand over a token.
#include "model/token.h"

#include <unistd.h>

#include <cstdlib>

#include "base/fs.h"
#include "base/text.h"
#include "client/standard_input.h"
#include "gpulayer/host.h"

namespace gpulayer {
namespace {

constexpr std::size_t kMaxTokenFileBytes = 64 * 1024;

// The first line of standard input, and not a byte more: the rest is somebody else's.
Result<std::string> ReadLineFromStdin() {
  std::string line;
  char c = 0;
  GPULAYER_RETURN_IF_ERROR(client::CheckStandardInput());
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, ReadSome(STDIN_FILENO, &c, 1));
    if (n == 0 || c == '\n' || line.size() > 4096) return line;
    line += c;
  }
}

}  // namespace

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
    GPULAYER_ASSIGN_OR_RETURN(text, ReadLineFromStdin());
  } else if (given[0] == '@') {
    Result<std::string> file = ReadFile(given.substr(1), kMaxTokenFileBytes);
    if (!file.ok()) return file.status().Prefixed("token");
    text = *file;
  }
  Result<TokenText> parsed = ParseToken(text);
  if (!parsed.ok() && text == given && PathExists(given)) {
    return InvalidArgument("token: " + Printable(given) +
                           " is a file here, and no token. Did you mean --token @" +
                           Printable(given) + "?");
  }
  GPULAYER_RETURN_IF_ERROR(parsed.status());
  return FormatToken(*parsed);
}

}  // namespace gpulayer
