// How programs are ended: time limit, stop, grace, sweep, and what runs away from all of them.
#include <fcntl.h>

#include "exec/exec_fixture.h"

namespace gpulayer::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;

using StopTest = ExecTest;

TEST_F(StopTest, F01_GrandchildrenDoNotSurvive) {
  const AttemptId id = Start(Shell("bash -c 'sleep 9999 & echo up; wait' & wait"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Stop(id, 10s).ok());
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.signal, SIGTERM);
  EXPECT_EQ(s.order, StopOrder::kStop);
  EXPECT_FALSE(s.killed);
  EXPECT_THAT(Took(s), Lt(8s));
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kCancelled);
}

TEST_F(StopTest, F02_WhatLeftTheSessionIsSweptAtTheEnd) {
  const AttemptStatus s = Run(Shell("setsid -f sleep 9999; exit 3"));
  EXPECT_EQ(s.exit_code, 3);
  EXPECT_EQ(s.order, StopOrder::kNone);
  EXPECT_EQ(s.swept, 1);
  ASSERT_EQ(s.swept_names.size(), 1u);
  EXPECT_THAT(s.swept_names[0], AnyOf(HasSubstr(" sleep"), HasSubstr(" setsid")));
  EXPECT_FALSE(s.killed);
  EXPECT_THAT(Took(s), Lt(5s));
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kProgram);
}

TEST_F(StopTest, AJobThatStopsItsMonitorStopsNothing) {
  AttemptSpec spec = Shell("kill -STOP $PPID; echo up; exec sleep 9999");
  spec.time_limit = 200ms;
  const AttemptStatus limited = Run(spec);
  EXPECT_EQ(limited.order, StopOrder::kTimeLimit);
  EXPECT_EQ(limited.signal, SIGTERM);

  const AttemptId id = Start(Shell("while :; do kill -STOP $PPID; echo up; sleep 0.01; done"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Stop(id, 10s).ok());
  EXPECT_EQ(Await(id).order, StopOrder::kStop);
}

// A daemon made by two forks that wiped its environment, too.
constexpr char kDaemon[] =
    "(setsid env -i /bin/bash -c 'trap \"\" TERM HUP; echo $$ >'$D'/daemon.tmp;"
    " mv '$D'/daemon.tmp '$D'/daemon; exec sleep 9999' & );"
    " while ! [ -s $D/daemon ]; do sleep 0.01; done;";

TEST_F(StopTest, F02_ADoubleForkedDaemonIsSwept) {
  const AttemptStatus s = Run(Shell(std::string(kDaemon) + "exit 0"));
  EXPECT_EQ(s.exit_code, 0);
  EXPECT_GE(s.swept, 1);  // its `mv` may still be on the way out
  EXPECT_FALSE(IsAlive(std::stoi(*ReadFile(dir_ / "daemon"))));
}

TEST_F(StopTest, F02_ADoubleForkedDaemonIsEndedByAStop) {
  const AttemptId id = Start(Shell(std::string(kDaemon) + "echo up; exec sleep 9999"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Stop(id, 100ms).ok());
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.signal, SIGTERM);  // the main program; the daemon had to be killed
  EXPECT_TRUE(s.killed);
  EXPECT_FALSE(IsAlive(std::stoi(*ReadFile(dir_ / "daemon"))));
}

TEST_F(StopTest, ADaemonThatLeftTheGroupIsAskedToEndToo) {
  const AttemptId id =
      Start(Shell("setsid -f bash -c 'trap \"echo saved >$D/saved; exit\" TERM; echo up;"
                  " while :; do sleep 0.02; done'; exec sleep 9999"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Stop(id, 20s).ok());
  const AttemptStatus s = Await(id);
  EXPECT_FALSE(s.killed);
  EXPECT_THAT(Took(s), Lt(15s));
  EXPECT_EQ(*ReadFile(dir_ / "saved"), "saved\n");
}

TEST_F(StopTest, F03_TheGraceIsForTheWholeTree) {
  // bash dies of SIGTERM at once; its child needs a while to save.
  const AttemptId id =
      Start(Shell("bash -c 'trap \"sleep 0.5; echo whole >$D/file; exit 0\" TERM; echo up;"
                  " while :; do sleep 0.02; done'; true"));
  ASSERT_TRUE(Prints(id, "up"));
  const TimePoint ordered = Clock::System().Now().mono;
  ASSERT_TRUE(client_->Stop(id, 15s).ok());
  const AttemptStatus s = Await(id);
  EXPECT_EQ(*ReadFile(dir_ / "file"), "whole\n");
  EXPECT_FALSE(s.killed);
  EXPECT_EQ(s.swept, 0);
  EXPECT_THAT(s.ended.mono - ordered, AllOf(Ge(500ms), Lt(10s)));
}

TEST_F(StopTest, F03_TheSameAtTheTimeLimit) {
  AttemptSpec spec = Shell(
      "bash -c 'trap \"sleep 0.3; echo whole >$D/file; exit 0\" TERM;"
      " while :; do sleep 0.02; done'; true");
  spec.time_limit = 300ms;
  spec.grace = 15s;
  const AttemptStatus s = Run(spec);
  EXPECT_EQ(*ReadFile(dir_ / "file"), "whole\n");
  EXPECT_EQ(s.order, StopOrder::kTimeLimit);
  EXPECT_FALSE(s.killed);
  EXPECT_THAT(Took(s), AllOf(Ge(600ms), Lt(10s)));
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kTimeLimit);
}

TEST_F(StopTest, F05_TheTimeLimitHoldsAgainstAProgramThatIgnoresTerm) {
  AttemptSpec spec = Shell("trap '' TERM; while :; do sleep 0.02; done");
  spec.time_limit = 200ms;
  spec.grace = 200ms;
  const AttemptStatus s = Run(spec);
  EXPECT_EQ(s.signal, SIGKILL);
  EXPECT_EQ(s.order, StopOrder::kTimeLimit);
  EXPECT_TRUE(s.killed);
  EXPECT_THAT(Took(s), AllOf(Ge(400ms), Lt(4s)));
}

TEST_F(StopTest, F06_TheTimeLimitLeavesAQuickProgramAlone) {
  AttemptSpec spec = Shell("sleep 0.1");
  spec.time_limit = 30s;
  const AttemptStatus s = Run(spec);
  EXPECT_EQ(s.exit_code, 0);
  EXPECT_EQ(s.order, StopOrder::kNone);
}

TEST_F(StopTest, AnExitCodeGivenUnderAStopIsKept) {
  const AttemptId id = Start(Shell("trap 'exit 9' TERM; echo up; while :; do sleep 0.02; done"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Stop(id, 15s).ok());
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.exit_code, 9);
  EXPECT_EQ(s.order, StopOrder::kStop);
}

TEST_F(StopTest, ASecondStopShortensTheGraceAndTheFirstIsTheCause) {
  AttemptSpec spec = Shell("trap '' TERM; echo up; while :; do sleep 0.02; done");
  spec.time_limit = 200ms;
  spec.grace = 600s;
  const AttemptId id = Start(spec);
  ASSERT_TRUE(Prints(id, "up"));
  // Waits for the limit to have struck: the program runs on in its grace.
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(Eventually([&] { return std::chrono::steady_clock::now() - begun > 500ms; }));
  EXPECT_EQ(ear_.Ends(id), 0u);
  ASSERT_TRUE(client_->Stop(id, 0s).ok());
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.signal, SIGKILL);
  EXPECT_EQ(s.order, StopOrder::kTimeLimit);
  EXPECT_TRUE(s.killed);
}

TEST_F(StopTest, ALaterStopDoesNotLengthenTheGrace) {
  const AttemptId id = Start(Shell("trap '' TERM; echo up; while :; do sleep 0.02; done"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Stop(id, 200ms).ok());
  ASSERT_TRUE(client_->Stop(id, 600s).ok());
  EXPECT_EQ(Await(id).signal, SIGKILL);
}

TEST_F(StopTest, AStoppedProgramHearsTheOrder) {
  const AttemptId id = Start(Shell("echo up; kill -STOP $$; exit 5"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Stop(id, 20s).ok());
  const AttemptStatus s = Await(id);
  EXPECT_FALSE(s.killed);
  EXPECT_EQ(s.signal, SIGTERM);
}

TEST_F(StopTest, AForkBombIsGone) {
  // Keeps about fifty processes alive that ignore SIGTERM, leave the session and replace each
  // other.
  const AttemptId id =
      Start(Shell("trap '' TERM; f() { trap '' TERM; sleep 0.0$((RANDOM % 9)); setsid -f bash -c "
                  "\"$(declare -f "
                  "f); f\"; }; export -f f; for i in $(seq 50); do setsid -f bash -c f; done; echo "
                  "up; sleep 9999"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(client_->Stop(id, 300ms).ok());
  const AttemptStatus s = Await(id);
  EXPECT_TRUE(s.killed);
  EXPECT_GT(s.swept, 0);
  EXPECT_FALSE(s.swept_names.empty());
  EXPECT_EQ(s.unreachable, 0);
}

TEST_F(StopTest, AForkBombLeftBehindIsSwept) {
  const AttemptStatus s = Run(Shell(
      "f() { sleep 0.0$((RANDOM % 9)); setsid -f bash -c \"$(declare -f f); f\"; }; export -f f;"
      "for i in $(seq 30); do setsid -f bash -c f; done; exit 2"));
  EXPECT_EQ(s.exit_code, 2);
  EXPECT_EQ(s.order, StopOrder::kNone);
  EXPECT_GT(s.swept, 0);
}

TEST_F(StopTest, AStopAtAnyMomentIsEitherTooLateOrHeard) {
  int stopped = 0;
  for (int i = 0; i < 60; ++i) {
    const AttemptId id = Start(Shell("sleep 0.02"));
    if (i % 3 == 1) {
      ASSERT_TRUE(Eventually([&] { return ear_.Started(id); }));
    }
    if (i % 3 == 2) {
      ASSERT_TRUE(Eventually([&] { return ear_.Ends(id) > 0; }));
    }
    ASSERT_TRUE(client_->Stop(id, i % 2 == 0 ? Duration(0) : Duration(10s)).ok());
    const AttemptStatus s = Await(id);
    if (s.order == StopOrder::kNone) {
      EXPECT_EQ(s.exit_code, 0);
    } else {
      ++stopped;
    }
    if (i % 3 == 2) {
      EXPECT_EQ(s.order, StopOrder::kNone);
    }
  }
  EXPECT_GT(stopped, 0);
}

TEST_F(StopTest, APipeHeldFromOutsideDoesNotHang) {
  // A process outside the tree opens the program's standard output through /proc and keeps it.
  const AttemptId id = Start(Shell("echo up; while ! [ -e $D/held ]; do sleep 0.01; done; exit 6"));
  ASSERT_TRUE(Prints(id, "up"));
  ASSERT_TRUE(Eventually([&] { return ear_.Started(id); }));
  const std::string pipe = "/proc/" + std::to_string(ear_.Pid(id)) + "/fd/1";
  const Result<UniqueFd> held = OpenFile(pipe, O_WRONLY);
  ASSERT_TRUE(held.ok()) << held.status().ToString();
  WriteScript("held", "");
  const AttemptStatus s = Await(id);
  EXPECT_EQ(s.exit_code, 6);
  EXPECT_EQ(Output(id), "up\n");
}

TEST_F(StopTest, ManyAtOnce) {
  std::vector<AttemptId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(Start(Shell("sleep 9999 & echo up; wait")));
  for (const AttemptId& id : ids) ASSERT_TRUE(Prints(id, "up"));
  EXPECT_EQ(client_->List()->size(), ids.size());
  for (const AttemptId& id : ids) ASSERT_TRUE(client_->Stop(id, 15s).ok());
  for (const AttemptId& id : ids) EXPECT_EQ(Await(id).signal, SIGTERM);
  EXPECT_THAT(*client_->List(), IsEmpty());
}

}  // namespace
}  // namespace gpulayer::testing
