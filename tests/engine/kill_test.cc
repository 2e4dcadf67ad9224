#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <random>
#include <thread>

#include "server/store/store.h"
#include "support/child.h"
#include "support/temp_dir.h"

namespace gpulayer {
namespace {

class EngineKillTest : public ::testing::Test {
 protected:
  void TakeLines(testing::Child& child, std::int64_t lines) {
    for (; lines > 0; --lines) {
      const std::string line = child.ReadLine();
      if (line.empty()) return;
      acknowledged_ = std::stoll(line);
    }
  }
  std::int64_t Stored() {
    Result<std::unique_ptr<Store>> store = Store::Open({path_, true});
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    const LoadedState state = *(*store)->Load();
    EXPECT_EQ(state.jobs.size(), static_cast<std::size_t>(state.last_job.value()));
    return state.last_job.value();
  }

  testing::TempDir dir_;
  std::string path_ = dir_ / "state.db";
  std::int64_t acknowledged_ = 0;  // ids are drawn in order, answers come in order
};

TEST_F(EngineKillTest, AnAcknowledgedSubmitSurvivesSigkill) {
  std::minstd_rand random(20261130);
  for (int round = 0; round < 10; ++round) {
    testing::Child submitter({GPULAYER_ENGINE_SUBMITTER, path_});
    TakeLines(submitter, static_cast<std::int64_t>(1 + random() % 200));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    submitter.Kill();
    TakeLines(submitter, INT64_MAX);
    EXPECT_GE(Stored(), acknowledged_);
    EXPECT_LE(Stored(), acknowledged_ + 16) << "no more than were outstanding";
  }
}

TEST_F(EngineKillTest, NobodyIsAnsweredBeforeTheCommit) {
  testing::Child submitter({GPULAYER_ENGINE_SUBMITTER, path_},
                           {"GPULAYER_FAULT=server.before_commit=kill:5"});
  TakeLines(submitter, INT64_MAX);
  EXPECT_EQ(WTERMSIG(submitter.Wait()), SIGKILL);
  EXPECT_GT(acknowledged_, 0);
  EXPECT_EQ(Stored(), acknowledged_) << "what was not committed was not answered";
}

TEST_F(EngineKillTest, WhatWasCommittedIsThereThoughNobodyWasAnswered) {
  testing::Child submitter({GPULAYER_ENGINE_SUBMITTER, path_},
                           {"GPULAYER_FAULT=server.after_commit=kill:5"});
  TakeLines(submitter, INT64_MAX);
  EXPECT_EQ(WTERMSIG(submitter.Wait()), SIGKILL);
  EXPECT_GT(Stored(), acknowledged_);
}

}  // namespace
}  // namespace gpulayer
