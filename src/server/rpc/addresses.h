// Where to listen and what to tell others about it.
#ifndef GPULAYER_SERVER_RPC_ADDRESSES_H_
#define GPULAYER_SERVER_RPC_ADDRESSES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/fs.h"
#include "base/status.h"

namespace gpulayer::rpc {

struct HostPort {
  std::string host;  // without brackets; empty: every address
  int port = 0;
};
// "0.0.0.0:7461", "[::1]:0", "box.lan:7461", ":7461". INVALID_ARGUMENT names the text.
Result<HostPort> ParseHostPort(std::string_view text);
std::string FormatHostPort(const std::string& host, int port);

// Listening sockets, not blocking; port 0: one port for all of them, drawn by the kernel. Without a
// host, and of 0.0.0.0 and ::, every address of both families. FAILED_PRECONDITION: port in use.
Result<std::vector<UniqueFd>> OpenListeners(const HostPort& where);
// The same for a unix socket at `path`, made 0600. REQUIRES: nobody else can enter its folder, and
// nothing lies there.
Result<UniqueFd> OpenUnixListener(const std::string& path);
int PortOf(int listener);

// How other machines reach a listener on `host`: one entry for each of this machine's addresses
// that are not loopback if it listens on all of them, else the one; loopback if there is no other.
std::vector<std::string> ReachableAddresses(const std::string& host, int port);

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_ADDRESSES_H_
