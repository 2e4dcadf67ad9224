// The Transport over one gRPC channel.
#ifndef GPULAYER_CLIENT_GRPC_TRANSPORT_H_
#define GPULAYER_CLIENT_GRPC_TRANSPORT_H_

#include <memory>
#include <string>

#include "client/transport.h"

namespace gpulayer::client {

struct Endpoint {
  std::string socket;      // path of a unix socket; the rest is empty then
  std::string address;     // "host:port"
  std::string ca_pem;      // the only CA that is trusted
  std::string credential;  // bearer: a credential or, for the exchange, a token
};
std::string ToString(const Endpoint& endpoint);  // for messages

// Makes no connection yet. The first call connects, within limits::kConnectDeadline, and says what
// is wrong if it cannot.
std::unique_ptr<Transport> MakeGrpcTransport(Endpoint endpoint);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_GRPC_TRANSPORT_H_
