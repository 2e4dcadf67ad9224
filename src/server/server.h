// The whole server of one data directory: store, blobs, logs, engine, security and the two
// listeners (a unix socket for this machine's owner, TLS over TCP for everybody else).
//
// Threads:   Start and Stop from one thread; the accessors and CreateToken from any, until Stop().
// Ownership: holds an exclusive lock on <data_dir>/server while it lives; nobody else may open what
//            lies there.
// Blocking:  Start opens the database and returns when both listeners answer. Stop tells open
//            streams UNAVAILABLE ("server is stopping"), drains the engine and closes the store,
//            within limits::kShutdownGrace.
// Errors:    Start: FAILED_PRECONDITION ("data directory D is in use by pid N"; port in use),
//            PERMISSION_DENIED (folder not writable), or what the store says; nothing is then left
//            running or half made.
#ifndef GPULAYER_SERVER_SERVER_H_
#define GPULAYER_SERVER_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/ids.h"
#include "model/limits.h"
#include "server/core/core.h"
#include "server/store/store.h"

namespace gpulayer {

struct ServerOptions {
  std::string data_dir;  // D: the server's own files lie in D/server, its socket is D/server.sock
  // "0.0.0.0:7461"; port 0: any free one; empty: the socket only. Names, IPv4, [IPv6].
  std::string listen;
  bool durable = true;  // false: no fsync anywhere, for a server that dies with its client
  std::function<void()> on_locked;  // called once the data directory is this server's
  core::Options core = {limits::kSuspectAfter, limits::kLostAfter};
  Duration exec_deadline = limits::kExecDeadline;
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> Start(ServerOptions options);
  ~Server();  // Stop()

  int port() const;                 // 0: no TCP listener
  std::string socket_path() const;  // D/server.sock, or where it was moved to (over 107 bytes)
  std::vector<std::string> addresses() const;  // "192.168.1.5:7461": where other machines reach it
  std::string ca_pem() const;                  // what a client verifies the server against
  // A token text for `join` or `login`; shown this once, stored hashed. `life` none: until revoked.
  Result<std::string> CreateToken(Role role, UserName user, std::optional<Duration> life);

  void Stop();  // may be called twice

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_SERVER_H_
