// Tokens and secrets as people give them; one that is typed on a terminal is asked for and not shown.
//
// Blocking: until the line is there.
#ifndef GPULAYER_CLI_ASK_TOKEN_H_
#define GPULAYER_CLI_ASK_TOKEN_H_

#include <string>
#include <utility>

#include "gpulayer/status.h"

namespace gpulayer::cli {

// As ReadToken, with its errors. Signals that end us give the terminal its echo back.
Result<std::string> AskToken(const std::string& given);

// The same of what ReadSecret reads of standard input.
Result<std::pair<std::string, std::string>> AskSecret(const std::string& given);

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_ASK_TOKEN_H_
