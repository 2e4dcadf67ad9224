// A TCP port of the test's own that behaves as badly as is asked for.
#ifndef GPULAYER_TESTS_CLIENT_LOCAL_LISTENER_H_
#define GPULAYER_TESTS_CLIENT_LOCAL_LISTENER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "base/fs.h"
#include "client/dial.h"

namespace gpulayer::client {

class LocalListener {
 public:
  explicit LocalListener(int queue) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd_.get(), reinterpret_cast<sockaddr*>(&any), sizeof any);
    ::listen(fd_.get(), queue);
  }

  SocketAddress address() const {
    SocketAddress out;
    out.size = sizeof out.value;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&out.value), &out.size);
    return out;
  }
  int port() const { return ntohs(reinterpret_cast<const sockaddr_in&>(address().value).sin_port); }
  UniqueFd Accept() { return UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

  // Who comes after these hears nothing.
  std::vector<UniqueFd> Fill() {
    std::vector<UniqueFd> out;
    const SocketAddress to = address();
    for (int i = 0; i < 3; ++i) {
      out.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(out.back().get(), reinterpret_cast<const sockaddr*>(&to.value), to.size);
    }
    return out;
  }

 private:
  UniqueFd fd_;
};

}  // namespace gpulayer::client

#endif  // GPULAYER_TESTS_CLIENT_LOCAL_LISTENER_H_
