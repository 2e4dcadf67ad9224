// Login, logout and the list of targets.
#include "base/host.h"
#include "client/dial.h"
#include "client/handshake.h"
#include "client/paths.h"
#include "client/targets.h"
#include "client/tls_probe.h"
#include "gpulayer/host.h"
#include "gpulayer/v1/admin.pb.h"
#include "model/token.h"

namespace gpulayer {
namespace {

using client::LoginStore;

api::TargetInfo ToInfo(const client::Login& login, bool in_use) {
  return {login.name,        login.address, login.user,  login.role,
          login.server_uuid, in_use,        login.damage};
}

Result<LoginStore> OpenStore(const std::string& config_dir) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string dir, client::ConfigDir(config_dir));
  return LoginStore(dir);
}

// What the login is going to be called.
Result<std::string> NameOf(const api::LoginOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(const client::HostPort address, client::ParseAddress(options.address));
  std::string name = options.name.empty() ? client::LoginNameOf(address.host) : options.name;
  const Status fit = client::CheckLoginName(name);
  if (!fit.ok()) return InvalidArgument(fit.message() + " Choose another with --name.");
  return name;
}

// An admin's login is an admin's. A text that is no token is refused by whoever uses it.
std::string RoleFor(const std::string& token) {
  const Result<TokenText> parsed = ParseToken(token);
  return parsed.ok() && parsed->role == "admin" ? "admin" : "client";
}

}  // namespace

Status api::CheckAddress(const std::string& address) {
  return client::ParseAddress(address).status();
}

Status api::CheckListen(const std::string& address) { return client::CheckListenAddress(address); }

Status api::CheckTargetName(const std::string& name) { return client::CheckLoginName(name); }

Status api::CheckLogin(const LoginOptions& options) { return NameOf(options).status(); }

Result<api::TargetInfo> api::Login(const LoginOptions& options) {
  client::Login login;
  GPULAYER_ASSIGN_OR_RETURN(login.name, NameOf(options));
  GPULAYER_ASSIGN_OR_RETURN(LoginStore store, OpenStore(options.config_dir));
  GPULAYER_ASSIGN_OR_RETURN(
      const client::Introduction met,
      client::Introduce(options.address, options.token, RoleFor(options.token), HostName()));
  login.address = met.address;
  login.ca_pem = met.ca_pem;
  login.credential = met.credential;
  login.user = met.user;
  login.role = met.role;
  login.server_uuid = met.server_uuid;
  GPULAYER_RETURN_IF_ERROR(store.Put(login));
  GPULAYER_RETURN_IF_ERROR(store.Use(login.name));
  return ToInfo(login, true);
}

Result<std::string> api::Logout(const std::string& name, const std::string& config_dir) {
  GPULAYER_ASSIGN_OR_RETURN(LoginStore store, OpenStore(config_dir));
  std::string which = name;
  if (which.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(const std::optional<std::string> in_use, store.InUse());
    if (!in_use) return NotFound("logout: no login is in use. See `gpulayer target list`.");
    which = *in_use;
  }
  const Result<client::Login> found = store.Get(which);
  if (found.status().code() == StatusCode::kDataLoss) {  // nobody to ask
    GPULAYER_RETURN_IF_ERROR(store.Remove(which));
    return which;
  }
  GPULAYER_ASSIGN_OR_RETURN(const client::Login login, found);
  const auto transport =
      client::MakeGrpcTransport({"", login.address, login.ca_pem, login.credential});
  const v1::RevokeTokenRequest request;  // no id: the credential that it comes with
  v1::RevokeTokenReply reply;
  IgnoreError(
      transport->Call(client::Method::kRevokeToken, request, &reply,
                      {std::chrono::steady_clock::now() + std::chrono::seconds(20), nullptr}),
      "the login is forgotten here whatever the server says; an admin can revoke it there");
  GPULAYER_RETURN_IF_ERROR(store.Remove(which));
  return which;
}

Result<std::vector<api::TargetInfo>> api::ListTargets(const std::string& config_dir) {
  GPULAYER_ASSIGN_OR_RETURN(const LoginStore store, OpenStore(config_dir));
  const Result<std::optional<std::string>> in_use_now = store.InUse();
  const std::optional<std::string> in_use = in_use_now.ok() ? *in_use_now : std::nullopt;
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<client::Login> logins, store.List());
  std::vector<TargetInfo> out;
  for (const client::Login& login : logins) out.push_back(ToInfo(login, in_use == login.name));
  return out;
}

Status api::UseTarget(const std::string& name, const std::string& config_dir) {
  GPULAYER_ASSIGN_OR_RETURN(LoginStore store, OpenStore(config_dir));
  return store.Use(name);
}

}  // namespace gpulayer
