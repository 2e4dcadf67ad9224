#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/follow_array.h"
#include "gpulayer/host.h"

namespace gpulayer::cli {
namespace {

using namespace std::chrono_literals;

// Standard output as a pipe, for as long as it lives.
class PipedOut {
 public:
  PipedOut() : saved_(::dup(STDOUT_FILENO)) {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    ::dup2(ends_[1], STDOUT_FILENO);
  }
  ~PipedOut() {
    ::dup2(saved_, STDOUT_FILENO);
    for (const int fd : {saved_, ends_[0], ends_[1]}) ::close(fd);
  }
  std::string Line() const {
    std::string line;
    for (char c = 0; ::read(ends_[0], &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

 private:
  const int saved_;
  std::array<int, 2> ends_{};
};

// A server of eight slots in a folder of its own.
class FollowArrayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(dir_.data()), nullptr);
    UpOptions up;
    up.data_dir = dir_ + "/data";
    up.listen = "127.0.0.1:0";
    up.slots = 8;
    const auto started = Up(up);
    ASSERT_TRUE(started.ok()) << started.status().message();
  }
  void TearDown() override {
    (void)Down({dir_ + "/data"});  // a test may have ended it
    std::filesystem::remove_all(dir_);
  }
  ClientOptions Options() const {
    ClientOptions options;
    options.data_dir = dir_ + "/data";
    options.config_dir = dir_ + "/config";
    return options;
  }

  std::string dir_ = ::testing::TempDir() + "/gpulayer-follow-XXXXXX";
};

TEST_F(FollowArrayTest, LogsThatWaitForAReaderAreDroppedWithTheServer) {
  std::atomic<int> lost{0};
  ClientOptions options = Options();
  options.reconnect_for = options.call_timeout = 2s;
  options.on_notice = [&](const std::string&) { ++lost; };
  auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status().message();
  JobSpec spec;
  spec.shell = "echo runs; exec sleep 600";
  spec.array = TaskRange{0, 7};
  const auto job = client->Submit(spec);
  ASSERT_TRUE(job.ok()) << job.status().message();

  std::optional<PipedOut> out(std::in_place);
  FollowArrayOptions follow;
  follow.all_logs = true;
  follow.log_readers = 1;
  follow.on_unwritten = [] {};
  int unwritten = 0;
  Status end;
  std::thread follower([&] { end = FollowArray(*client, job->id(), follow, &unwritten).status(); });
  const std::string line = out->Line();
  const auto down = Down({dir_ + "/data"});
  follower.join();
  out.reset();  // from here on failures can be read
  EXPECT_NE(line.find("runs"), std::string::npos) << line;
  EXPECT_TRUE(down.ok()) << down.status().message();
  EXPECT_EQ(end.code(), StatusCode::kUnavailable) << end.message();
  // The job's watch, and the log under way; two more while the watch finds out, if the server was
  // lost in the middle of a question.
  EXPECT_LE(lost, 5);
}

TEST_F(FollowArrayTest, LogsAreReadInTheEndWhereNoThreadIsToBeHad) {
  auto client = Client::Connect(Options());
  ASSERT_TRUE(client.ok()) << client.status().message();
  JobSpec spec;
  spec.shell = "echo runs";
  spec.array = TaskRange{0, 2};
  const auto job = client->Submit(spec);
  ASSERT_TRUE(job.ok()) << job.status().message();
  FollowArrayOptions follow;
  follow.all_logs = true;
  follow.log_readers = 0;
  follow.on_unwritten = [] {};
  int unwritten = 0;
  std::optional<PipedOut> out(std::in_place);
  const Result<JobInfo> end = FollowArray(*client, job->id(), follow, &unwritten);
  std::vector<std::string> lines;
  for (int i = 0; i < 3 && end.ok(); ++i) lines.push_back(out->Line());
  out.reset();
  ASSERT_TRUE(end.ok()) << end.status().message();
  const std::string prefix = std::to_string(job->id()) + ".";
  EXPECT_EQ(lines,
            (std::vector<std::string>{prefix + "0: runs", prefix + "1: runs", prefix + "2: runs"}));
}

}  // namespace
}  // namespace gpulayer::cli
