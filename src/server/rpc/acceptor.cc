#include "server/rpc/acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "base/account_limits.h"
#include "base/log.h"
#include "base/thread.h"

namespace gpulayer::rpc {
namespace {

constexpr int kPauseMs = 100;
constexpr rlim_t kKeptForFiles = 64;

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::Start(std::vector<UniqueFd> listeners, Take take) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus("take connections", errno);
  std::unique_ptr<Acceptor> out(
      new Acceptor(std::move(listeners), std::move(take), std::move(wake)));
  out->thread_ = TryThread([acceptor = out.get()] { acceptor->Run(); });
  if (!out->thread_.joinable())
    return ResourceExhausted(std::string("take connections: no thread is to be had. ") +
                             kRaiseLimits);
  return out;
}

void Acceptor::Stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void Acceptor::Run() {
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  for (const UniqueFd& listener : listeners_) fds.push_back({listener.get(), POLLIN, 0});
  bool full = false;
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0) {
      if (errno == EINTR) continue;
      if (!Pause()) return;
      continue;
    }
    if (fds[0].revents != 0) return;
    bool waits = false;
    bool accepted = false;
    for (std::size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      if (HasRoom(fds[i].fd)) {
        AcceptFrom(fds[i].fd);
        accepted = true;
      } else {
        waits = true;
      }
    }
    if (waits && !full)
      LogWarning("too many connections and files are open: new ones have to wait");
    if (full && !waits) LogInfo("there is room for new connections again");
    full = waits;
    if (waits && !accepted && !Pause()) return;
  }
}

void Acceptor::AcceptFrom(int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    // Of a connection that has gone already nothing is left to do. The machine's own limits pass.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) (void)Pause();
    return;
  }
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // a unix socket has no such thing
  take_(listener, fd);
}

// The kernel gives the lowest number that is free. Whoever fills the port does not lock out this
// machine's own people, who come by the socket.
bool Acceptor::HasRoom(int listener) const {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  const UniqueFd next(fcntl(wake_.get(), F_DUPFD_CLOEXEC, 0));
  int family = 0;
  socklen_t size = sizeof family;
  getsockopt(listener, SOL_SOCKET, SO_DOMAIN, &family, &size);
  const rlim_t kept = std::min(kKeptForFiles, limit.rlim_cur / 4) / (family == AF_UNIX ? 2 : 1);
  return next.valid() && static_cast<rlim_t>(next.get()) < limit.rlim_cur - kept;
}

bool Acceptor::Pause() const {
  pollfd wake{wake_.get(), POLLIN, 0};
  return poll(&wake, 1, kPauseMs) <= 0;
}

}  // namespace gpulayer::rpc
