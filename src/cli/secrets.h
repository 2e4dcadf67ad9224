// --secret: what is typed, and the values that it names.
#ifndef GPULAYER_CLI_SECRETS_H_
#define GPULAYER_CLI_SECRETS_H_

#include <map>
#include <string>
#include <vector>

#include "cli/parser.h"

namespace gpulayer::cli {

// `texts` must live as long as the verb.
void AddSecrets(Verb& verb, std::vector<std::string>* texts);

bool FromStdin(const std::string& text);

// Reads them; asks for one that is to be typed, which is not shown. A wrong use ends in Usage(), which
// never repeats a value.
std::map<std::string, std::string> TakeSecrets(const std::vector<std::string>& texts);

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_SECRETS_H_
