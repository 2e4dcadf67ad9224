// The frame of a verb that asks a server something and prints the answer.
#ifndef GPULAYER_CLI_VERB_H_
#define GPULAYER_CLI_VERB_H_

#include "cli/args.h"
#include "cli/print.h"
#include "gpulayer/client.h"

// Leaves the function with the status if there is no value.
#define GPULAYER_TRY_CONCAT_(a, b) a##b
#define GPULAYER_TRY_NAME_(line) GPULAYER_TRY_CONCAT_(gpulayer_try_, line)
#define GPULAYER_TRY(lhs, expr)                                                         \
  auto GPULAYER_TRY_NAME_(__LINE__) = (expr);                                           \
  if (!GPULAYER_TRY_NAME_(__LINE__).ok()) return GPULAYER_TRY_NAME_(__LINE__).status(); \
  lhs = *std::move(GPULAYER_TRY_NAME_(__LINE__))

namespace gpulayer::cli {

// Connects and calls `body(client) -> Result<int>`; a failure is printed and becomes `failed`.
template <typename Body>
int WithClient(const Common& common, int failed, const Body& body) {
  ClientOptions options;
  options.target = common.target;
  Result<Client> client = Client::Connect(options);
  if (!client.ok()) return PrintError(client.status()), failed;
  Result<int> code = body(*client);
  if (!code.ok()) return PrintError(code.status()), failed;
  return *code;
}

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_VERB_H_
