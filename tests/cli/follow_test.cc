#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

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

TEST(FollowArrayTest, LogsThatWaitForAReaderAreDroppedWithTheServer) {
  std::string dir = ::testing::TempDir() + "/gpulayer-follow-XXXXXX";
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  UpOptions up;
  up.data_dir = dir + "/data";
  up.listen = "127.0.0.1:0";
  up.slots = 8;
  const auto started = Up(up);
  ASSERT_TRUE(started.ok()) << started.status().message();
  std::atomic<int> lost{0};
  ClientOptions options;
  options.data_dir = up.data_dir;
  options.config_dir = dir + "/config";
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
  const auto down = Down({up.data_dir});
  follower.join();
  out.reset();  // from here on failures can be read
  EXPECT_NE(line.find("runs"), std::string::npos) << line;
  EXPECT_TRUE(down.ok()) << down.status().message();
  EXPECT_EQ(end.code(), StatusCode::kUnavailable) << end.message();
  // The job's watch, and the log under way; two more while the watch finds out, if the server was
  // lost in the middle of a question.
  EXPECT_LE(lost, 5);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace gpulayer::cli
