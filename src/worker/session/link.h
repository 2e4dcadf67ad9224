// The way to one server: a channel that connects by itself, and the credential of every call.
//
// Threads:   values; any thread may call on the channel.
#ifndef GPULAYER_WORKER_SESSION_LINK_H_
#define GPULAYER_WORKER_SESSION_LINK_H_

#include <memory>
#include <string>

#include "base/status.h"

namespace grpc {
class Channel;
class ClientContext;
class Status;
}  // namespace grpc

namespace gpulayer::worker {

struct ServerAddress {
  std::string server;      // "unix:/path" or "host:port"
  std::string ca_pem;      // empty on unix
  std::string credential;  // empty on unix
};

struct ServerLink {
  std::string server;
  std::string credential;
  std::shared_ptr<grpc::Channel> channel;
};

// Connects later, on first use. INVALID_ARGUMENT: no address, or TCP without the server's CA.
Result<ServerLink> OpenLink(const ServerAddress& address);

// For every call on the link.
void Authorise(const ServerLink& link, grpc::ClientContext& context);
Status FromGrpc(const grpc::Status& status);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_LINK_H_
