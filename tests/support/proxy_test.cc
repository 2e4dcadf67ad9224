#include "support/proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "base/fs.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace gpulayer::testing {
namespace {

using std::chrono::milliseconds;
using Direction = Proxy::Direction;
constexpr milliseconds kPatience{10'000};
constexpr milliseconds kQuiet{60};  // how long a test looks whether nothing comes

UniqueFd Dial(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return {};
  return fd;
}

// What came within `patience`; "" is the end or a reset; nullopt: nothing came.
std::optional<std::string> Receive(const UniqueFd& fd, milliseconds patience = kPatience) {
  pollfd p{fd.get(), POLLIN, 0};
  if (poll(&p, 1, static_cast<int>(patience.count())) == 0) return std::nullopt;
  std::string data(4096, '\0');
  const ssize_t n = recv(fd.get(), data.data(), data.size(), 0);
  data.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return data;
}

void Send(const UniqueFd& fd, const std::string& data) {
  EXPECT_EQ(send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(data.size()));
}

// A listener of the test's own, a proxy in front of it and one connection through both.
class ProxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    ASSERT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    ASSERT_EQ(listen(listener_.get(), 16), 0);
    ASSERT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    Result<std::unique_ptr<Proxy>> proxy =
        Proxy::Start("127.0.0.1:" + std::to_string(ntohs(at.sin_port)));
    ASSERT_TRUE(proxy.ok()) << proxy.status().ToString();
    proxy_ = *std::move(proxy);
    Connect();
  }

  void Connect() {
    client_ = Dial(proxy_->port());
    ASSERT_TRUE(client_.valid());
    pollfd p{listener_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&p, 1, static_cast<int>(kPatience.count())), 1);
    server_ = UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(server_.valid());
  }

  UniqueFd listener_;
  std::unique_ptr<Proxy> proxy_;
  UniqueFd client_;
  UniqueFd server_;
};

TEST_F(ProxyTest, PassesBothWaysAndPassesTheEndOn) {
  Send(client_, "up");
  EXPECT_EQ(Receive(server_), "up");
  Send(server_, "down");
  EXPECT_EQ(Receive(client_), "down");
  EXPECT_TRUE(Eventually([&] { return proxy_->passed(Direction::kUp) == 2; }));
  EXPECT_TRUE(Eventually([&] { return proxy_->passed(Direction::kDown) == 4; }));  // counted after
  shutdown(client_.get(), SHUT_WR);
  EXPECT_EQ(Receive(server_), "");
  Send(server_, "still open this way");
  EXPECT_EQ(Receive(client_), "still open this way");
  server_.Reset();
  EXPECT_EQ(Receive(client_), "");
  EXPECT_TRUE(Eventually([&] { return proxy_->open() == 0; }));
}

TEST_F(ProxyTest, StallHoldsBytesUntilHeal) {
  proxy_->Stall();
  Send(client_, "held");
  EXPECT_EQ(Receive(server_, kQuiet), std::nullopt);
  proxy_->Heal();
  EXPECT_EQ(Receive(server_), "held");
}

TEST_F(ProxyTest, CutResetsAndKeepsResettingUntilHeal) {
  proxy_->Cut();
  EXPECT_EQ(Receive(client_), "");
  EXPECT_EQ(Receive(server_), "");
  const UniqueFd refused = Dial(proxy_->port());
  if (refused.valid()) {
    EXPECT_EQ(Receive(refused), "");
  }
  proxy_->Heal();
  Connect();
  Send(client_, "again");
  EXPECT_EQ(Receive(server_), "again");
}

TEST_F(ProxyTest, CutOnceLetsTheNextConnectionPass) {
  proxy_->CutOnce();
  EXPECT_EQ(Receive(client_), "");
  Connect();
  Send(server_, "hello");
  EXPECT_EQ(Receive(client_), "hello");
}

TEST_F(ProxyTest, DropLosesOneDirectionOnlyAndHealResetsThatConnection) {
  proxy_->Drop(Direction::kDown);
  Send(client_, "request");
  EXPECT_EQ(Receive(server_), "request");
  Send(server_, "reply");
  EXPECT_EQ(Receive(client_, kQuiet), std::nullopt);
  EXPECT_EQ(proxy_->passed(Direction::kDown), 0);
  proxy_->Heal();
  EXPECT_EQ(Receive(client_), "");
}

TEST_F(ProxyTest, DelayKeepsOrder) {
  proxy_->Delay(milliseconds(50));
  const auto start = std::chrono::steady_clock::now();
  Send(client_, "a");
  Send(client_, "b");
  std::string got;
  while (got.size() < 2) {
    const std::optional<std::string> more = Receive(server_);
    ASSERT_TRUE(more.has_value());
    got += *more;
  }
  EXPECT_EQ(got, "ab");
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(50));
}

TEST_F(ProxyTest, CloseIdleResetsAQuietLink) {
  proxy_->CloseIdle(milliseconds(20));
  EXPECT_EQ(Receive(client_), "");
  EXPECT_EQ(Receive(server_), "");
}

TEST_F(ProxyTest, MoreThanTheBuffersComesThroughWhole) {
  constexpr std::size_t kSize = 4 << 20;
  std::thread sender(
      [&] { IgnoreError(WriteAll(client_.get(), std::string(kSize, 'x')), "below"); });
  std::size_t got = 0;
  while (got < kSize) {
    const std::optional<std::string> more = Receive(server_);
    if (!more.has_value() || more->empty()) break;
    got += more->size();
  }
  sender.join();
  EXPECT_EQ(got, kSize);
}

TEST(ProxyUnixTest, RelaysBetweenUnixSocketsAndRemovesItsOwn) {
  const TempDir dir;
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strcpy(at.sun_path, (dir / "target").c_str());  // NOLINT: a short path of the test's own
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  {
    Result<std::unique_ptr<Proxy>> proxy =
        Proxy::Start("unix:" + (dir / "target"), "unix:" + (dir / "front"));
    ASSERT_TRUE(proxy.ok()) << proxy.status().ToString();
    const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    std::strcpy(at.sun_path, (dir / "front").c_str());  // NOLINT
    ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    const UniqueFd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Send(client, "up");
    EXPECT_EQ(Receive(server), "up");
  }
  EXPECT_FALSE(PathExists(dir / "front"));
}

TEST(ProxyAddressTest, ATargetThatRefusesClosesTheConnection) {
  Result<std::unique_ptr<Proxy>> nowhere = Proxy::Start("127.0.0.1:1");
  ASSERT_TRUE(nowhere.ok());
  const UniqueFd client = Dial((*nowhere)->port());
  if (client.valid()) {
    EXPECT_EQ(Receive(client), "");
  }
  EXPECT_EQ(Proxy::Start("localhost").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpulayer::testing
