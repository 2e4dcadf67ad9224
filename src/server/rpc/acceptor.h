// Takes connections for a gRPC server. gRPC's own listener never takes another one once the process
// has run out of descriptors, though they are free a moment later.
#ifndef GPULAYER_SERVER_RPC_ACCEPTOR_H_
#define GPULAYER_SERVER_RPC_ACCEPTOR_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/fs.h"
#include "base/status.h"

namespace gpulayer::rpc {

// Threads:   one of its own, which calls `take`; the constructor starts it, Stop() joins it.
// Ownership: `take` owns the descriptor that it is given: a connection, not blocking.
// Blocking:  Stop() until `take` has returned.
// Errors:    without room for a connection it is left to wait in the kernel until there is some. A
//            part of the descriptors is kept for files.
class Acceptor {
 public:
  using Take = std::function<void(int listener, int connection)>;
  static Result<std::unique_ptr<Acceptor>> Start(std::vector<UniqueFd> listeners, Take take);
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  void Stop();  // may be called twice

 private:
  Acceptor(std::vector<UniqueFd> listeners, Take take, UniqueFd wake)
      : listeners_(std::move(listeners)), take_(std::move(take)), wake_(std::move(wake)) {}
  void Run();
  void AcceptFrom(int listener);
  bool HasRoom(int listener) const;
  bool Pause() const;  // false: it was told to stop

  const std::vector<UniqueFd> listeners_;
  const Take take_;
  const UniqueFd wake_;
  std::thread thread_;
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_ACCEPTOR_H_
