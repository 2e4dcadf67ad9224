// Where work goes: logins kept in files, and how a client finds its server.
#ifndef GPULAYER_CLIENT_TARGETS_H_
#define GPULAYER_CLIENT_TARGETS_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/grpc_transport.h"

namespace gpulayer::client {

struct Login {
  std::string name;
  std::string address;
  std::string ca_pem;
  std::string credential;
  std::string user;
  std::string role;
  std::string server_uuid;
  std::string damage;  // of List(): why its file cannot be used; then there is only the name
};

// Logins of one configuration directory: targets/NAME.json (0600) in a folder of 0700 (closed again if
// it was open), and the name of the one in use in targets/in_use.
// Threads: any; two processes at once: the later write stands.
// Errors:  NOT_FOUND: no such login. DATA_LOSS: a file that cannot be read as one, named.
class LoginStore {
 public:
  explicit LoginStore(const std::string& config_dir) : dir_(config_dir + "/targets") {}

  Status Put(const Login& login);
  Result<Login> Get(const std::string& name) const;
  Status Remove(const std::string& name);   // also as the one in use
  Result<std::vector<Login>> List() const;  // by name
  Result<std::optional<std::string>> InUse() const;
  Status Use(const std::string& name);  // NOT_FOUND

 private:
  std::string PathOf(const std::string& name) const;
  const std::string dir_;
};

// A name for a login: letters, digits, `.`, `_`, `-`; not `local`, `remote` or `here`.
Status CheckLoginName(const std::string& name);

// What a login to this host is called unless the user says otherwise; an IPv6 address is no name.
std::string LoginNameOf(const std::string& host);

struct TargetRequest {
  std::string target;      // option or keyword; may be empty
  std::string config_dir;  // as ClientOptions
  std::string data_dir;
};

struct Target {
  enum class Kind { kLocal, kLogin, kHere } kind = Kind::kHere;
  std::string name;           // "local", the login's, "here"
  bool login_in_use = false;  // its run folders have the plain name
  Endpoint endpoint;          // not of kLocal
};

// The order of the contract. FAILED_PRECONDITION: there is none; NOT_FOUND: no login of that name.
Result<Target> ResolveTarget(const TargetRequest& request);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_TARGETS_H_
