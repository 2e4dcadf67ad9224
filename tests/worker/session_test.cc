// The session's stream against callers that come at any moment.
#include "worker/session/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/eventually.h"
#include "support/temp_dir.h"
#include "worker/session/link.h"

namespace gpulayer::worker {
namespace {

using namespace std::chrono_literals;
using gpulayer::testing::Eventually;
using gpulayer::testing::TempDir;

// What an earlier stream brought may be dealt with when the next one is there, but not yet open.
TEST(SessionTest, NextMeetsAStreamInAnyState) {
  const TempDir dir;
  const Result<ServerLink> link = OpenLink({"unix:" + (dir / "nobody.sock"), "", ""});
  ASSERT_TRUE(link.ok()) << link.status().ToString();
  std::atomic<int> opened{0};
  std::atomic<bool> stop{false};
  SessionOptions options;
  options.first_retry = options.last_retry = 1ms;
  {
    Session session(*link, options, [&](const SessionEvent& event) {
      if (std::holds_alternative<Opened>(event)) ++opened;
    });
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&] {
        while (!stop) session.Next();
      });
    }
    EXPECT_TRUE(Eventually([&] { return opened >= 1000; }, 60s));
    stop = true;
    for (std::thread& caller : callers) caller.join();
  }
}

}  // namespace
}  // namespace gpulayer::worker
