#include "client/dial.h"

#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>

#include "client/local_listener.h"
#include "client/tls_probe.h"
#include "support/eventually.h"

namespace gpulayer::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

SteadyTime In(milliseconds d) { return std::chrono::steady_clock::now() + d; }

TEST(ListenAddressTest, MayLeaveTheHostOrThePortOpen) {
  for (const char* good : {"0.0.0.0:7461", "127.0.0.1:0", ":7461", "[::1]:7461", "box:65535"}) {
    EXPECT_TRUE(CheckListenAddress(good).ok()) << good;
  }
  for (const char* bad : {"", "x", "x:", "x:y", "1:2:3", "127.0.0.1:70000", "127.0.0.1:-1",
                          "box:9999999999", "[::1:7461"}) {
    EXPECT_EQ(CheckListenAddress(bad).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ParseAddressTest, HostsAndPorts) {
  EXPECT_EQ(ToString(*ParseAddress("gpu-box")), "gpu-box:7461");
  EXPECT_EQ(ToString(*ParseAddress("10.0.0.5:99")), "10.0.0.5:99");
  EXPECT_EQ(ToString(*ParseAddress("[fe80::1]:99")), "[fe80::1]:99");
  EXPECT_EQ(ToString(*ParseAddress("127.1:99")), "127.0.0.1:99");
  for (const char* bad : {"", ":7461", "host:", "host:0", "host:70000", "host:7x", "[fe80::1",
                          "a b:1", "http://host:7461"}) {
    EXPECT_EQ(ParseAddress(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ResolveTest, NumbersNeedNoNameServer) {
  const auto never = [](const HostPort&, std::vector<SocketAddress>*) -> int { std::abort(); };
  EXPECT_EQ(Resolve({"127.0.0.1", "1"}, In(seconds(10)), never)->size(), 1U);
  EXPECT_EQ(Resolve({"::1", "1"}, In(seconds(10)), never)->size(), 1U);
}

TEST(ResolveTest, AnUnknownNameIsSaid) {
  const auto unknown = [](const HostPort&, std::vector<SocketAddress>*) { return EAI_NONAME; };
  const Status status = Resolve({"box.invalid", "1"}, In(seconds(10)), unknown).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("the name is not known"), std::string::npos);
}

TEST(ResolveTest, ADeadNameServerHasAnEndAndIsNotAskedForEver) {
  std::promise<void> answer;
  const auto answered = answer.get_future().share();
  std::atomic<int> asked{0};
  std::atomic<int> done{0};
  const auto stuck = [&](const HostPort&, std::vector<SocketAddress>*) {
    ++asked;
    answered.wait();
    ++done;
    return EAI_AGAIN;
  };
  for (int i = 0; i < 20; ++i) {
    const Status status = Resolve({"box.invalid", "1"}, In(milliseconds(20)), stuck).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("the name server does not answer"), std::string::npos);
  }
  answer.set_value();
  EXPECT_TRUE(testing::Eventually([&] { return done == asked; }));
  EXPECT_LE(asked, 8);
  EXPECT_TRUE(testing::Eventually([] {
    return Resolve({"box", "1"}, In(seconds(10)), [](const auto&, auto*) { return 0; }).ok();
  }));
}

TEST(ConnectAnyTest, ADeadAddressInFrontLeavesTimeForAGoodOne) {
  LocalListener dead(0);
  const std::vector<UniqueFd> waiting = dead.Fill();
  LocalListener good(5);
  const Result<UniqueFd> fd =
      ConnectAny({"box", "1"}, {dead.address(), good.address()}, In(milliseconds(600)));
  EXPECT_TRUE(fd.ok()) << fd.status().message();
  const Status status = ConnectAny({"box", "1"}, {dead.address()}, In(milliseconds(50))).status();
  EXPECT_NE(status.message().find("does not answer"), std::string::npos);
}

TEST(IsLoopbackTest, IsThisMachineForItself) {
  for (const char* here : {"127.0.0.1:7461", "127.9.9.9:1", "localhost:7461", "[::1]:7461"}) {
    EXPECT_TRUE(IsLoopback(here)) << here;
  }
  for (const char* other : {"10.0.0.5:7461", "0.0.0.0:7461", "[fe80::1]:7461", "box:1", ""}) {
    EXPECT_FALSE(IsLoopback(other)) << other;
  }
}

// A peer that hangs up while the handshake writes: SIGPIPE would end this very test.
TEST(FetchChainTest, APeerThatClosesAtOnceIsNamed) {
  LocalListener listener(5);
  for (int i = 0; i < 20; ++i) {
    std::thread peer([&] { listener.Accept(); });
    const Status status =
        FetchChain({"127.0.0.1", std::to_string(listener.port())}, {seconds(10), seconds(10)})
            .status();
    peer.join();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("closes the connection at once"), std::string::npos)
        << status.message();
  }
}

TEST(FetchChainTest, AnInterruptEndsEveryWait) {
  const auto begin = std::chrono::steady_clock::now();
  struct Soon {
    std::shared_ptr<api::Interrupt::State> interrupt = std::make_shared<api::Interrupt::State>();
    Alarm alarm{interrupt, milliseconds(100)};
  };
  {
    const Soon soon;
    LocalListener full(0);
    const std::vector<UniqueFd> before = full.Fill();
    EXPECT_FALSE(ConnectAny({"box", "1"}, {full.address()}, In(seconds(60)), soon.interrupt).ok());
  }
  {
    const Soon soon;
    std::promise<void> answer;
    const auto answered = answer.get_future().share();
    const auto stuck = [answered](const HostPort&, std::vector<SocketAddress>*) {
      answered.wait();
      return EAI_NONAME;
    };
    EXPECT_FALSE(Resolve({"box.invalid", "1"}, In(seconds(60)), stuck, soon.interrupt).ok());
    answer.set_value();
  }
  {
    const Soon soon;
    const LocalListener silent(10);
    const Patience long_one{seconds(60), seconds(60), soon.interrupt};
    EXPECT_FALSE(FetchChain({"127.0.0.1", std::to_string(silent.port())}, long_one).ok());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
}

// Stopped, stuck, or at the end of a slow link: nothing says that it speaks no TLS.
TEST(FetchChainTest, APeerThatSaysNothingIsNotTakenForAnotherProgram) {
  LocalListener listener(5);
  const Status status =
      FetchChain({"127.0.0.1", std::to_string(listener.port())}, {seconds(10), milliseconds(50)})
          .status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("accepted the connection but did not answer within 50ms"),
            std::string::npos)
      << status.message();
}

TEST(FetchChainTest, APeerWithoutTlsIsNamed) {
  LocalListener listener(5);
  std::thread peer([&] {
    const UniqueFd fd = listener.Accept();
    EXPECT_TRUE(WriteAll(fd.get(), "HTTP/1.0 400 Bad Request\r\n\r\n").ok());
    char rest[4096];
    while (ReadSome(fd.get(), rest, sizeof rest).value_or(0) > 0) {
    }
  });
  const Status status =
      FetchChain({"127.0.0.1", std::to_string(listener.port())}, {seconds(10), seconds(10)})
          .status();
  peer.join();
  EXPECT_NE(status.message().find("without TLS"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace gpulayer::client
