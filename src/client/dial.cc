#include "client/dial.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "base/account_limits.h"
#include "base/mutex.h"
#include "base/text.h"
#include "base/thread.h"

namespace gpulayer::client {
namespace {

using std::chrono::milliseconds;

constexpr int kMostStuck = 8;  // resolvers that nobody waits for any more; a thread each
constexpr int kMaxPort = 65535;
constexpr int kSliceMs = 50;  // an interrupt is looked for this often

// Digits, not too many to be counted; what is no port for being too large is told apart.
std::optional<int> PortOf(const std::string& text) {
  const bool digits =
      !text.empty() && text.size() <= 9 &&
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? std::optional(std::stoi(text)) : std::nullopt;
}

SteadyTime Now() { return std::chrono::steady_clock::now(); }

int MillisLeft(SteadyTime end) {
  const auto left = std::chrono::duration_cast<milliseconds>(end - Now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

int Ask(const HostPort& address, int flags, std::vector<SocketAddress>* out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (rc != 0) return rc;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    SocketAddress one;
    one.size = std::min<socklen_t>(a->ai_addrlen, sizeof one.value);
    std::memcpy(&one.value, a->ai_addr, one.size);
    out->push_back(one);
  }
  ::freeaddrinfo(found);
  return 0;
}

// Shared by the one who asks and the thread that may answer after he has left.
struct Question {
  Mutex mutex;
  CondVar cv;
  bool answered GPULAYER_GUARDED_BY(mutex) = false;
  int rc GPULAYER_GUARDED_BY(mutex) = 0;
  std::vector<SocketAddress> addresses GPULAYER_GUARDED_BY(mutex);
};

std::atomic<int>& Asking() {
  static std::atomic<int> count{0};
  return count;
}

int ConnectOne(const SocketAddress& address, SteadyTime end, const InterruptPtr& interrupt,
               UniqueFd* out) {
  UniqueFd fd(::socket(address.value.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno;
  int error = 0;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.value), address.size) != 0) {
    error = errno;
  }
  if (error == EINPROGRESS) {
    socklen_t size = sizeof error;
    if (!WaitForSocket(fd.get(), POLLOUT, end, interrupt)) return ETIMEDOUT;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  }
  if (error == 0) *out = std::move(fd);
  return error;
}

}  // namespace

Result<HostPort> ParseAddress(const std::string& address) {
  const Status bad = InvalidArgument("address \"" + Printable(address) +
                                     "\": HOST:PORT is needed, like gpu-box:7461 or [::1]:7461");
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
  // The short forms of old (127.1), which the system's resolver takes and gRPC's does not.
  in_addr v4{};
  if (::inet_pton(AF_INET, out.host.c_str(), &v4) != 1 && ::inet_aton(out.host.c_str(), &v4) != 0) {
    char text[INET_ADDRSTRLEN];
    out.host = ::inet_ntop(AF_INET, &v4, text, sizeof text);
  }
  const std::optional<int> port = PortOf(out.port);
  if (out.host.empty() || !port || Printable(out.host) != out.host ||
      out.host.find_first_of(" /@") != std::string::npos) {
    return bad;
  }
  if (*port < 1 || *port > kMaxPort) {
    return InvalidArgument("address \"" + Printable(address) + "\": a port is 1 to 65535");
  }
  return out;
}

Status CheckListenAddress(const std::string& address) {
  const std::string what = "listen address \"" + Printable(address) + "\": ";
  const std::size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const std::optional<int> port =
      colon == std::string::npos ? std::nullopt : PortOf(address.substr(colon + 1));
  if (!port || (!host.empty() && !ParseAddress(host + ":1").ok())) {
    return InvalidArgument(what + "ADDRESS:PORT is needed, like 0.0.0.0:7461 or [::1]:7461");
  }
  if (*port > kMaxPort) return InvalidArgument(what + "a port is 1 to 65535, or 0 for a free one");
  return OkStatus();
}

std::string ToString(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + address.port;
}

bool IsLoopback(const std::string& address) {
  const Result<HostPort> parsed = ParseAddress(address);
  if (!parsed.ok()) return false;
  const std::string& host = parsed->host;
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

Status Unreachable(const HostPort& address, const std::string& why) {
  return Unavailable("server " + ToString(address) + ": " + why);
}

bool WaitForSocket(int fd, short events, SteadyTime end, const InterruptPtr& interrupt) {
  for (;;) {
    pollfd p{fd, events, 0};
    const int left = MillisLeft(end);
    const int n = ::poll(&p, 1, interrupt ? std::min(left, kSliceMs) : left);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (MillisLeft(end) == 0 || Thrown(interrupt)) return false;
  }
}

int AskSystem(const HostPort& address, std::vector<SocketAddress>* out) {
  return Ask(address, 0, out);
}

Result<std::vector<SocketAddress>> Resolve(const HostPort& address, SteadyTime end,
                                           const Resolver& resolver,
                                           const InterruptPtr& interrupt) {
  std::vector<SocketAddress> numeric;
  if (Ask(address, AI_NUMERICHOST, &numeric) == 0) return numeric;

  const Status silent = Unreachable(
      address,
      "the name server does not answer. Check the network, or give the address in numbers.");
  if (Asking().fetch_add(1) >= kMostStuck) {
    Asking().fetch_sub(1);
    return silent;
  }
  // getaddrinfo cannot be broken off, and waits for a dead name server as long as the system is
  // set to: the thread is left to itself then.
  const auto question = std::make_shared<Question>();
  std::thread asking = TryThread([question, address, resolver] {
    std::vector<SocketAddress> addresses;
    const int rc = resolver(address, &addresses);
    {
      const MutexLock lock(question->mutex);
      question->rc = rc;
      question->addresses = std::move(addresses);
      question->answered = true;
    }
    question->cv.NotifyAll();
    Asking().fetch_sub(1);
  });
  if (!asking.joinable()) {
    Asking().fetch_sub(1);
    return ResourceExhausted("look up " + address.host + ": no thread is to be had. " +
                             kRaiseLimits);
  }
  asking.detach();

  const MutexLock lock(question->mutex);
  while (!question->answered) {
    if (MillisLeft(end) == 0 || Thrown(interrupt)) return silent;
    const int left = MillisLeft(end);
    question->cv.WaitFor(question->mutex,
                         milliseconds(interrupt ? std::min(left, kSliceMs) : left));
  }
  if (question->rc != 0) {
    return Unreachable(address, std::string("the name is not known (") +
                                    ::gai_strerror(question->rc) + "). Check the address.");
  }
  return question->addresses;
}

Result<UniqueFd> ConnectAny(const HostPort& name, const std::vector<SocketAddress>& addresses,
                            SteadyTime end, const InterruptPtr& interrupt) {
  int error = ETIMEDOUT;
  for (std::size_t i = 0; i < addresses.size() && !Thrown(interrupt); ++i) {
    const SteadyTime now = Now();
    const auto share =
        std::max(end - now, SteadyTime::duration::zero()) / static_cast<int>(addresses.size() - i);
    UniqueFd fd;
    error = ConnectOne(addresses[i], now + share, interrupt, &fd);
    if (error == 0) return fd;
  }
  if (error == ECONNREFUSED) {
    return Unreachable(name,
                       "nobody listens there (connection refused). Check the address and that the "
                       "server is up.");
  }
  if (error == ETIMEDOUT) {
    return Unreachable(name,
                       "the address does not answer. Check it, and that no firewall is between.");
  }
  return Unreachable(name, std::string("cannot be reached (") + std::strerror(error) +
                               "). Check the address and the network.");
}

}  // namespace gpulayer::client
