// A TCP connection by hand, with an end to every wait: the name's addresses, then the first of them
// that answers.
//
// Threads: any.
#ifndef GPULAYER_CLIENT_DIAL_H_
#define GPULAYER_CLIENT_DIAL_H_

#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/status.h"
#include "client/interrupt_state.h"

namespace gpulayer::client {

struct HostPort {
  std::string host;
  std::string port;
};
// "host:port" or "[v6]:port"; without a port 7461. INVALID_ARGUMENT.
Result<HostPort> ParseAddress(const std::string& address);
std::string ToString(const HostPort& address);

// "HOST:PORT" to listen on: the host may be empty (all addresses), the port 0 (a free one).
// INVALID_ARGUMENT.
Status CheckListenAddress(const std::string& address);

// Whether "HOST:PORT" is of this machine for itself: localhost, 127.x.y.z or [::1].
bool IsLoopback(const std::string& address);

// UNAVAILABLE that names the server.
Status Unreachable(const HostPort& address, const std::string& why);

using SteadyTime = std::chrono::steady_clock::time_point;

// False: nothing of `events` by then, or interrupted.
bool WaitForSocket(int fd, short events, SteadyTime end, const InterruptPtr& interrupt = nullptr);

struct SocketAddress {
  sockaddr_storage value{};
  socklen_t size = 0;
};

// What getaddrinfo says: 0 and the addresses, or its error code. May take as long as it likes.
using Resolver = std::function<int(const HostPort&, std::vector<SocketAddress>*)>;
int AskSystem(const HostPort& address, std::vector<SocketAddress>* out);

// Blocking: until `end`, or a twentieth of a second after the interrupt; what is said then is of no
//           use. A resolver that is slower goes on in a thread nobody waits for; when many
//           are stuck like that, no more are asked.
// Errors:   UNAVAILABLE: the name is not known, or the name server does not answer.
Result<std::vector<SocketAddress>> Resolve(const HostPort& address, SteadyTime end,
                                           const Resolver& resolver = AskSystem,
                                           const InterruptPtr& interrupt = nullptr);

// Tries one after the other; each may take its share of the time that is left, so that a dead one
// in front does not hide a good one.
// Blocking: as Resolve.
// Errors:   UNAVAILABLE: nobody listens, no answer, no way there (of the last one).
Result<UniqueFd> ConnectAny(const HostPort& name, const std::vector<SocketAddress>& addresses,
                            SteadyTime end, const InterruptPtr& interrupt = nullptr);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_DIAL_H_
