#include "client/handshake.h"

#include "client/tls_probe.h"
#include "gpulayer/v1/admin.pb.h"
#include "model/limits.h"
#include "model/token.h"
#include "wire/version.h"

namespace gpulayer::client {
namespace {

Result<std::string> FindCa(const HostPort& address, const Hash& key) {
  GPULAYER_ASSIGN_OR_RETURN(
      const std::vector<PeerCertificate> chain,
      FetchChain(address, {limits::kConnectDeadline, limits::kAnswerDeadline}));
  for (const PeerCertificate& cert : chain) {
    if (cert.is_ca && cert.key == key) return cert.pem;
  }
  return PermissionDenied(
      "server " + ToString(address) +
      ": it is not the server that this token was made by (its key is another). Check the "
      "address, or get a token from this server.");
}

}  // namespace

Result<Introduction> Introduce(const std::string& address, const std::string& token,
                               const std::string& role, const std::string& subject) {
  GPULAYER_ASSIGN_OR_RETURN(const HostPort host, ParseAddress(address));
  GPULAYER_ASSIGN_OR_RETURN(const TokenText parsed, ParseToken(token));
  const Result<Hash> key = Hash::FromHex(parsed.ca_fingerprint);
  if (parsed.credential || !key.ok()) {
    return InvalidArgument(
        "token: this is the credential of a login or worker. A token is needed: make one with "
        "`gpulayer token create --role " +
        role + "`.");
  }
  // The server would say so too; this needs no connection.
  if (parsed.role != "admin" && parsed.role != role) {
    return PermissionDenied("token: it is for role " + parsed.role + ", and role " + role +
                            " is needed. Make one with `gpulayer token create --role " + role +
                            "`.");
  }
  Introduction out;
  out.address = ToString(host);
  GPULAYER_ASSIGN_OR_RETURN(out.ca_pem, FindCa(host, *key));

  const std::unique_ptr<Transport> transport =
      MakeGrpcTransport({"", out.address, out.ca_pem, FormatToken(parsed)});
  v1::ExchangeRequest request;
  *request.mutable_version() = wire::OwnVersion();
  request.set_subject(subject);
  request.set_wanted_role(role);
  v1::ExchangeReply reply;
  GPULAYER_RETURN_IF_ERROR(
      transport->Call(Method::kExchange, request, &reply,
                      {std::chrono::steady_clock::now() + limits::kCallDeadline, nullptr}));
  GPULAYER_RETURN_IF_ERROR(wire::CheckPeerVersion(reply.version(), "the server"));
  out.credential = reply.credential();
  out.role = reply.role();
  out.user = reply.user();
  out.server_uuid = reply.server().uuid();
  return out;
}

}  // namespace gpulayer::client
