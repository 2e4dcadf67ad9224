// The gRPC server: services, listeners and the threads that serve them.
//
// Threads:   Start and Stop from one thread.
// Ownership: what Options refers to must outlive it.
// Blocking:  Stop first ends the streams, then lets `drain` run (the engine answers what it
// accepted), then waits for
//            calls to end, about two seconds at most; what is left then is cut.
#ifndef GPULAYER_SERVER_RPC_RPC_SERVER_H_
#define GPULAYER_SERVER_RPC_RPC_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/blob/blob_store.h"
#include "server/blob/log_store.h"
#include "server/engine.h"
#include "server/security/secret_store.h"
#include "server/security/tls.h"
#include "server/security/tokens.h"
#include "server/store/store.h"

namespace gpulayer::rpc {

// Whether `listen` can be listened on now. INVALID_ARGUMENT: not an address, or not of this
// machine; FAILED_PRECONDITION: the port is in use; PERMISSION_DENIED. Empty: OK.
Status CheckListen(const std::string& listen);

class RpcServer {
 public:
  struct Options {
    std::string socket_path;  // see OpenUnixListener()
    std::string listen;       // host:port of the TLS listener; empty: none
    security::TlsIdentity tls;
    UserName local_user;  // who calls over the socket
    std::string data_dir;
    core::Options core;
    Duration exec_deadline;
    Engine& engine;
    Store& store;
    BlobStore& blobs;
    LogStore& logs;
    security::TokenAuthority& tokens;
    security::SecretStore& secrets;
    Clock& clock;
  };
  // As CheckListen and OpenUnixListener, or UNAVAILABLE: gRPC did not start. What lies at
  // `socket_path` then, and at the end, is the caller's to remove.
  static Result<std::unique_ptr<RpcServer>> Start(Options options);
  ~RpcServer();  // Stop with nothing to drain

  int port() const;
  const std::vector<std::string>& addresses() const;
  void Stop(const std::function<void()>& drain);  // may be called twice

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_RPC_SERVER_H_
