// A private server for one client: `gpulayer-server --ephemeral`, which makes and removes a data
// directory of its own and says on its standard output where its socket is.
#ifndef GPULAYER_CLIENT_LOCAL_SERVER_H_
#define GPULAYER_CLIENT_LOCAL_SERVER_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "base/fs.h"
#include "base/status.h"
#include "client/interrupt_state.h"

namespace gpulayer::client {

// Threads:   Start from any; one owner.
// Ownership: the child lives as long as the pipe to its standard input is open, so it ends with
// this
//            process however that ends. The destructor closes the pipe and waits for
//            the end.
// Blocking:  Start until the server answers, 10 s at most. The destructor about 8 s at most.
class LocalServer {
 public:
  static Result<std::unique_ptr<LocalServer>> Start(const InterruptPtr& interrupt);
  ~LocalServer();

  const std::string& socket() const { return socket_; }

 private:
  LocalServer() = default;
  std::string socket_;
  UniqueFd stdin_;
  pid_t pid_ = -1;
};

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_LOCAL_SERVER_H_
