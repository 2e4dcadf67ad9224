#include "server/rpc/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

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

// Not valid: errno says why.
UniqueFd Listen(const sockaddr* address, socklen_t size) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;
  const int one = 1;
  const int zero = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const bool any =
      address->sa_family == AF_INET6 &&
      IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  if (any) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
  if (bind(fd.get(), address, size) == 0 && listen(fd.get(), SOMAXCONN) == 0) return fd;
  const int error = errno;
  fd.Reset();
  errno = error;
  return fd;
}

Status ListenError(const std::string& shown, const std::string& port, int error) {
  switch (error) {
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
    default: return ErrnoStatus("listen on " + shown, error);
  }
}

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

int PortOf(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Result<std::vector<UniqueFd>> OpenListeners(const HostPort& where) {
  const bool every = where.host.empty() || where.host == "0.0.0.0" || where.host == "::";
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(where.port);
  const int error = getaddrinfo(where.host.empty() ? "0.0.0.0" : where.host.c_str(), port.c_str(),
                                &hints, &found);
  const std::string shown = FormatHostPort(where.host, where.port);
  if (error != 0) {
    return InvalidArgument("listen on " + shown + ": " + gai_strerror(error) +
                           ". Give an address of this machine, or 0.0.0.0 for all of them.");
  }
  const std::unique_ptr<addrinfo, FreeInfo> infos(found);
  std::vector<UniqueFd> out;
  if (every) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<std::uint16_t>(where.port));
    UniqueFd fd = Listen(reinterpret_cast<const sockaddr*>(&any), sizeof any);
    if (fd.valid()) {
      out.push_back(std::move(fd));
      return out;
    }
    if (errno == EADDRINUSE || errno == EACCES) return ListenError(shown, port, errno);
    // A machine without the younger family.
  }
  for (addrinfo* info = infos.get(); info != nullptr; info = info->ai_next) {
    if (!out.empty() && where.port == 0) {
      const std::uint16_t drawn = htons(static_cast<std::uint16_t>(PortOf(out.front().get())));
      if (info->ai_family == AF_INET) {
        reinterpret_cast<sockaddr_in*>(info->ai_addr)->sin_port = drawn;
      } else if (info->ai_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6*>(info->ai_addr)->sin6_port = drawn;
      }
    }
    UniqueFd fd = Listen(info->ai_addr, info->ai_addrlen);
    if (fd.valid()) {
      out.push_back(std::move(fd));
    } else if (out.empty()) {
      return ListenError(shown, port, errno);
    }  // a name may have an address that this machine does not use
  }
  return out;
}

Result<UniqueFd> OpenUnixListener(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return ErrnoStatus("listen on " + path, ENAMETOOLONG);
  }
  path.copy(address.sun_path, path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    return ErrnoStatus("listen on " + path, errno);
  }
  return fd;
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
