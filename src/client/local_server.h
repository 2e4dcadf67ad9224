// A private server for one client: `gpulayer-server --ephemeral`, which makes and removes a data
// directory of its own and says on its standard output where its socket is.
#ifndef GPULAYER_CLIENT_LOCAL_SERVER_H_
#define GPULAYER_CLIENT_LOCAL_SERVER_H_

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fs.h"
#include "base/status.h"
#include "client/interrupt_state.h"
#include "client/transport.h"

namespace gpulayer::client {

// Threads:   Start from any; one owner. EndedWithin from any.
// Ownership: the child lives as long as the pipe to its standard input is open, so it ends with
//            this process however that ends. The destructor closes the pipe, waits for the end, and
//            removes the directory of a server that was killed before it could.
// Blocking:  Start until the server answers, 10 s at most. EndedWithin as it says. The destructor
//            about 8 s at most, a few more after a kill.
class LocalServer {
 public:
  static Result<std::unique_ptr<LocalServer>> Start(const InterruptPtr& interrupt);
  ~LocalServer();

  const std::string& socket() const { return socket_; }
  // How it ended, as FAILED_PRECONDITION; OK: it goes on after that time.
  Status EndedWithin(Duration patience) const;

 private:
  LocalServer() = default;
  void RemoveLeftovers() const;

  const pid_t owner_ = ::getpid();  // a forked child's copy ends nothing
  std::string socket_;
  std::string data_dir_;
  UniqueFd stdin_;
  pid_t pid_ = -1;
};

// Of a connection to a private server that broke: the server does not come back, so what it was
// lost for is said instead of UNAVAILABLE, and nobody tries again.
// Ownership: `server` has to outlive it.
std::unique_ptr<Transport> MakeLocalTransport(std::unique_ptr<Transport> inner,
                                              const LocalServer& server);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_LOCAL_SERVER_H_
