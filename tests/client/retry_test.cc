#include "client/retry.h"

#include <gtest/gtest.h>

#include "client/fake_transport.h"
#include "support/fake_clock.h"

namespace gpulayer::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Status kLost(StatusCode::kUnavailable, "lost");

v1::LogChunk Chunk(std::int32_t attempt, const std::string& data, std::int64_t next) {
  v1::LogChunk chunk;
  chunk.set_attempt(attempt);
  chunk.add_pieces()->set_data(data);
  chunk.set_next_offset(next);
  return chunk;
}

// A log server whose every stream is one entry of a row; remembers what was asked.
class ResumableTest : public ::testing::Test {
 protected:
  using Logs = Resumable<v1::ReadLogsRequest, v1::LogChunk>;

  Logs Open() {
    return Logs(
        v1::ReadLogsRequest(),
        [this](const v1::ReadLogsRequest& request) -> std::unique_ptr<ReadStream<v1::LogChunk>> {
          asked_.push_back(request);
          if (streams_.empty()) {
            return std::make_unique<FakeStream<v1::LogChunk>>(std::vector<v1::LogChunk>(), kLost);
          }
          auto stream = std::move(streams_.front());
          streams_.pop_front();
          return stream;
        },
        [](const v1::LogChunk& chunk, v1::ReadLogsRequest* request) {
          request->set_attempt(chunk.attempt());
          request->set_offset(chunk.next_offset());
        },
        RetryPolicy(clock_, seconds(60)),
        [this](Duration d) {
          slept_ += d;
          clock_.Advance(d);
          return sleep_status_;
        },
        [this](const std::string& line) { notices_.push_back(line); });
  }
  void Serve(std::vector<v1::LogChunk> chunks, Status end) {
    streams_.push_back(std::make_unique<FakeStream<v1::LogChunk>>(std::move(chunks), end));
  }

  testing::FakeClock clock_;
  Duration slept_{};
  Status sleep_status_;
  std::deque<std::unique_ptr<ReadStream<v1::LogChunk>>> streams_;
  std::vector<v1::ReadLogsRequest> asked_;
  std::vector<std::string> notices_;
};

TEST_F(ResumableTest, GoesOnWhereItBrokeWithoutGapOrRepeat) {
  Serve({Chunk(1, "a", 17), Chunk(1, "b", 34)}, kLost);
  Serve({}, kLost);
  Serve({Chunk(2, "c", 17)}, OkStatus());
  Logs logs = Open();
  std::string all;
  for (;;) {
    Result<std::optional<v1::LogChunk>> read = logs.Read();
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    if (!read->has_value()) break;
    all += (*read)->pieces(0).data();
  }
  EXPECT_EQ(all, "abc");
  ASSERT_EQ(asked_.size(), 3u);
  EXPECT_EQ(asked_[0].offset(), 0);
  EXPECT_EQ(asked_[1].offset(), 34);
  EXPECT_EQ(asked_[1].attempt(), 1);
  EXPECT_EQ(asked_[2].offset(), 34);
  EXPECT_EQ(notices_, (std::vector<std::string>{"lost. Trying again.", "connected again"}));
}

TEST_F(ResumableTest, AnHourOfFailuresEndsWithTheLastOneOncePatienceIsSpent) {
  Logs logs = Open();
  EXPECT_EQ(logs.Read().status(), kLost);
  EXPECT_GE(slept_, seconds(55));
  EXPECT_LE(slept_, seconds(65));
  EXPECT_LT(asked_.size(), 60u);  // the delays grow
}

TEST_F(ResumableTest, PatienceCountsFromTheLastSuccess) {
  for (int i = 0; i < 100; ++i) {
    Serve({Chunk(1, "x", 17 * (i + 1))}, kLost);
    Serve({}, kLost);
  }
  Serve({}, OkStatus());
  Logs logs = Open();
  int chunks = 0;
  for (;;) {
    Result<std::optional<v1::LogChunk>> read = logs.Read();
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    if (!read->has_value()) break;
    ++chunks;
  }
  EXPECT_EQ(chunks, 100);
}

TEST_F(ResumableTest, WhatWouldFailAgainIsNotRepeated) {
  for (const StatusCode code : {StatusCode::kPermissionDenied, StatusCode::kNotFound,
                                StatusCode::kUnauthenticated, StatusCode::kCancelled}) {
    asked_.clear();
    Serve({}, Status(code, "no"));
    Logs logs = Open();
    EXPECT_EQ(logs.Read().status().code(), code);
    EXPECT_EQ(asked_.size(), 1u);
  }
}

TEST_F(ResumableTest, ASleeperThatRefusesEndsIt) {
  sleep_status_ = Status(StatusCode::kCancelled, "interrupted");
  Logs logs = Open();
  EXPECT_EQ(logs.Read().status().code(), StatusCode::kCancelled);
}

TEST(RetryNoticeTest, AdviceIsLeftOutForWeFollowItOurselves) {
  const auto notice = [](const char* text) {
    return RetryNotice(Status(StatusCode::kUnavailable, text));
  };
  EXPECT_EQ(notice("server 10.0.0.5:7461: the connection was lost. Try again."),
            "server 10.0.0.5:7461: the connection was lost. Trying again.");
  EXPECT_EQ(notice("server x: the address does not answer. Check it, and that no firewall is "
                   "between."),
            "server x: the address does not answer. Trying again.");
  EXPECT_EQ(notice("lost."), "lost. Trying again.");
}

class RetryTransportTest : public ::testing::Test {
 protected:
  RetryTransportTest() {
    auto fake = std::make_unique<FakeTransport>();
    fake_ = fake.get();
    retry_ = std::make_unique<RetryTransport>(std::move(fake), clock_, [this](InterruptPtr) {
      return [this](Duration) {
        ++sleeps_;
        return OkStatus();
      };
    });
  }
  Status Call(Method method) {
    v1::SubmitReply reply;
    return retry_->Call(method, v1::SubmitRequest(), &reply,
                        {std::chrono::steady_clock::now() + seconds(30), nullptr});
  }

  testing::FakeClock clock_;
  FakeTransport* fake_;
  std::unique_ptr<RetryTransport> retry_;
  int sleeps_ = 0;
};

TEST_F(RetryTransportTest, ALostAnswerIsAskedForAgain) {
  ASSERT_TRUE(Call(Method::kSubmit).ok());
  fake_->failures[Method::kSubmit] = {kLost, kLost};
  EXPECT_TRUE(Call(Method::kSubmit).ok());
  EXPECT_EQ(fake_->calls[Method::kSubmit], 4);
  EXPECT_EQ(sleeps_, 2);
}

TEST_F(RetryTransportTest, AServerThatNeverAnsweredIsNotWaitedFor) {
  fake_->failures[Method::kStatus] = {kLost};
  EXPECT_EQ(Call(Method::kStatus), kLost);
  EXPECT_EQ(sleeps_, 0);
}

TEST_F(RetryTransportTest, WhatIsNotIdempotentIsNotRepeated) {
  ASSERT_TRUE(Call(Method::kStatus).ok());
  for (const Method method : {Method::kExchange, Method::kCreateToken}) {
    fake_->failures[method] = {kLost};
    EXPECT_EQ(Call(method), kLost);
  }
}

TEST(InterruptTest, WakesASleeperAndStaysThrown) {
  api::Interrupt interrupt;
  std::thread thrower([&] { interrupt.Throw(); });
  EXPECT_EQ(InterruptibleSleeper(interrupt.state())(std::chrono::minutes(5)).code(),
            StatusCode::kCancelled);
  thrower.join();
  int woken = 0;
  {
    WakeScope scope(interrupt.state(), [&] { ++woken; });
  }
  EXPECT_EQ(woken, 1);  // at once: it was thrown already
}

}  // namespace
}  // namespace gpulayer::client
