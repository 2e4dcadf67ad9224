#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "server/store/store.h"
#include "support/child.h"
#include "support/temp_dir.h"

namespace gpulayer {
namespace {

// What was acknowledged before a kill is there after it, and nothing is there by half.
TEST(StoreKillTest, AcknowledgedJobsSurviveSigkill) {
  const testing::TempDir dir;
  const std::string path = dir / "state.db";
  std::minstd_rand random(20261130);
  std::int64_t acknowledged = 0;
  for (int round = 0; round < 20; ++round) {
    testing::Child writer({GPULAYER_STORE_WRITER, path});
    // Some lines, and then a moment that falls anywhere in the next writes.
    for (auto lines = 1 + random() % 40; lines > 0; --lines) {
      const std::string line = writer.ReadLine();
      ASSERT_FALSE(line.empty());
      acknowledged = std::stoll(line);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    writer.Kill();
    for (std::string line = writer.ReadLine(); !line.empty(); line = writer.ReadLine()) {
      acknowledged = std::stoll(line);
    }
    Result<std::unique_ptr<Store>> store = Store::Open({path, true});
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    const LoadedState state = *(*store)->Load();
    EXPECT_GE(state.last_job.value(), acknowledged);
    EXPECT_LE(state.last_job.value(), acknowledged + 3);
    EXPECT_EQ(state.last_job.value() % 3, 0) << "a batch is there whole or not at all";
    EXPECT_EQ(state.jobs.size(), static_cast<std::size_t>(state.last_job.value()));
    EXPECT_EQ(state.tasks.size(), state.jobs.size());
    EXPECT_EQ(state.requests.size(), state.jobs.size());
  }
}

}  // namespace
}  // namespace gpulayer
