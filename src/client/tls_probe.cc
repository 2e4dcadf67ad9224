#include "client/tls_probe.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fs.h"
#include "base/text.h"
#include "model/token.h"

namespace gpulayer::client {
namespace {

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

// A peer that hangs up while we write ends the process by SIGPIPE, unless the thread is deaf to it:
// what the host program does with the signal is not ours to change.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec at_once{};
    if (!was_pending_) {
      while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

// Of a handshake that ended with SSL_ERROR_SYSCALL or SSL_ERROR_SSL: no word of the peer's was
// wrong, it went away.
bool HungUp(int error) {
  return error == SSL_ERROR_SYSCALL || error == SSL_ERROR_ZERO_RETURN ||
         ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

struct Session {
  UniqueFd fd;
  SslCtx context;
  SslPtr ssl;
  long verify = X509_V_OK;  // what the handshake said of the chain
};

// With `ca_pem` empty nothing is verified.
Result<Session> Handshake(const HostPort& address, const std::string& ca_pem,
                          const Patience& patience) {
  Session s;
  const SteadyTime connect_by = std::chrono::steady_clock::now() + patience.connect;
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                            Resolve(address, connect_by, AskSystem, patience.interrupt));
  GPULAYER_ASSIGN_OR_RETURN(s.fd, ConnectAny(address, addresses, connect_by, patience.interrupt));
  const SteadyTime end = std::chrono::steady_clock::now() + patience.answer;
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
  SSL_set_tlsext_host_name(s.ssl.get(), kTlsServerName);
  if (!ca_pem.empty()) SSL_set1_host(s.ssl.get(), kTlsServerName);
  const unsigned char alpn[] = {2, 'h', '2'};
  SSL_set_alpn_protos(s.ssl.get(), alpn, sizeof alpn);
  const NoSigpipe deaf;
  for (;;) {
    ERR_clear_error();
    const int rc = SSL_connect(s.ssl.get());
    if (rc == 1) return s;
    const int error = SSL_get_error(s.ssl.get(), rc);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
      const short events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
      if (WaitForSocket(s.fd.get(), events, end, patience.interrupt)) continue;
      return Silent(ToString(address), patience.answer);
    }
    s.verify = SSL_get_verify_result(s.ssl.get());
    if (s.verify != X509_V_OK) return s;
    if (HungUp(error)) {
      return Unreachable(address,
                         "what listens there closes the connection at once. Is this the port of a "
                         "gpulayer server (7461 unless set), and its server running?");
    }
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

Status Silent(const std::string& server, Duration patience) {
  return Unavailable(
      "server " + server + ": it accepted the connection but did not answer within " +
      FormatDuration(patience) + ": the link is slow or the server is stuck. Try again.");
}

Result<std::vector<PeerCertificate>> FetchChain(const HostPort& address, const Patience& patience) {
  GPULAYER_ASSIGN_OR_RETURN(const Session session, Handshake(address, "", patience));
  std::vector<PeerCertificate> out;
  const STACK_OF(X509)* chain = SSL_get_peer_cert_chain(session.ssl.get());
  for (int i = 0; i < sk_X509_num(chain) && i < 10; ++i) {
    GPULAYER_ASSIGN_OR_RETURN(PeerCertificate cert, Describe(sk_X509_value(chain, i)));
    out.push_back(std::move(cert));
  }
  return out;
}

Status DiagnoseTls(const HostPort& address, const std::string& ca_pem, const Patience& patience) {
  const Result<Session> session = Handshake(address, ca_pem, patience);
  if (!session.ok()) return session.status();
  if (session->verify != X509_V_OK) {
    return PermissionDenied("server " + ToString(address) +
                            ": it is not the server this login was made with (" +
                            X509_verify_cert_error_string(session->verify) +
                            "). If it was set up anew, log in again with a token of the new one.");
  }
  return OkStatus();
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
    return OkStatus();
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
