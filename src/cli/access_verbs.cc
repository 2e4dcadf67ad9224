// login, logout, target; token.
#include <memory>
#include <string>

#include "cli/verbs.h"

namespace gpulayer::cli {
namespace {

void AddLogin(Parser& parser) {
  auto args = std::make_shared<LoginArgs>();
  LoginOptions& options = args->options;
  Verb verb = parser.Add("login", "Submit to another machine's server from here.",
                         "gpulayer login server-box:7461 --token @token");
  verb.Word("ADDRESS", &options.address, "HOST[:PORT] of the server (port: 7461)");
  verb.Text("--token", kToken, &options.token,
            "token, - (standard input), @FILE, or GPULAYER_TOKEN");
  verb.Text("--name", "NAME", &options.name, "name for it here (default: the host's)");
  AddJson(verb, &args->json);
  verb.Check([&options] {
    if (options.address.empty()) Usage("which server? Give its address");
    Need(CheckLogin(options));
  });
  verb.Runs([args] { return RunLogin(*args); });
}

void AddLogout(Parser& parser) {
  auto args = std::make_shared<TargetArgs>();
  Verb verb = parser.Add("logout", "Forget a login.", "gpulayer logout server-box");
  verb.OptionalWord("NAME", &args->name, "which (default: the one in use)");
  AddJson(verb, &args->json);
  verb.Check([&name = args->name] {
    // "here" was a name like another once (docs/adr/0006).
    if (!name.empty() && name != "here") Need(CheckTargetName(name));
  });
  verb.Runs([args] { return RunLogout(*args); });
}

void AddTargetList(Parser& parser) {
  auto args = std::make_shared<Common>();
  Verb verb = parser.Add("target list", "List logins.", "gpulayer target list");
  AddJson(verb, &args->json);
  verb.Runs([args] { return RunTargetList(*args); });
}

void AddTargetUse(Parser& parser) {
  auto args = std::make_shared<TargetArgs>();
  Verb verb =
      parser.Add("target use", "Make a login the one in use.", "gpulayer target use server-box");
  verb.Word("NAME", &args->name, "name of the login");
  AddJson(verb, &args->json);
  verb.Check([&name = args->name] {
    if (name.empty()) Usage("which login? Give its name");
    if (name == "here" || name == "local" || name == "remote") {
      Usage("\"" + name +
            "\" has a meaning of its own and is no login. For the server that `up` started here: "
            "--target here or GPULAYER_TARGET=here while a login is in use; `gpulayer logout` "
            "forgets the login");
    }
    Need(CheckTargetName(name));
  });
  verb.Runs([args] { return RunTargetUse(*args); });
}

void AddTokenCreate(Parser& parser) {
  auto args = std::make_shared<TokenArgs>();
  Verb verb = parser.Add("token create", "Make a token for join or login.",
                         "gpulayer token create --role client --expires 1d");
  AddCommon(verb, &args->common);
  verb.Text("--role", "ROLE", &args->role, "client, worker or admin");
  verb.Check([&role = args->role] {
    if (role != "client" && role != "worker" && role != "admin") {
      Usage("--role: client, worker or admin");
    }
  });
  verb.Duration("--expires", &args->life,
                "how long it is good for, as 1d (default: until it is revoked)");
  verb.Text("--user", "NAME", &args->user, "whose jobs they are (default: yours)");
  verb.Check([args] {
    if (args->life && args->life->count() <= 0) {
      Usage("--expires: more than 0, as 1d; without it the token is good until it is revoked");
    }
  });
  verb.Runs([args] { return RunTokenCreate(*args); });
}

void AddTokenList(Parser& parser) {
  auto args = std::make_shared<TokenArgs>();
  Verb verb = parser.Add("token list", "List tokens and the credentials made of them.",
                         "gpulayer token list");
  AddCommon(verb, &args->common);
  verb.Runs([args] { return RunTokenList(*args); });
}

void AddTokenRevoke(Parser& parser) {
  auto args = std::make_shared<TokenArgs>();
  Verb verb =
      parser.Add("token revoke", "End a token with its credentials, or one credential, at once.",
                 "gpulayer token revoke 3f9c21d407ab");
  AddCommon(verb, &args->common);
  verb.Word("ID", &args->id, "the id, as `token list` shows it");
  verb.Check([args] {
    if (args->id.empty()) Usage("which token? Give its id");
  });
  verb.Runs([args] { return RunTokenRevoke(*args); });
}

}  // namespace

void AddLoginVerbs(Parser& parser) {
  AddLogin(parser);
  AddLogout(parser);
  parser.Group("target", "Choose where work goes.", "gpulayer target use server-box");
  AddTargetList(parser);
  AddTargetUse(parser);
}

void AddTokenVerbs(Parser& parser) {
  parser.Group("token", "Let people and machines in, or out.",
               "gpulayer token create --role client --expires 7d");
  AddTokenCreate(parser);
  AddTokenList(parser);
  AddTokenRevoke(parser);
}

}  // namespace gpulayer::cli
