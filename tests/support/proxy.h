// A relay between two of our parts that misbehaves on command: the network of a test.
//
// Threads:   one of its own; every method may be called from any thread.
// Blocking:  a command has taken effect when it returns (milliseconds); nothing else waits.
// Ownership: the destructor closes every connection and joins the thread.
// Errors:    Start() says what could not be bound; a target that refuses closes the one connection.
#ifndef GPULAYER_TESTS_SUPPORT_PROXY_H_
#define GPULAYER_TESTS_SUPPORT_PROXY_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace gpulayer::testing {

class Proxy {
 public:
  // Up is from the one that dialled the proxy to the target; replies go down.
  enum class Direction { kUp, kDown };

  // Addresses are "127.0.0.1:PORT" or "unix:/path". The default listens on a free port.
  static Result<std::unique_ptr<Proxy>> Start(const std::string& target,
                                              const std::string& listen = "127.0.0.1:0");
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  const std::string& address() const;  // what to dial instead of the target; the real port
  int port() const;                    // 0 for a unix socket

  // Bytes stop where they are in both directions; connections stay open and new ones are taken, as
  // on a link whose packets are lost.
  void Stall();
  // Resets every connection, and each new one at once, as from a machine that has gone.
  void Cut();
  // Resets what is open now; new connections pass.
  void CutOnce();
  // Bytes of that direction are read and thrown away; those of the other pass. A connection that
  // lost bytes this way is reset by Heal(), since its stream can not be whole again.
  void Drop(Direction direction);
  // Each chunk waits this long, in each direction, in order. 0: off.
  void Delay(std::chrono::milliseconds delay);
  // A connection without a byte either way for this long is reset, as by a NAT table. 0: off.
  void CloseIdle(std::chrono::milliseconds idle);
  // Ends Stall, Cut and Drop; what was held back by Stall goes on. Delay and CloseIdle stay.
  void Heal();
  // New connections go there: a server that came back on another port.
  Status Retarget(const std::string& target);

  int accepted() const;                            // connections so far
  int open() const;                                // connections now
  std::int64_t passed(Direction direction) const;  // bytes handed on, counted just after

 private:
  class Relay;
  explicit Proxy(std::unique_ptr<Relay> relay);
  std::unique_ptr<Relay> relay_;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_PROXY_H_
