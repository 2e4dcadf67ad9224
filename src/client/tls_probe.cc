#include "client/tls_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/fs.h"
#include "base/text.h"

namespace gpulayer::client {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};
using SslCtx = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, Deleter<SSL_free>>;
using BioPtr = std::unique_ptr<BIO, Deleter<BIO_free>>;
using X509Ptr = std::unique_ptr<X509, Deleter<X509_free>>;
using AddrPtr = std::unique_ptr<addrinfo, Deleter<freeaddrinfo>>;

int MillisLeft(SteadyTime end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

bool WaitFor(int fd, short events, SteadyTime end) {
  for (;;) {
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, MillisLeft(end));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

Status Unreachable(const HostPort& address, const std::string& why) {
  return Unavailable("server " + ToString(address) + ": " + why);
}

Result<UniqueFd> ConnectTcp(const HostPort& address, SteadyTime end) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int rc = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found)) {
    return Unreachable(address, std::string("the name is not known (") + ::gai_strerror(rc) +
                                    "). Check the address.");
  }
  AddrPtr addresses(found);
  int error = ETIMEDOUT;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    UniqueFd fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) continue;
    error = 0;
    if (::connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        if (!WaitFor(fd.get(), POLLOUT, end)) {
          error = ETIMEDOUT;
        } else if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
          error = errno;
        }
      }
    }
    if (error == 0) return fd;
  }
  if (error == ECONNREFUSED) {
    return Unreachable(address,
                       "nobody listens there (connection refused). Check the address and that the "
                       "server is up.");
  }
  if (error == ETIMEDOUT) {
    return Unreachable(address,
                       "the address does not answer. Check it, and that no firewall is between.");
  }
  return Unreachable(address, std::string("cannot be reached (") + std::strerror(error) +
                                  "). Check the address and the network.");
}

struct Session {
  UniqueFd fd;
  SslCtx context;
  SslPtr ssl;
  long verify = X509_V_OK;  // what the handshake said of the chain
};

// With `ca_pem` empty nothing is verified.
Result<Session> Handshake(const HostPort& address, const std::string& ca_pem, SteadyTime end) {
  Session s;
  GPULAYER_ASSIGN_OR_RETURN(s.fd, ConnectTcp(address, end));
  s.context.reset(SSL_CTX_new(TLS_client_method()));
  if (!s.context) return Internal("TLS: no context");
  SSL_CTX_set_min_proto_version(s.context.get(), TLS1_2_VERSION);
  if (!ca_pem.empty()) {
    BioPtr bio(BIO_new_mem_buf(ca_pem.data(), static_cast<int>(ca_pem.size())));
    X509Ptr ca(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (!ca) return DataLoss("the kept CA certificate cannot be read. Log in again.");
    X509_STORE_add_cert(SSL_CTX_get_cert_store(s.context.get()), ca.get());
    SSL_CTX_set_verify(s.context.get(), SSL_VERIFY_PEER, nullptr);
  }
  s.ssl.reset(SSL_new(s.context.get()));
  if (!s.ssl) return Internal("TLS: no session");
  SSL_set_fd(s.ssl.get(), s.fd.get());
  SSL_set_tlsext_host_name(s.ssl.get(), kServerName);
  if (!ca_pem.empty()) SSL_set1_host(s.ssl.get(), kServerName);
  const unsigned char alpn[] = {2, 'h', '2'};
  SSL_set_alpn_protos(s.ssl.get(), alpn, sizeof alpn);
  for (;;) {
    ERR_clear_error();
    const int rc = SSL_connect(s.ssl.get());
    if (rc == 1) return s;
    const int error = SSL_get_error(s.ssl.get(), rc);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
      const short events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
      if (WaitFor(s.fd.get(), events, end)) continue;
      return Unreachable(address,
                         "something listens there but does not speak TLS. Is this the port of a "
                         "gpulayer server?");
    }
    s.verify = SSL_get_verify_result(s.ssl.get());
    if (s.verify != X509_V_OK) return s;
    return Unreachable(address,
                       "what listens there answers without TLS. Is this the port of a gpulayer "
                       "server (7461 unless set)?");
  }
}

Result<PeerCertificate> Describe(X509* cert) {
  PeerCertificate out;
  unsigned char* der = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &der);
  if (size <= 0) return DataLoss("certificate: its public key cannot be read");
  out.key = Hash::Of({reinterpret_cast<const char*>(der), static_cast<std::size_t>(size)});
  OPENSSL_free(der);
  out.is_ca = X509_check_ca(cert) == 1;
  BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), cert);
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio.get(), &data);
  out.pem.assign(data, static_cast<std::size_t>(n));
  return out;
}

}  // namespace

Result<HostPort> ParseAddress(const std::string& address) {
  const Status bad = InvalidArgument("address \"" + Printable(address) +
                                     "\": not of the form HOST:PORT. Example: gpu-box:7461.");
  HostPort out;
  out.port = "7461";
  std::string rest;
  if (!address.empty() && address[0] == '[') {
    const std::size_t end = address.find(']');
    if (end == std::string::npos) return bad;
    out.host = address.substr(1, end - 1);
    rest = address.substr(end + 1);
  } else {
    const std::size_t colon = address.find(':');
    out.host = address.substr(0, colon);
    if (colon != std::string::npos) rest = address.substr(colon);
  }
  if (!rest.empty()) {
    if (rest[0] != ':') return bad;
    out.port = rest.substr(1);
  }
  const bool digits =
      !out.port.empty() && out.port.size() <= 5 &&
      std::all_of(out.port.begin(), out.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (out.host.empty() || !digits || std::stoi(out.port) < 1 || std::stoi(out.port) > 65535 ||
      Printable(out.host) != out.host || out.host.find_first_of(" /@") != std::string::npos) {
    return bad;
  }
  return out;
}

std::string ToString(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + address.port;
}

Result<std::vector<PeerCertificate>> FetchChain(const HostPort& address, Duration patience) {
  GPULAYER_ASSIGN_OR_RETURN(const Session session,
                            Handshake(address, "", std::chrono::steady_clock::now() + patience));
  std::vector<PeerCertificate> out;
  const STACK_OF(X509)* chain = SSL_get_peer_cert_chain(session.ssl.get());
  for (int i = 0; i < sk_X509_num(chain) && i < 10; ++i) {
    GPULAYER_ASSIGN_OR_RETURN(PeerCertificate cert, Describe(sk_X509_value(chain, i)));
    out.push_back(std::move(cert));
  }
  return out;
}

Status DiagnoseTls(const HostPort& address, const std::string& ca_pem, Duration patience) {
  const Result<Session> session =
      Handshake(address, ca_pem, std::chrono::steady_clock::now() + patience);
  if (!session.ok()) return session.status();
  if (session->verify != X509_V_OK) {
    return PermissionDenied("server " + ToString(address) +
                            ": it is not the server this login was made with (" +
                            X509_verify_cert_error_string(session->verify) +
                            "). If it was set up anew, log in again with a token of the new one.");
  }
  return Unreachable(address, "the connection was lost. Try again.");
}

Status DiagnoseSocket(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return InvalidArgument("socket " + path + ": the path is over " +
                           std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (fd.valid() &&
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return Unavailable("server at " + path + ": the connection was lost. Try again.");
  }
  if (errno == EACCES) {
    return PermissionDenied("server at " + path +
                            ": its socket belongs to another user. Log in with a token instead.");
  }
  if (errno == EAGAIN) {
    return Unavailable("server at " + path + ": it is too busy to answer. Try again.");
  }
  return Unavailable("the server on this machine is not running (" + path + ": " +
                     std::strerror(errno) + "). Run `gpulayer up`.");
}

}  // namespace gpulayer::client
