#include "model/job.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

Outcome Exited(int code) { return {code, std::nullopt, {CauseKind::kProgram, ""}}; }

TEST(JobTest, AProgramsOwnCodeIsNotALimit) {
  EXPECT_EQ(TerminalStateOf(Exited(124)), TaskState::kFailed);
  EXPECT_EQ(ShellExitCode(TaskState::kFailed, Exited(124)), 124);
  const Outcome limit{std::nullopt, 15, {CauseKind::kTimeLimit, ""}};
  EXPECT_EQ(TerminalStateOf(limit), TaskState::kTimedOut);
  EXPECT_EQ(ShellExitCode(TaskState::kTimedOut, limit), 124);
}

TEST(JobTest, ShellCodes) {
  const auto code = [](CauseKind kind, std::optional<int> exit, std::optional<int> signal) {
    const Outcome o{exit, signal, {kind, ""}};
    return ShellExitCode(TerminalStateOf(o), o);
  };
  EXPECT_EQ(code(CauseKind::kProgram, 0, {}), 0);
  EXPECT_EQ(code(CauseKind::kProgram, 7, {}), 7);
  EXPECT_EQ(code(CauseKind::kSignal, {}, 9), 137);
  EXPECT_EQ(code(CauseKind::kCancelled, {}, 15), 130);
  EXPECT_EQ(code(CauseKind::kNotExecutable, {}, {}), 126);
  EXPECT_EQ(code(CauseKind::kNotFound, {}, {}), 127);
  EXPECT_EQ(code(CauseKind::kOutputsNotStored, 0, {}), 125);
}

TEST(JobTest, JobStateFollowsItsTasks) {
  StateCounts counts;
  counts[TaskState::kSucceeded] = 3;
  EXPECT_EQ(JobStateOf(counts), TaskState::kSucceeded);
  counts[TaskState::kCancelled] = 1;
  EXPECT_EQ(JobStateOf(counts), TaskState::kCancelled);
  counts[TaskState::kFailed] = 1;
  EXPECT_EQ(JobStateOf(counts), TaskState::kFailed);
  counts[TaskState::kQueued] = 1;
  EXPECT_EQ(JobStateOf(counts), TaskState::kQueued);
  counts[TaskState::kRunning] = 1;
  EXPECT_EQ(JobStateOf(counts), TaskState::kRunning);
}

TEST(JobTest, StateNamesRoundTrip) {
  for (int i = 1; i <= 9; ++i) {
    const auto state = static_cast<TaskState>(i);
    EXPECT_EQ(TaskStateFromString(ToString(state)), state);
  }
  EXPECT_FALSE(TaskStateFromString("lost").has_value());
}

}  // namespace
}  // namespace gpulayer
