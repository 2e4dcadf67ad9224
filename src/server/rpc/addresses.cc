#include "server/rpc/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

#include "base/fs.h"
#include "base/text.h"

namespace gpulayer::rpc {
namespace {

struct FreeInfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

}  // namespace

Result<HostPort> ParseHostPort(std::string_view text) {
  const Status bad = InvalidArgument("listen address \"" + Printable(text) +
                                     "\": HOST:PORT is needed, like 0.0.0.0:7461 or [::1]:7461");
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad;
  HostPort out;
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad;
  }
  out.host = host;
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size() || out.port < 0 || out.port > 65535)
    return bad;
  return out;
}

std::string FormatHostPort(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Status ProbeListen(const HostPort& where) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(where.port);
  const int error =
      getaddrinfo(where.host.empty() ? nullptr : where.host.c_str(), port.c_str(), &hints, &found);
  const std::string shown = FormatHostPort(where.host, where.port);
  if (error != 0) {
    return InvalidArgument("listen on " + shown + ": " + gai_strerror(error) +
                           ". Give an address of this machine, or 0.0.0.0 for all of them.");
  }
  const std::unique_ptr<addrinfo, FreeInfo> infos(found);
  const UniqueFd fd(socket(infos->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus("listen on " + shown, errno);
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd.get(), infos->ai_addr, infos->ai_addrlen) == 0 && listen(fd.get(), 1) == 0)
    return OkStatus();
  switch (errno) {
    case EADDRINUSE:
      return FailedPrecondition(
          "listen on " + shown + ": port " + port +
          " is in use by another program. Stop it, or choose another port with --listen.");
    case EACCES:
      return PermissionDenied(
          "listen on " + shown +
          ": not allowed. Ports below 1024 need root; choose another with --listen.");
    case EADDRNOTAVAIL:
      return InvalidArgument(
          "listen on " + shown +
          ": this machine does not have that address. Use one that it has, or 0.0.0.0.");
    default: return ErrnoStatus("listen on " + shown, errno);
  }
}

std::vector<std::string> ReachableAddresses(const std::string& host, int port) {
  if (!host.empty() && host != "0.0.0.0" && host != "::") return {FormatHostPort(host, port)};
  std::vector<std::string> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 ||
          (one->ifa_flags & IFF_LOOPBACK) != 0)
        continue;
      char text[INET6_ADDRSTRLEN] = "";
      if (one->ifa_addr->sa_family == AF_INET) {
        inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr, text,
                  sizeof text);
      } else if (one->ifa_addr->sa_family == AF_INET6 && host != "0.0.0.0") {
        const in6_addr& v6 = reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&v6)) continue;  // means nothing without its interface's name
        inet_ntop(AF_INET6, &v6, text, sizeof text);
      } else {
        continue;
      }
      out.push_back(FormatHostPort(text, port));
    }
    freeifaddrs(list);
  }
  if (out.empty()) out.push_back(FormatHostPort("127.0.0.1", port));
  return out;
}

}  // namespace gpulayer::rpc
