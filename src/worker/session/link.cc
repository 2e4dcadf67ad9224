#include "worker/session/link.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>

#include "model/limits.h"
#include "model/token.h"
#include "wire/status_code.h"

namespace gpulayer::worker {
namespace {

int Ms(std::chrono::milliseconds d) { return static_cast<int>(d.count()); }

}  // namespace

Result<ServerLink> OpenLink(const ServerAddress& address) {
  const std::string& server = address.server;
  const bool is_unix = server.starts_with("unix:");
  if (server.empty()) return InvalidArgument("connect: no server address");
  if (!is_unix && address.ca_pem.empty()) {
    return InvalidArgument("connect to " + server +
                           ": the server's CA certificate is missing. Join with a token first");
  }
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, static_cast<int>(limits::kMaxMessageBytes));
  args.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, static_cast<int>(limits::kMaxMessageBytes));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Ms(limits::kKeepalive));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Ms(limits::kKeepalive));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Workers of one process (tests, ephemeral servers) must not share a connection: a cut is one
  // worker's.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The session has its own back-off; the channel's is short, so that it never adds to it. The
  // minimum is also how long one attempt to connect may take.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Ms(limits::kAnswerDeadline));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);

  ServerLink link{server, address.credential, nullptr, std::make_shared<DropFolder>()};
  if (is_unix) {
    link.channel = grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), args);
    return link;
  }
  args.SetSslTargetNameOverride(kTlsServerName);
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = address.ca_pem;
  link.channel = grpc::CreateCustomChannel(server, grpc::SslCredentials(ssl), args);
  return link;
}

void Authorise(const ServerLink& link, grpc::ClientContext& context) {
  if (!link.credential.empty()) {
    context.AddMetadata("authorization", "Bearer " + link.credential);
  }
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  return {wire::FromWireCode(static_cast<int>(status.error_code())), status.error_message()};
}

}  // namespace gpulayer::worker
