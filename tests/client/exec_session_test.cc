#include "client/exec_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "model/limits.h"

namespace gpulayer::client {
namespace {

using api::ExecOptions;
using api::ExecOutcome;
using api::ExecPiece;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Session = api::ExecSession::Impl;

// Says what it is told to say, then `end`; keeps what is written.
class FakeExec : public ExecStream {
 public:
  struct Script {
    std::deque<v1::ExecOutput> says;
    Status end;
    bool waits = false;  // at its end, until it is broken
    bool deaf = false;
    std::vector<v1::ExecInput> written;
    Mutex mutex;
    CondVar broke;
    bool broken GPULAYER_GUARDED_BY(mutex) = false;
  };
  explicit FakeExec(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  bool Write(const v1::ExecInput& message) override {
    if (script_->deaf) return false;
    script_->written.push_back(message);
    return true;
  }
  Result<std::optional<v1::ExecOutput>> Read() override {
    if (script_->says.empty()) {
      MutexLock lock(script_->mutex);
      while (script_->waits && !script_->broken) script_->broke.Wait(script_->mutex);
      if (script_->waits) return Cancelled("exec: hung up");
      if (!script_->end.ok()) return script_->end;
      return std::optional<v1::ExecOutput>();
    }
    v1::ExecOutput message = script_->says.front();
    script_->says.pop_front();
    return std::optional<v1::ExecOutput>(std::move(message));
  }
  void Break() override {
    MutexLock lock(script_->mutex);
    script_->broken = true;
    script_->broke.NotifyAll();
  }

 private:
  const std::shared_ptr<Script> script_;
};

class ExecSessionTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Session>> Open(const ExecOptions& options,
                                        std::chrono::milliseconds timeout = std::chrono::hours(1)) {
    return Session::Open(nullptr, std::make_unique<FakeExec>(script_), 42, options, timeout);
  }
  static ExecOptions Cat() {
    ExecOptions options;
    options.command = {"cat", "a\xff"};
    return options;
  }
  v1::ExecOutput& Say() { return script_->says.emplace_back(); }

  std::shared_ptr<FakeExec::Script> script_ = std::make_shared<FakeExec::Script>();
};

TEST_F(ExecSessionTest, WhatGoesThereAndWhatComes) {
  Say();
  Say().set_out(std::string("a\0b", 3));
  Say().set_err("oops");
  Say().mutable_ended()->set_exit_code(7);
  ExecOptions options = Cat();
  options.task = 3;
  options.terminal = api::TerminalSize{50, 120};
  options.term = "xterm";
  auto session = Open(options);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  EXPECT_TRUE((*session)->Write(std::string(limits::kExecPieceBytes + 1, 'x')).ok());
  EXPECT_TRUE((*session)->Resize({10, 20}).ok());
  EXPECT_TRUE((*session)->EndInput().ok());
  ASSERT_THAT(script_->written, SizeIs(5));
  const v1::ExecInput::Begin& begin = script_->written[0].begin();
  EXPECT_EQ(begin.job(), 42);
  EXPECT_EQ(begin.task(), 3);
  EXPECT_THAT(begin.command(), ElementsAre("cat", "a\xff"));
  EXPECT_EQ(begin.terminal().rows(), 50u);
  EXPECT_EQ(begin.terminal().columns(), 120u);
  EXPECT_EQ(begin.term(), "xterm");
  EXPECT_THAT(script_->written[1].data(), SizeIs(limits::kExecPieceBytes));
  EXPECT_THAT(script_->written[2].data(), SizeIs(1));
  EXPECT_EQ(script_->written[3].resize().rows(), 10u);
  EXPECT_TRUE(script_->written[4].end());

  auto piece = (*session)->Read();
  ASSERT_TRUE(piece.ok() && piece->has_value());
  EXPECT_EQ((*piece)->out, std::string("a\0b", 3));
  EXPECT_EQ((*piece)->err, "");
  piece = (*session)->Read();
  ASSERT_TRUE(piece.ok() && piece->has_value());
  EXPECT_EQ((*piece)->err, "oops");
  for (int i = 0; i < 2; ++i) {
    piece = (*session)->Read();
    ASSERT_TRUE(piece.ok());
    EXPECT_FALSE(piece->has_value());
  }
  EXPECT_EQ((*session)->outcome().exit_code, 7);
  EXPECT_EQ((*session)->outcome().signal, std::nullopt);
  EXPECT_EQ((*session)->outcome().shell_exit_code, 7);
}

TEST_F(ExecSessionTest, WithoutATerminalNothingIsSaidOfOne) {
  Say();
  ExecOptions options = Cat();
  options.term = "xterm";
  ASSERT_TRUE(Open(options).ok());
  EXPECT_FALSE(script_->written[0].begin().has_terminal());
  EXPECT_FALSE(script_->written[0].begin().has_task());
  EXPECT_EQ(script_->written[0].begin().term(), "");
}

TEST_F(ExecSessionTest, HowItEnded) {
  Say();
  Say().mutable_ended()->set_signal(9);
  auto killed = Open(Cat());
  ASSERT_TRUE(killed.ok() && (*killed)->Read().ok());
  EXPECT_EQ((*killed)->outcome().exit_code, std::nullopt);
  EXPECT_EQ((*killed)->outcome().signal, 9);
  EXPECT_EQ((*killed)->outcome().shell_exit_code, 137);
  Say();
  Say().mutable_ended()->set_exit_code(127);
  script_->says.back().mutable_ended()->set_error("not found");
  auto missing = Open(Cat());
  ASSERT_TRUE(missing.ok() && (*missing)->Read().ok());
  EXPECT_EQ((*missing)->outcome().error, "not found");
  EXPECT_EQ((*missing)->outcome().shell_exit_code, 127);
}

TEST_F(ExecSessionTest, AnErrorBeforeTheFirstAnswerIsThatOfOpen) {
  script_->end = FailedPrecondition("job 42 is queued");
  script_->deaf = true;
  const auto refused = Open(Cat());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.status().message(), "job 42 is queued");
}

TEST_F(ExecSessionTest, AnErrorInTheMiddleIsThatOfRead) {
  Say();
  script_->end = Unavailable("lost");
  auto session = Open(Cat());
  ASSERT_TRUE(session.ok());
  script_->deaf = true;
  EXPECT_EQ((*session)->Write("x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ((*session)->Read().status().message(), "lost");
  EXPECT_EQ((*session)->Read().status().message(), "lost");
}

TEST_F(ExecSessionTest, AServerThatEndsItWithoutSayingHow) {
  Say();
  auto session = Open(Cat());
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->Read().status().code(), StatusCode::kUnavailable);
}

TEST_F(ExecSessionTest, AServerThatDoesNotAnswer) {
  script_->waits = true;
  const auto late = Open(Cat(), std::chrono::milliseconds(1));
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.status().message(), HasSubstr("job 42: no answer in time"));
}

TEST_F(ExecSessionTest, WhatMakesNoSenseIsNotAsked) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{},
        {""},
        {"sh", std::string("a\0b", 3)},
        {"sh", std::string(limits::kMaxArgsAndEnvBytes, 'x')}}) {
    ExecOptions options;
    options.command = command;
    EXPECT_EQ(Open(options).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(script_->written, SizeIs(0));
}

}  // namespace
}  // namespace gpulayer::client
