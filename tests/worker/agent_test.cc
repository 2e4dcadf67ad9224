// The agent's decisions, one situation a test: what came in, what it wants done.
#include "worker/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

namespace gpulayer::worker {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TimePoint kStart{1h};
const Cause kByAnn = {CauseKind::kCancelled, "cancelled by ann"};

AttemptKey Key(int n, std::int64_t epoch = 1) {
  AttemptKey key;
  key.server = {"s", 1};
  key.ref = {{JobId(n), TaskIndex(0)}, AttemptNo(1)};
  key.id = AttemptId("a" + std::to_string(n));
  key.epoch = WorkerEpoch(epoch);
  return key;
}
AttemptId Id(int n) { return Key(n).id; }

Assignment Work(int n, bool outputs = true) {
  auto spec = std::make_shared<JobSpec>();
  spec->command = {"true"};
  spec->outputs.collect = outputs;
  return {Key(n), UserName("ann"), spec, {}};
}

Outcome Exit(int code) { return {code, {}, {CauseKind::kProgram, ""}}; }
Outcome Lost() { return {{}, {}, {CauseKind::kWorkerLost, "the worker ended"}}; }

// An action in a few letters.
std::string Text(const Action& action) {
  struct {
    std::string operator()(const Prepare& a) { return "prepare " + a.assignment.key.id.value(); }
    std::string operator()(const AbandonPrepare& a) { return "abandon-prepare " + a.id.value(); }
    std::string operator()(const Start& a) { return "start " + a.id.value(); }
    std::string operator()(const StopProgram& a) {
      return "stop " + a.id.value() + " " + std::to_string(a.grace / 1s);
    }
    std::string operator()(const CollectOutputs& a) { return "collect " + a.id.value(); }
    std::string operator()(const AbandonCollect& a) { return "abandon-collect " + a.id.value(); }
    std::string operator()(const ReadLog& a) {
      return "read " + a.id.value() + " " + std::to_string(a.from);
    }
    std::string operator()(const SendProgress& a) {
      return std::string(ToString(a.state)) + " " + a.key.id.value() + "@" +
             std::to_string(a.key.epoch.value());
    }
    std::string operator()(const SendLog& a) {
      return "log " + a.key.id.value() + "@" + std::to_string(a.key.epoch.value()) + " " +
             std::to_string(a.offset) + "+" + std::to_string(a.data.size());
    }
    std::string operator()(const SendEnded& a) {
      return std::string(a.started ? "ended " : "ended-unstarted ") + a.key.id.value() + "@" +
             std::to_string(a.key.epoch.value()) + " " +
             std::string(ToString(a.outcome.cause.kind)) + " log " + std::to_string(a.log_bytes);
    }
    std::string operator()(const Forget& a) { return "forget " + a.id.value(); }
  } text;
  return std::visit(text, action);
}

// Whatever an attempt has come to is told at once.
Agent::Options TellAll() {
  Agent::Options options;
  options.tell_running = 0s;
  options.tell_finishing = 0s;
  options.first_read = 0s;
  return options;
}

class AgentTest : public ::testing::Test {
 protected:
  std::vector<std::string> Do(Event event, Duration passed = 0s) {
    now_ += passed;
    actions_ = agent_.Apply(std::move(event), now_);
    std::vector<std::string> out;
    for (const Action& a : actions_) out.push_back(Text(a));
    return out;
  }
  const SendEnded& LastEnded() {
    for (const Action& a : actions_) {
      if (const auto* ended = std::get_if<SendEnded>(&a)) return *ended;
    }
    static const SendEnded none;
    ADD_FAILURE() << "no SendEnded";
    return none;
  }
  void Connect(std::int64_t epoch = 1, std::vector<int> keep = {}, std::vector<int> kill = {}) {
    (void)DoConnect(epoch, std::move(keep), std::move(kill));
  }
  std::vector<std::string> DoConnect(std::int64_t epoch, std::vector<int> keep,
                                     std::vector<int> kill = {}) {
    Connected e{{"s", 1}, WorkerEpoch(epoch), {}, {}};
    for (int n : keep) e.keep.push_back(Key(n, epoch));
    for (int n : kill) e.kill.push_back(Key(n, epoch));
    return Do(e);
  }
  void Run(int n, bool outputs = true) {
    Do(Assigned{Work(n, outputs)});
    Do(Prepared{Id(n), OkStatus()});
    Do(ProgramStarted{Id(n)});
  }

  Agent agent_{TellAll()};
  TimePoint now_ = kStart;
  std::vector<Action> actions_;
};

TEST_F(AgentTest, AProgramThatTakesNoTimeIsToldOfOnce) {
  agent_ = Agent();
  Connect();
  Run(1, false);
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 0, now_, now_}, 3ms),
              ElementsAre("ended a1@1 program log 0"));
  EXPECT_EQ(agent_.NextTick(), std::nullopt);
}

TEST_F(AgentTest, TheLogOfAShortProgramIsReadOnce) {
  agent_ = Agent();
  Connect();
  Run(1, false);
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 9, now_, now_}, 2ms), ElementsAre("read a1 0"));
  Run(2, false);
  ASSERT_EQ(agent_.NextTick(), now_ + 3ms);
  EXPECT_THAT(Do(Tick{}, 3ms), ElementsAre("read a2 0"));
}

TEST_F(AgentTest, WhatLastsIsTold) {
  agent_ = Agent();
  Connect();
  Run(1);
  EXPECT_THAT(Do(Tick{}, 3ms), ElementsAre("read a1 0"));
  now_ -= 3ms;
  ASSERT_EQ(agent_.NextTick(), now_ + 20ms);
  EXPECT_THAT(Do(Tick{}, 19ms), IsEmpty());
  EXPECT_THAT(Do(Tick{}, 1ms), ElementsAre("running a1@1"));
  EXPECT_EQ(agent_.NextTick(), std::nullopt);
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 0, now_, now_}, 1s), ElementsAre("collect a1"));
  ASSERT_EQ(agent_.NextTick(), now_ + 5ms);
  EXPECT_THAT(Do(Tick{}, 5ms), ElementsAre("finishing a1@1"));
  EXPECT_THAT(Do(OutputsCollected{Id(1), OutputResult{}}), ElementsAre("ended a1@1 program log 0"));
}

TEST_F(AgentTest, ANewSessionIsToldAtOnce) {
  agent_ = Agent();
  Connect();
  Run(1);
  Do(Disconnected{});
  EXPECT_THAT(Do(Tick{}, 20ms), IsEmpty());
  EXPECT_EQ(agent_.NextTick(), std::nullopt);
  EXPECT_THAT(DoConnect(2, {1}), ElementsAre("running a1@2", "read a1 0"));
}

TEST_F(AgentTest, ReportsSayHowLongAgo) {
  Connect();
  Do(Assigned{Work(1, false)});
  Do(Prepared{Id(1), OkStatus()});
  Do(ProgramStarted{Id(1), now_}, 5s);
  EXPECT_EQ(std::get<SendProgress>(actions_.at(0)).started_ago, 5s);
  Do(Disconnected{});
  Do(ProgramEnded{Id(1), true, Exit(0), 0, now_ - 5s, now_ + 10s}, 10s);
  now_ += 300s;
  Connect(2, {1});
  EXPECT_EQ(LastEnded().started_ago, 315s);
  EXPECT_EQ(LastEnded().ended_ago, 300s);
}

TEST_F(AgentTest, TimesOfAnotherBootAreNotCompared) {
  Connect();
  Run(1, false);
  Do(ProgramEnded{Id(1), true, Exit(0), 0, now_ + 1h, now_ + 2h});
  EXPECT_EQ(LastEnded().started_ago, std::nullopt);
  EXPECT_EQ(LastEnded().ended_ago, std::nullopt);
}

TEST_F(AgentTest, GoodProgramComesHomeWhole) {
  Connect();
  EXPECT_THAT(Do(Assigned{Work(1)}), ElementsAre("prepare a1"));
  EXPECT_THAT(Do(Prepared{Id(1), OkStatus()}), ElementsAre("start a1"));
  EXPECT_THAT(Do(ProgramStarted{Id(1)}), ElementsAre("running a1@1", "read a1 0"));
  EXPECT_THAT(Do(LogRead{Id(1), 0, "hello", false}), ElementsAre("log a1@1 0+5", "read a1 5"));
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 8}),
              ElementsAre("finishing a1@1", "collect a1"));
  EXPECT_THAT(Do(LogRead{Id(1), 5, "bye", true}), ElementsAre("log a1@1 5+3"));
  EXPECT_THAT(Do(LogAcked{Key(1), 8, true}), IsEmpty());
  OutputResult outputs;
  outputs.files = 2;
  EXPECT_THAT(Do(OutputsCollected{Id(1), outputs}), ElementsAre("ended a1@1 program log 8"));
  EXPECT_EQ(LastEnded().outputs.files, 2);
  EXPECT_THAT(Do(EndAcked{Key(1), true, {}}), ElementsAre("forget a1"));
  EXPECT_TRUE(agent_.idle());
}

TEST_F(AgentTest, OutputsStoredFirstStillWaitForTheLog) {
  Connect();
  Run(1);
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(3), 4}),
              ElementsAre("finishing a1@1", "collect a1"));
  EXPECT_THAT(Do(OutputsCollected{Id(1), OutputResult{}}), IsEmpty());
  EXPECT_THAT(Do(LogRead{Id(1), 0, "1234", true}),
              ElementsAre("log a1@1 0+4", "ended a1@1 program log 4"));
}

TEST_F(AgentTest, NoOutputsWantedCollectsNone) {
  Connect();
  Run(1, false);
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 0}),
              ElementsAre("finishing a1@1", "ended a1@1 program log 0"));
}

TEST_F(AgentTest, StopWhilePreparingBreaksItOffAndReportsAtOnce) {
  Connect();
  Do(Assigned{Work(1)});
  EXPECT_THAT(Do(StopOrdered{Key(1), kByAnn, 15s}),
              ElementsAre("abandon-prepare a1", "ended-unstarted a1@1 cancelled log 0"));
  EXPECT_EQ(LastEnded().outcome.cause, kByAnn);
  EXPECT_THAT(Do(EndAcked{Key(1), true, {}}), IsEmpty());  // its folder is still being written
  EXPECT_THAT(Do(Prepared{Id(1), OkStatus()}), ElementsAre("forget a1"));
}

TEST_F(AgentTest, NothingStartsAfterAStop) {
  Connect();
  Do(Assigned{Work(1)});
  Do(StopOrdered{Key(1), kByAnn, 15s});
  EXPECT_THAT(Do(Prepared{Id(1), OkStatus()}), IsEmpty());
  EXPECT_THAT(Do(EndAcked{Key(1), true, {}}), ElementsAre("forget a1"));
}

TEST_F(AgentTest, StopOfARunningProgramGivesItsCause) {
  Connect();
  Run(1);
  EXPECT_THAT(Do(StopOrdered{Key(1), kByAnn, 15s}), ElementsAre("stop a1 15"));
  EXPECT_THAT(Do(StopOrdered{Key(1), kByAnn, 0s}), ElementsAre("stop a1 0"));
  Do(ProgramEnded{Id(1), true, {{}, 9, {CauseKind::kCancelled, "stopped"}}, 0});
  EXPECT_THAT(Do(OutputsCollected{Id(1), OutputResult{}}),
              ElementsAre("ended a1@1 cancelled log 0"));
  EXPECT_EQ(LastEnded().outcome, (Outcome{{}, 9, kByAnn}));
}

TEST_F(AgentTest, StopBetweenStartAndRunning) {
  Connect();
  Do(Assigned{Work(1)});
  Do(Prepared{Id(1), OkStatus()});
  EXPECT_THAT(Do(StopOrdered{Key(1), kByAnn, 1s}), ElementsAre("stop a1 1"));
  EXPECT_THAT(Do(ProgramStarted{Id(1)}), ElementsAre("running a1@1", "read a1 0"));
}

TEST_F(AgentTest, StopAfterTheEndChangesNothing) {
  Connect();
  Run(1);
  Do(ProgramEnded{Id(1), true, Exit(0), 0});
  EXPECT_THAT(Do(StopOrdered{Key(1), kByAnn, 15s}), IsEmpty());
  EXPECT_THAT(Do(OutputsCollected{Id(1), OutputResult{}}), ElementsAre("ended a1@1 program log 0"));
}

TEST_F(AgentTest, FailedPreparationIsChargedToWhoeverIsAtFault) {
  Connect();
  struct {
    StatusCode code;
    const char* cause;
  } const rows[] = {
      {StatusCode::kNotFound, "preparation"},  {StatusCode::kInvalidArgument, "preparation"},
      {StatusCode::kDataLoss, "preparation"},  {StatusCode::kResourceExhausted, "spawn_failed"},
      {StatusCode::kInternal, "spawn_failed"}, {StatusCode::kPermissionDenied, "spawn_failed"}};
  int n = 0;
  for (const auto& row : rows) {
    Do(Assigned{Work(++n)});
    EXPECT_THAT(
        Do(Prepared{Id(n), Status(row.code, "x")}),
        ElementsAre("ended-unstarted a" + std::to_string(n) + "@1 " + row.cause + " log 0"));
  }
}

TEST_F(AgentTest, PreparationThatTheLinkBrokeIsRepeated) {
  Connect();
  Do(Assigned{Work(1)});
  EXPECT_THAT(Do(Prepared{Id(1), Unavailable("cut")}), IsEmpty());
  ASSERT_TRUE(agent_.NextTick().has_value());
  EXPECT_EQ(*agent_.NextTick(), now_ + 2s);
  EXPECT_THAT(Do(Tick{}, 1s), IsEmpty());
  EXPECT_THAT(Do(Tick{}, 1s), ElementsAre("prepare a1"));
  Do(Disconnected{});
  EXPECT_THAT(Do(Prepared{Id(1), Unavailable("cut")}), IsEmpty());
  EXPECT_THAT(Do(Tick{}, 10s), IsEmpty());
  EXPECT_THAT(DoConnect(2, {1}), ElementsAre("prepare a1"));
}

TEST_F(AgentTest, PreparationHasALimitOfItsOwn) {
  Connect();
  Do(Assigned{Work(1)});
  EXPECT_THAT(Do(Tick{}, 10h), IsEmpty());  // others are before it
  Do(PrepareBegun{Id(1)});
  EXPECT_EQ(*agent_.NextTick(), now_ + 30min);
  EXPECT_THAT(Do(Tick{}, 29min), IsEmpty());
  EXPECT_THAT(Do(Tick{}, 1min),
              ElementsAre("abandon-prepare a1", "ended-unstarted a1@1 preparation log 0"));
}

TEST_F(AgentTest, PreparationsLimitCountsAllTriesAndNoWaits) {
  Connect();
  Do(Assigned{Work(1)});
  Do(PrepareBegun{Id(1)});
  Do(Prepared{Id(1), Unavailable("cut")}, 20min);
  Do(Disconnected{});
  EXPECT_THAT(Do(Tick{}, 10h), IsEmpty());
  EXPECT_THAT(DoConnect(2, {1}), ElementsAre("prepare a1"));
  EXPECT_THAT(Do(Tick{}, 10h), IsEmpty());
  Do(PrepareBegun{Id(1)});
  EXPECT_THAT(Do(Tick{}, 10min),
              ElementsAre("abandon-prepare a1", "ended-unstarted a1@2 preparation log 0"));
}

TEST_F(AgentTest, StartThatFailedIsReported) {
  Connect();
  Do(Assigned{Work(1)});
  Do(Prepared{Id(1), OkStatus()});
  EXPECT_THAT(Do(ProgramEnded{Id(1), false, {127, {}, {CauseKind::kNotFound, "no such"}}, 0}),
              ElementsAre("ended-unstarted a1@1 not_found log 0"));
}

TEST_F(AgentTest, ServerCutLeavesTheProgramAloneAndRepeatsWhatIsUnconfirmed) {
  Connect();
  Run(1);
  EXPECT_THAT(Do(LogRead{Id(1), 0, "0123", false}), ElementsAre("log a1@1 0+4", "read a1 4"));
  EXPECT_THAT(Do(LogRead{Id(1), 4, "456789", false}), ElementsAre("log a1@1 4+6", "read a1 10"));
  Do(LogAcked{Key(1), 4, true});
  EXPECT_THAT(Do(Disconnected{}), IsEmpty());
  EXPECT_THAT(Do(LogRead{Id(1), 10, "lost", false}), IsEmpty());
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 14}), ElementsAre("collect a1"));
  EXPECT_THAT(Do(OutputsCollected{Id(1), OutputResult{}}), IsEmpty());
  EXPECT_THAT(DoConnect(2, {1}), ElementsAre("finishing a1@2", "read a1 4"));
  EXPECT_THAT(Do(LogRead{Id(1), 4, "0123456789", true}),
              ElementsAre("log a1@2 4+10", "ended a1@2 program log 14"));
  Do(Disconnected{});
  EXPECT_THAT(DoConnect(3, {1}), ElementsAre("finishing a1@3", "read a1 4"));
  EXPECT_THAT(Do(LogRead{Id(1), 4, "0123456789", true}),
              ElementsAre("log a1@3 4+10", "ended a1@3 program log 14"));
  EXPECT_THAT(Do(EndAcked{Key(1, 3), true, {}}), ElementsAre("forget a1"));
}

TEST_F(AgentTest, HeldListsEverythingUnconfirmed) {
  Connect();
  Do(Assigned{Work(1)});
  Run(2);
  Run(3);
  Do(ProgramEnded{Id(3), true, Exit(0), 0});
  EXPECT_THAT(agent_.HeldAttempts(), ElementsAre(Agent::Held{Key(1), AttemptState::kPreparing},
                                                 Agent::Held{Key(2), AttemptState::kRunning},
                                                 Agent::Held{Key(3), AttemptState::kFinishing}));
}

TEST_F(AgentTest, KilledAttemptsEndAndAreNeverReported) {
  Connect();
  Do(Assigned{Work(1)});
  Run(2);
  Run(3);
  Do(ProgramEnded{Id(3), true, Exit(0), 0});
  Do(Disconnected{});
  EXPECT_THAT(DoConnect(2, {}, {1, 2, 3}),
              ElementsAre("abandon-prepare a1", "stop a2 0", "abandon-collect a3"));
  EXPECT_THAT(Do(Prepared{Id(1), OkStatus()}), ElementsAre("forget a1"));
  EXPECT_THAT(Do(ProgramEnded{Id(2), true, Exit(0), 7}), ElementsAre("forget a2"));
  EXPECT_THAT(Do(OutputsCollected{Id(3), Cancelled("x")}), ElementsAre("forget a3"));
  EXPECT_TRUE(agent_.idle());
}

TEST_F(AgentTest, AttemptTheServerDoesNotNameIsKilled) {
  Connect();
  Run(1);
  Do(Disconnected{});
  EXPECT_THAT(DoConnect(2, {}, {}), ElementsAre("stop a1 0"));
}

TEST_F(AgentTest, LogWindowBoundsWhatIsUnderWay) {
  Agent::Options options = TellAll();
  options.log_window_bytes = 10;
  agent_ = Agent(options);
  Connect();
  Run(1);
  EXPECT_THAT(Do(LogRead{Id(1), 0, "0123456789", false}), ElementsAre("log a1@1 0+10"));
  EXPECT_THAT(Do(LogAcked{Key(1), 10, true}), ElementsAre("read a1 10"));
}

TEST_F(AgentTest, LogThatWasNotTakenIsSentAgainAfterAPause) {
  Connect();
  Run(1, false);
  Do(LogRead{Id(1), 0, "01234", false});
  Do(LogRead{Id(1), 5, "56789", true});
  Do(ProgramEnded{Id(1), true, Exit(0), 10});
  EXPECT_THAT(Do(LogAcked{Key(1), 0, true}), IsEmpty());
  EXPECT_THAT(Do(LogAcked{Key(1), 0, true}), IsEmpty());
  EXPECT_THAT(Do(Tick{}, 1s), ElementsAre("read a1 0"));
  EXPECT_THAT(Do(LogRead{Id(1), 0, "0123456789", true}),
              ElementsAre("log a1@1 0+10", "ended a1@1 program log 10"));
}

TEST_F(AgentTest, ServerThatMissesLogBytesAtTheEndGetsThemAgain) {
  Connect();
  Run(1, false);
  Do(LogRead{Id(1), 0, "012345", false});
  Do(LogRead{Id(1), 6, "6789", true});
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 10}),
              ElementsAre("finishing a1@1", "ended a1@1 program log 10"));
  EXPECT_THAT(Do(EndAcked{Key(1), true, 6}), ElementsAre("read a1 6"));
  EXPECT_THAT(Do(LogRead{Id(1), 6, "6789", true}),
              ElementsAre("log a1@1 6+4", "ended a1@1 program log 10"));
  Do(LogAcked{Key(1), 10, true});
  // Bytes that were confirmed are missing: where its pieces began is not known any more.
  EXPECT_THAT(Do(EndAcked{Key(1), true, 6}), ElementsAre("read a1 0"));
}

// A full disk takes part of a piece. A log can be read on between frames only.
TEST_F(AgentTest, LogGoesOnFromAPieceThatWasTakenWhole) {
  Connect();
  Run(1, false);
  Do(LogRead{Id(1), 0, "01234", false});
  Do(LogRead{Id(1), 5, "56789", false});
  EXPECT_THAT(Do(LogAcked{Key(1), 5, true}), IsEmpty());
  EXPECT_THAT(Do(LogAcked{Key(1), 7, true}), IsEmpty());
  EXPECT_THAT(Do(Tick{}, 1s), ElementsAre("read a1 5"));
}

// As of an attempt of the same name before the server's data was put back.
TEST_F(AgentTest, ServerThatHasMoreThanWasWrittenIsNotBelieved) {
  Connect();
  Run(1, false);
  EXPECT_THAT(Do(LogRead{Id(1), 0, "01234", false}), ElementsAre("log a1@1 0+5", "read a1 5"));
  EXPECT_THAT(Do(LogAcked{Key(1), 1000, true}), IsEmpty());
  EXPECT_THAT(Do(LogRead{Id(1), 5, "56789", true}), ElementsAre("log a1@1 5+5"));
  EXPECT_THAT(Do(LogAcked{Key(1), 1000, true}), IsEmpty());
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 10}),
              ElementsAre("finishing a1@1", "ended a1@1 program log 10"));
}

TEST_F(AgentTest, RefusedLogIsNotSentButTheEndIs) {
  Connect();
  Run(1, false);
  Do(LogRead{Id(1), 0, "01234", false});
  EXPECT_THAT(Do(LogAcked{Key(1), 0, false}), IsEmpty());
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Exit(0), 10}),
              ElementsAre("finishing a1@1", "ended a1@1 program log 10"));
  EXPECT_THAT(Do(EndAcked{Key(1), false, {}}), ElementsAre("forget a1"));
}

TEST_F(AgentTest, DamagedLogEndsWhereItIsDamaged) {
  Connect();
  Run(1, false);
  Do(ProgramEnded{Id(1), true, Exit(0), 10});
  EXPECT_THAT(Do(LogFailed{Id(1), 0}), ElementsAre("ended a1@1 program log 0"));
}

TEST_F(AgentTest, GoodProgramWhoseOutputsCannotBeStoredIsAFailure) {
  Connect();
  Run(1);
  Do(ProgramEnded{Id(1), true, Exit(0), 0});
  EXPECT_THAT(Do(OutputsCollected{Id(1), Internal("no such folder")}),
              ElementsAre("ended a1@1 outputs_not_stored log 0"));
  EXPECT_EQ(LastEnded().outcome.exit_code, 0);
  EXPECT_EQ(LastEnded().outputs.left_out_count, 1);
}

TEST_F(AgentTest, FailedProgramKeepsItsCauseWithoutOutputs) {
  Connect();
  Run(1);
  Do(ProgramEnded{Id(1), true, Exit(7), 0});
  EXPECT_THAT(Do(OutputsCollected{Id(1), Internal("no such folder")}),
              ElementsAre("ended a1@1 program log 0"));
  EXPECT_EQ(LastEnded().outcome, Exit(7));
}

TEST_F(AgentTest, AFolderIsKeptOfFailuresThatAskForItAlone) {
  const auto outcome = [](CauseKind kind, std::optional<int> code) {
    return Outcome{code, {}, {kind, ""}};
  };
  struct Row {
    bool asked;
    Outcome outcome;
    bool keep;
  };
  const std::vector<Row> rows = {
      {true, Exit(0), false},
      {true, Exit(7), true},
      {false, Exit(7), false},
      {true, outcome(CauseKind::kSignal, {}), true},
      {true, outcome(CauseKind::kOutOfMemory, {}), true},
      {true, outcome(CauseKind::kTimeLimit, {}), true},
      {true, outcome(CauseKind::kNotFound, 127), true},
      {true, outcome(CauseKind::kCancelled, {}), false},
      {true, outcome(CauseKind::kSpawnFailed, {}), false},
      {true, outcome(CauseKind::kWorkerLost, {}), false},
  };
  Connect();
  int n = 0;
  for (const Row& row : rows) {
    Assignment work = Work(++n, false);
    auto spec = std::make_shared<JobSpec>(*work.spec);
    spec->keep = row.asked;
    work.spec = spec;
    Do(Assigned{work});
    Do(Prepared{Id(n), OkStatus()});
    Do(ProgramStarted{Id(n)});
    Do(ProgramEnded{Id(n), true, row.outcome, 0});
    EXPECT_EQ(LastEnded().keep, row.keep) << n;
  }
}

TEST_F(AgentTest, FullServerIsOfferedOutputsForAWhile) {
  Connect();
  Run(1);
  Do(ProgramEnded{Id(1), true, Exit(0), 0});
  EXPECT_THAT(Do(OutputsCollected{Id(1), ResourceExhausted("server disk full")}), IsEmpty());
  EXPECT_THAT(Do(Tick{}, 2s), ElementsAre("collect a1"));
  EXPECT_THAT(Do(OutputsCollected{Id(1), ResourceExhausted("server disk full")}, 10min),
              ElementsAre("ended a1@1 outputs_not_stored log 0"));
}

TEST_F(AgentTest, MachineShortOfSomethingTriesOutputsAgain) {
  Connect();
  Run(1);
  Do(ProgramEnded{Id(1), true, Exit(0), 0});
  EXPECT_THAT(Do(OutputsCollected{Id(1), ErrnoStatus("open", EMFILE)}), IsEmpty());
  EXPECT_THAT(Do(Tick{}, 2s), ElementsAre("collect a1"));
  EXPECT_THAT(Do(OutputsCollected{Id(1), OutputResult{}}), ElementsAre("ended a1@1 program log 0"));
}

TEST_F(AgentTest, AdoptedAttemptsGoOn) {
  EXPECT_THAT(Do(Adopted{Work(1), true}), IsEmpty());
  EXPECT_THAT(Do(Adopted{Work(2), true}), IsEmpty());
  EXPECT_THAT(Do(Adopted{Work(3), false}), IsEmpty());
  EXPECT_THAT(Do(ProgramStarted{Id(1)}), IsEmpty());
  EXPECT_THAT(Do(ProgramEnded{Id(2), true, Exit(7), 3}), ElementsAre("collect a2"));
  EXPECT_THAT(DoConnect(5, {1, 2, 3}), ElementsAre("running a1@5", "read a1 0", "finishing a2@5",
                                                   "read a2 0", "prepare a3"));
}

TEST_F(AgentTest, F47_AnAttemptWithoutItsSecretsIsGivenBack) {
  const auto secret = [](int n) {
    Assignment work = Work(n);
    auto spec = std::make_shared<JobSpec>(*work.spec);
    spec->secrets = {"TOK"};
    work.spec = spec;
    return work;
  };
  // Found by a daemon that was restarted: what runs goes on, what was not begun is another's.
  Do(Adopted{secret(1), true});
  Do(Adopted{secret(2), false});
  EXPECT_THAT(DoConnect(5, {1, 2}), ElementsAre("ended-unstarted a2@5 worker_lost log 0"));
  EXPECT_FALSE(LastEnded().started);
  EXPECT_THAT(LastEnded().outcome.cause.text, HasSubstr("secrets"));
  Assignment whole = secret(3);
  whole.key = Key(3, 5);
  whole.secrets = std::make_shared<const std::vector<EnvVar>>(1, EnvVar{"TOK", "x"});
  EXPECT_THAT(Do(Assigned{whole}), ElementsAre("prepare a3"));
}

TEST_F(AgentTest, StopOrderRepeatedAfterARestartNamesWhoGaveIt) {
  Do(Adopted{Work(1, false), true});
  Do(ProgramEnded{Id(1), true, {{}, 15, {CauseKind::kCancelled, "stopped"}}, 2});
  Connect(5, {1});
  Do(StopOrdered{Key(1, 5), kByAnn, 15s});
  EXPECT_THAT(Do(LogRead{Id(1), 0, "ab", true}),
              ElementsAre("log a1@5 0+2", "ended a1@5 cancelled log 2"));
  EXPECT_EQ(LastEnded().outcome.cause, kByAnn);
}

TEST_F(AgentTest, LeavingHandsWorkBackUncharged) {
  Connect();
  Do(Assigned{Work(1)});
  Run(2);
  EXPECT_THAT(Do(Leaving{}),
              ElementsAre("abandon-prepare a1", "ended-unstarted a1@1 server_stopped log 0"));
  EXPECT_THAT(Do(ProgramEnded{Id(2), true, Lost(), 0}),
              ElementsAre("ended a2@1 server_stopped log 0"));
  EXPECT_THAT(Do(Assigned{Work(3)}), ElementsAre("ended-unstarted a3@1 server_stopped log 0"));
}

TEST_F(AgentTest, StartThatCameTooLateForAPlannedStopIsHandedBack) {
  Connect();
  Do(Assigned{Work(1)});
  Do(Prepared{Id(1), OkStatus()});
  EXPECT_THAT(Do(Leaving{}), IsEmpty());
  const Outcome refused = {{}, {}, {CauseKind::kSpawnFailed, "cannot start: shut down"}};
  EXPECT_THAT(Do(ProgramEnded{Id(1), false, refused, 0}),
              ElementsAre("ended-unstarted a1@1 server_stopped log 0"));
}

TEST_F(AgentTest, LostProgramBringsNothingHome) {
  Connect();
  Run(1);
  EXPECT_THAT(Do(ProgramEnded{Id(1), true, Lost(), 0}),
              ElementsAre("ended a1@1 worker_lost log 0"));
}

TEST_F(AgentTest, WordsOfUnknownAttemptsChangeNothing) {
  Connect();
  EXPECT_THAT(Do(StopOrdered{Key(9), kByAnn, 0s}), IsEmpty());
  EXPECT_THAT(Do(EndAcked{Key(9), true, {}}), IsEmpty());
  EXPECT_THAT(Do(LogAcked{Key(9), 5, true}), IsEmpty());
  EXPECT_THAT(Do(ProgramEnded{Id(9), true, Exit(0), 0}), IsEmpty());
  EXPECT_THAT(Do(LogRead{Id(9), 0, "x", true}), IsEmpty());
}

TEST_F(AgentTest, AssignmentThatComesTwiceRunsOnce) {
  Connect();
  Run(1);
  EXPECT_THAT(Do(Assigned{Work(1)}), IsEmpty());
}

}  // namespace
}  // namespace gpulayer::worker
