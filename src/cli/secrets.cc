#include "cli/secrets.h"

#include <algorithm>

#include "cli/ask_token.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {

void AddSecrets(Verb& verb, std::vector<std::string>* texts) {
  verb.Many(
      "--secret", "NAME[=@FILE|=-]", texts,
      "a variable whose value is shown nowhere: of this environment, a file, or standard input");
}

bool FromStdin(const std::string& text) { return text.ends_with("=-"); }

std::map<std::string, std::string> TakeSecrets(const std::vector<std::string>& texts) {
  if (std::count_if(texts.begin(), texts.end(), FromStdin) > 1) {
    Usage("--secret: standard input is one secret only. Write the others into files: NAME=@FILE");
  }
  std::map<std::string, std::string> secrets;
  for (const std::string& text : texts) {
    auto secret = Need(FromStdin(text) ? AskSecret(text) : ReadSecret(text), "--secret");
    const auto [at, is_new] = secrets.insert(std::move(secret));
    if (!is_new) Usage("--secret: " + Printable(at->first) + " is there more than once");
  }
  return secrets;
}

}  // namespace gpulayer::cli
