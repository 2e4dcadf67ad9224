#include "client/targets.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/fs.h"
#include "base/host.h"
#include "base/own_file.h"
#include "base/text.h"
#include "client/daemons.h"
#include "client/paths.h"

namespace gpulayer::client {
namespace {

using nlohmann::json;
constexpr char kSuffix[] = ".json";
constexpr char kInUse[] = "in_use";
constexpr char kHere[] = "here";  // the server that `up` started on this machine

std::string Field(const json& j, const char* name) {
  const auto found = j.find(name);
  return found != j.end() && found->is_string() ? found->get<std::string>() : "";
}

// Logins of older versions may have a name that is reserved by now: they are found by it all the
// same, and can be forgotten.
bool CanBeFile(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  });
  return plain && !name.empty() && name.size() <= 100 && name[0] != '.' && name[0] != '-';
}

Status NoSuchLogin(const std::string& name) {
  return NotFound("target \"" + Printable(name) +
                  "\": no login of that name. See `gpulayer target list`.");
}

Target FromLogin(const Login& login, bool in_use) {
  Target out;
  out.kind = Target::Kind::kLogin;
  out.name = login.name;
  out.login_in_use = in_use;
  out.endpoint = {"", login.address, login.ca_pem, login.credential};
  return out;
}

}  // namespace

Status CheckLoginName(const std::string& name) {
  if (!CanBeFile(name)) {
    return InvalidArgument("login name \"" + Printable(name) +
                           "\": use letters, digits, dots, dashes and underscores.");
  }
  if (name == "local" || name == "remote" || name == kHere) {
    return InvalidArgument("login name \"" + name + "\": it has a meaning of its own.");
  }
  return OkStatus();
}

std::string LoginNameOf(const std::string& host) {
  if (host.find(':') == std::string::npos) return host;
  std::string name = "ipv6-" + host;
  for (char& c : name) c = c == ':' ? '-' : c == '%' ? '_' : c;  // fe80::1%eth0
  return name;
}

std::string LoginStore::PathOf(const std::string& name) const {
  return JoinPath(dir_, name + kSuffix);
}

Status LoginStore::Put(const Login& login) {
  GPULAYER_RETURN_IF_ERROR(CheckLoginName(login.name));
  GPULAYER_RETURN_IF_ERROR(MakePrivateDir(dir_));  // also one that was made with another mode
  // A home directory that is a repository or ships as a source: credentials go nowhere.
  if (const std::string rules = JoinPath(dir_, ".gitignore"); !PathExists(rules)) {
    GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(rules, "*\n", 0600));
  }
  const json j = {
      {"address", login.address}, {"ca_pem", login.ca_pem}, {"credential", login.credential},
      {"user", login.user},       {"role", login.role},     {"server_uuid", login.server_uuid}};
  return WriteFileAtomic(PathOf(login.name),
                         j.dump(2, ' ', false, json::error_handler_t::replace) + "\n", 0600);
}

Result<Login> LoginStore::Get(const std::string& name) const {
  if (!CanBeFile(name)) return NoSuchLogin(name);
  const std::string path = PathOf(name);
  if (!PathExists(path)) return NoSuchLogin(name);
  GPULAYER_ASSIGN_OR_RETURN(const std::string text, ReadOwnFile(path));
  const json j = json::parse(text, nullptr, false);
  Login out;
  if (j.is_object()) {
    out = {name,
           Field(j, "address"),
           Field(j, "ca_pem"),
           Field(j, "credential"),
           Field(j, "user"),
           Field(j, "role"),
           Field(j, "server_uuid")};
  }
  if (out.address.empty() || out.ca_pem.empty() || out.credential.empty()) {
    return DataLoss("target " + name + ": " + path + " is damaged. Log in again.");
  }
  return out;
}

Status LoginStore::Remove(const std::string& name) {
  if (!CanBeFile(name) || !PathExists(PathOf(name))) return NoSuchLogin(name);
  const Result<std::optional<std::string>> in_use = InUse();
  if (in_use.ok() && *in_use == name) GPULAYER_RETURN_IF_ERROR(RemoveTree(JoinPath(dir_, kInUse)));
  return RemoveTree(PathOf(name));
}

Result<std::vector<Login>> LoginStore::List() const {
  std::vector<Login> out;
  if (!PathExists(dir_)) return out;
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(dir_));
  for (const std::string& file : names) {
    const std::size_t suffix = sizeof kSuffix - 1;
    if (file.size() <= suffix || file.substr(file.size() - suffix) != kSuffix) continue;
    const std::string name = file.substr(0, file.size() - suffix);
    if (!CanBeFile(name)) continue;  // not ours
    Result<Login> login = Get(name);
    if (!login.ok()) {  // the others are as good as ever
      out.emplace_back();
      out.back().name = name;
      out.back().damage = login.status().message();
      continue;
    }
    out.push_back(*std::move(login));
  }
  return out;
}

Result<std::optional<std::string>> LoginStore::InUse() const {
  const std::string path = JoinPath(dir_, kInUse);
  if (!PathExists(path)) return std::optional<std::string>();
  GPULAYER_ASSIGN_OR_RETURN(std::string name, ReadOwnFile(path));
  while (!name.empty() && name.back() == '\n') name.pop_back();
  // Never as if there were none: work would go to another server without a word.
  if (!CanBeFile(name) || !PathExists(PathOf(name))) {
    return DataLoss("logins: " + path +
                    " names no login. Run `gpulayer target use NAME` with one of `gpulayer target "
                    "list`, or remove that file to have none in use.");
  }
  return std::optional<std::string>(name);
}

Status LoginStore::Use(const std::string& name) {
  GPULAYER_RETURN_IF_ERROR(Get(name).status());
  return WriteFileAtomic(JoinPath(dir_, kInUse), name + "\n", 0600);
}

Result<Target> ResolveTarget(const TargetRequest& request) {
  std::string wanted = request.target;
  if (wanted.empty()) {
    const char* env = std::getenv("GPULAYER_TARGET");
    if (env != nullptr) wanted = env;
  }
  if (wanted == "local") {
    Target out;
    out.kind = Target::Kind::kLocal;
    out.name = wanted;
    return out;
  }
  GPULAYER_ASSIGN_OR_RETURN(const std::string config_dir, ConfigDir(request.config_dir));
  const LoginStore logins(config_dir);
  const Result<std::optional<std::string>> in_use_now = logins.InUse();
  if (!in_use_now.ok() && (wanted.empty() || wanted == "remote")) return in_use_now.status();
  const std::optional<std::string> in_use = in_use_now.ok() ? *in_use_now : std::nullopt;
  if (wanted == "remote" && !in_use) {
    return FailedPrecondition(
        "target remote: no login is in use. Run `gpulayer login`, or `gpulayer target use NAME` "
        "with "
        "one of `gpulayer target list`.");
  }
  if (!wanted.empty() && wanted != "remote" && wanted != kHere) {
    GPULAYER_ASSIGN_OR_RETURN(const Login login, logins.Get(wanted));
    return FromLogin(login, in_use == wanted);
  }
  if (in_use && wanted != kHere) {
    GPULAYER_ASSIGN_OR_RETURN(const Login login, logins.Get(*in_use));
    return FromLogin(login, true);
  }
  GPULAYER_ASSIGN_OR_RETURN(const std::string data_dir, DataDir(request.data_dir));
  Target out;
  out.name = kHere;
  out.login_in_use = !in_use;  // if there is no other, run folders have the plain name
  out.endpoint.socket = ServerSocket(data_dir);
  if (!out.endpoint.socket.empty()) return out;
  GPULAYER_RETURN_IF_ERROR(CheckMayLookInto(data_dir));
  if (const std::string server = JoinedServer(data_dir); !server.empty()) {
    return FailedPrecondition("no server to talk to: this machine is a worker of " + server +
                              " and has no login there. Run `gpulayer login " + server +
                              " --token TOKEN` with a token of `gpulayer token create --role "
                              "client`, made there");
  }
  if (wanted == kHere) {
    return FailedPrecondition(
        "target here: no server was started on this machine. Run `gpulayer up`");
  }
  const Result<std::vector<Login>> others = logins.List();
  std::vector<std::string> names;
  if (others.ok()) {
    for (const Login& login : *others) names.push_back(login.name);
  }
  if (!names.empty()) {
    return FailedPrecondition(
        "no server to talk to: of the logins here (" + Join(names, ", ") +
        ") none is in use. Run `gpulayer target use NAME`, or `gpulayer up` or "
        "`gpulayer login`");
  }
  return FailedPrecondition("no server to talk to: run `gpulayer up` or `gpulayer login`");
}

}  // namespace gpulayer::client
