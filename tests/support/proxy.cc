#include "support/proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/mutex.h"

namespace gpulayer::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kBufferLimit = 256 * 1024;  // a direction reads no further ahead than this
constexpr std::size_t kReadSize = 64 * 1024;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family = AF_UNSPEC;
};

Result<Address> Parse(const std::string& text) {
  Address address;
  if (text.rfind("unix:", 0) == 0) {
    const std::string path = text.substr(5);
    auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
    if (path.empty() || path.size() >= sizeof(un->sun_path)) {
      return InvalidArgument("proxy address " + text + ": a path of 1 to 107 bytes is needed");
    }
    un->sun_family = AF_UNIX;
    std::memcpy(un->sun_path, path.c_str(), path.size() + 1);
    address.size = sizeof(sockaddr_un);
    address.family = AF_UNIX;
    return address;
  }
  const std::size_t colon = text.rfind(':');
  auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (colon == std::string::npos ||
      inet_pton(AF_INET, text.substr(0, colon).c_str(), &in->sin_addr) != 1) {
    return InvalidArgument("proxy address " + text + ": write 127.0.0.1:PORT or unix:/path");
  }
  in->sin_family = AF_INET;
  in->sin_port = htons(static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)));
  address.size = sizeof(sockaddr_in);
  address.family = AF_INET;
  return address;
}

UniqueFd NewSocket(int family) {
  return UniqueFd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The other side sees a reset, not an orderly end.
void ResetOnClose(int fd) {
  const linger now{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

struct Chunk {
  Clock::time_point due;
  std::string data;
};

// One direction of one connection.
struct Flow {
  int from = -1;
  int to = -1;
  std::deque<Chunk> chunks;
  std::size_t buffered = 0;
  bool ended = false;   // the source sent its end
  bool closed = false;  // and the target was told
};

struct Connection {
  UniqueFd client;
  UniqueFd target;
  std::array<Flow, 2> flows;  // up, down
  Clock::time_point last_byte = Clock::now();
  bool connecting = false;
  bool lost_bytes = false;
  bool dead = false;
};

struct Settings {
  bool stall = false;
  bool cut = false;
  std::array<bool, 2> drop{};
  milliseconds delay{0};
  milliseconds idle{0};
  int resets = 0;        // counts CutOnce and Cut
  int lossy_resets = 0;  // counts Heal
  Address target;
};

}  // namespace

class Proxy::Relay {
 public:
  Relay(UniqueFd listener, UniqueFd wake_read, UniqueFd wake_write, std::string address, int port,
        const Address& target)
      : listener_(std::move(listener)),
        wake_read_(std::move(wake_read)),
        wake_write_(std::move(wake_write)),
        address_(std::move(address)),
        port_(port) {
    wanted_.target = target;
    settings_ = wanted_;
    thread_ = std::thread([this] { Run(); });
  }

  ~Relay() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    Wake();
    thread_.join();
    if (address_.rfind("unix:", 0) == 0) unlink(address_.c_str() + 5);
  }

  // Changes the settings and returns once the thread works by them.
  template <typename Change>
  void Command(Change change) {
    MutexLock lock(mutex_);
    change(wanted_);
    const std::int64_t mine = ++wanted_version_;
    Wake();
    while (applied_version_ < mine) applied_.Wait(mutex_);
  }

  const std::string& address() const { return address_; }
  int port() const { return port_; }
  int accepted() const { return accepted_; }
  int open() const { return open_; }
  std::int64_t passed(Direction d) const { return passed_[static_cast<std::size_t>(d)]; }

 private:
  void Wake() {
    const char byte = 0;
    // A full pipe means that the thread is being woken anyway.
    if (write(wake_write_.get(), &byte, 1) < 0) return;
  }

  void Run() {
    while (TakeCommands()) {
      const Clock::time_point now = Clock::now();
      for (Connection& c : connections_) Expire(c, now);
      connections_.remove_if([](const Connection& c) { return c.dead; });
      open_ = static_cast<int>(connections_.size());
      Wait(now);
    }
    connections_.clear();
  }

  bool TakeCommands() {
    MutexLock lock(mutex_);
    const bool reset = wanted_.resets != settings_.resets;
    const bool reset_lossy = wanted_.lossy_resets != settings_.lossy_resets;
    settings_ = wanted_;
    for (Connection& c : connections_) {
      if (reset || (reset_lossy && c.lost_bytes)) Kill(c);
    }
    connections_.remove_if([](const Connection& c) { return c.dead; });
    open_ = static_cast<int>(connections_.size());
    applied_version_ = wanted_version_;
    applied_.NotifyAll();
    return !stop_;
  }

  static void Kill(Connection& c) {
    ResetOnClose(c.client.get());
    ResetOnClose(c.target.get());
    c.dead = true;
  }

  void Expire(Connection& c, Clock::time_point now) {
    if (settings_.idle > milliseconds(0) && now - c.last_byte >= settings_.idle) Kill(c);
  }

  bool MayRead(const Connection& c, const Flow& f) const {
    return !settings_.stall && !c.connecting && !f.ended && f.buffered < kBufferLimit;
  }
  bool MayWrite(const Connection& c, const Flow& f, Clock::time_point now) const {
    if (settings_.stall || c.connecting || f.closed) return false;
    return f.chunks.empty() ? f.ended : f.chunks.front().due <= now;
  }

  void Wait(Clock::time_point now) {
    std::vector<pollfd> polls = {{listener_.get(), POLLIN, 0}, {wake_read_.get(), POLLIN, 0}};
    Clock::time_point deadline = now + std::chrono::hours(1);
    for (Connection& c : connections_) {
      pollfd client{c.client.get(), 0, 0};
      pollfd target{c.target.get(), 0, 0};
      if (c.connecting) target.events |= POLLOUT;
      for (std::size_t i = 0; i < 2; ++i) {
        pollfd& from = i == 0 ? client : target;
        pollfd& to = i == 0 ? target : client;
        if (MayRead(c, c.flows[i])) from.events |= POLLIN;
        if (MayWrite(c, c.flows[i], now)) to.events |= POLLOUT;
        if (!settings_.stall && !c.flows[i].chunks.empty()) {
          deadline = std::min(deadline, std::max(now, c.flows[i].chunks.front().due));
        }
      }
      if (settings_.idle > milliseconds(0)) {
        deadline = std::min(deadline, c.last_byte + settings_.idle);
      }
      // Nothing asked of it: an error that poll always reports would make the loop spin.
      if (client.events == 0) client.fd = -1;
      if (target.events == 0) target.fd = -1;
      polls.push_back(client);
      polls.push_back(target);
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - now).count();
    poll(polls.data(), polls.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (polls[1].revents != 0) DrainWake();
    std::size_t at = 2;
    for (Connection& c : connections_) {
      Serve(c, polls[at].revents, polls[at + 1].revents);
      at += 2;
    }
    if (polls[0].revents != 0) Accept();
  }

  void DrainWake() {
    std::array<char, 64> bytes;
    while (read(wake_read_.get(), bytes.data(), bytes.size()) > 0) {
    }
  }

  void Accept() {
    for (;;) {
      UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client.valid()) return;
      ++accepted_;
      ResetOnClose(client.get());  // in force until it is known to go anywhere
      if (settings_.cut) continue;
      Connection c;
      c.client = std::move(client);
      c.target = NewSocket(settings_.target.family);
      if (!c.target.valid()) continue;
      const int rc =
          connect(c.target.get(), reinterpret_cast<const sockaddr*>(&settings_.target.storage),
                  settings_.target.size);
      if (rc != 0 && errno != EINPROGRESS) continue;
      c.connecting = rc != 0;
      if (!c.connecting) Connected(c);
      c.flows[0] = {c.client.get(), c.target.get(), {}, 0, false, false};
      c.flows[1] = {c.target.get(), c.client.get(), {}, 0, false, false};
      connections_.push_back(std::move(c));
      ++open_;
    }
  }

  static void Connected(Connection& c) {
    c.connecting = false;
    const linger orderly{0, 0};
    const int on = 1;
    setsockopt(c.client.get(), SOL_SOCKET, SO_LINGER, &orderly, sizeof orderly);
    setsockopt(c.client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(c.target.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  void Serve(Connection& c, short client_events, short target_events) {
    if (c.connecting) {
      if (target_events == 0) return;
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(c.target.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        Kill(c);
        return;
      }
      Connected(c);
      return;
    }
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < 2 && !c.dead; ++i) {
      const short from = i == 0 ? client_events : target_events;
      const short to = i == 0 ? target_events : client_events;
      if (from != 0 && MayRead(c, c.flows[i])) Read(c, i, now);
      if (!c.dead && to != 0 && MayWrite(c, c.flows[i], now)) Write(c, i, now);
    }
    if (c.flows[0].closed && c.flows[1].closed) c.dead = true;
  }

  void Read(Connection& c, std::size_t direction, Clock::time_point now) {
    Flow& f = c.flows[direction];
    std::string data(kReadSize, '\0');
    const ssize_t n = recv(f.from, data.data(), data.size(), 0);
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) Kill(c);
      return;
    }
    if (n == 0) {
      f.ended = true;
      return;
    }
    c.last_byte = now;
    if (settings_.drop[direction]) {
      c.lost_bytes = true;
      return;
    }
    data.resize(static_cast<std::size_t>(n));
    f.buffered += data.size();
    f.chunks.push_back({now + settings_.delay, std::move(data)});
  }

  void Write(Connection& c, std::size_t direction, Clock::time_point now) {
    Flow& f = c.flows[direction];
    while (!f.chunks.empty() && f.chunks.front().due <= now) {
      std::string& data = f.chunks.front().data;
      const ssize_t n = send(f.to, data.data(), data.size(), MSG_NOSIGNAL);
      if (n < 0) {
        if (errno != EAGAIN && errno != EINTR) Kill(c);
        return;
      }
      c.last_byte = now;
      passed_[direction] += n;
      f.buffered -= static_cast<std::size_t>(n);
      data.erase(0, static_cast<std::size_t>(n));
      if (!data.empty()) return;
      f.chunks.pop_front();
    }
    if (f.ended && f.chunks.empty() && !f.closed) {
      shutdown(f.to, SHUT_WR);
      f.closed = true;
    }
  }

  const UniqueFd listener_;
  const UniqueFd wake_read_;
  const UniqueFd wake_write_;
  const std::string address_;
  const int port_;

  std::atomic<int> accepted_{0};
  std::atomic<int> open_{0};
  std::array<std::atomic<std::int64_t>, 2> passed_{};

  Mutex mutex_;
  CondVar applied_;
  Settings wanted_ GPULAYER_GUARDED_BY(mutex_);
  std::int64_t wanted_version_ GPULAYER_GUARDED_BY(mutex_) = 0;
  std::int64_t applied_version_ GPULAYER_GUARDED_BY(mutex_) = 0;
  bool stop_ GPULAYER_GUARDED_BY(mutex_) = false;

  // The thread's own.
  Settings settings_;
  std::list<Connection> connections_;
  std::thread thread_;
};

Result<std::unique_ptr<Proxy>> Proxy::Start(const std::string& target, const std::string& listen) {
  GPULAYER_ASSIGN_OR_RETURN(const Address to, Parse(target));
  GPULAYER_ASSIGN_OR_RETURN(Address at, Parse(listen));
  UniqueFd listener = NewSocket(at.family);
  if (!listener.valid()) return ErrnoStatus("proxy socket", errno);
  const int on = 1;
  if (at.family == AF_INET) {
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&at.storage), at.size) != 0 ||
      ::listen(listener.get(), 128) != 0) {
    return ErrnoStatus("proxy listen on " + listen, errno);
  }
  std::string address = listen;
  int port = 0;
  if (at.family == AF_INET) {
    if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at.storage), &at.size) != 0) {
      return ErrnoStatus("proxy getsockname", errno);
    }
    port = ntohs(reinterpret_cast<sockaddr_in*>(&at.storage)->sin_port);
    address = listen.substr(0, listen.rfind(':') + 1) + std::to_string(port);
  }
  int wake[2];
  if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoStatus("proxy pipe", errno);
  return std::unique_ptr<Proxy>(new Proxy(std::make_unique<Relay>(
      std::move(listener), UniqueFd(wake[0]), UniqueFd(wake[1]), address, port, to)));
}

Proxy::Proxy(std::unique_ptr<Relay> relay) : relay_(std::move(relay)) {}
Proxy::~Proxy() = default;

const std::string& Proxy::address() const { return relay_->address(); }
int Proxy::port() const { return relay_->port(); }
int Proxy::accepted() const { return relay_->accepted(); }
int Proxy::open() const { return relay_->open(); }
std::int64_t Proxy::passed(Direction direction) const { return relay_->passed(direction); }

void Proxy::Stall() {
  relay_->Command([](Settings& s) { s.stall = true; });
}
void Proxy::Cut() {
  relay_->Command([](Settings& s) {
    s.cut = true;
    ++s.resets;
  });
}
void Proxy::CutOnce() {
  relay_->Command([](Settings& s) { ++s.resets; });
}
void Proxy::Drop(Direction direction) {
  relay_->Command([&](Settings& s) { s.drop[static_cast<std::size_t>(direction)] = true; });
}
void Proxy::Delay(milliseconds delay) {
  relay_->Command([&](Settings& s) { s.delay = delay; });
}
void Proxy::CloseIdle(milliseconds idle) {
  relay_->Command([&](Settings& s) { s.idle = idle; });
}
void Proxy::Heal() {
  relay_->Command([](Settings& s) {
    s.stall = false;
    s.cut = false;
    s.drop = {};
    ++s.lossy_resets;
  });
}
Status Proxy::Retarget(const std::string& target) {
  GPULAYER_ASSIGN_OR_RETURN(const Address to, Parse(target));
  relay_->Command([&](Settings& s) { s.target = to; });
  return OkStatus();
}

}  // namespace gpulayer::testing
