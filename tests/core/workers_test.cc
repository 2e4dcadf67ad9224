#include "core/bench.h"

namespace gpulayer::testing {
namespace {

using core::CloseSession;
using core::SendWelcome;

const Resources kSmall{4, 16ll << 30, {}};

TEST(WorkersTest, SilenceIsFirstSuspectThenLost) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Pass(11s);
  EXPECT_EQ(b.View("w1").state, WorkerState::kSuspect);
  EXPECT_EQ(b.core().Explain(job, b.now())->summary,
            "no task of it waits; w1, where it runs, was not heard of lately");
  EXPECT_EQ(b.State(job), TaskState::kRunning);
  const JobId second = b.Submit({});
  EXPECT_EQ(b.State(second), TaskState::kQueued);  // no new work
  b.Pass(50s);
  EXPECT_EQ(b.View("w1").state, WorkerState::kOffline);
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  EXPECT_EQ(b.Task(job).losses, 1);
  const AttemptRecord& attempt = b.store.attempts.begin()->second;
  EXPECT_EQ(attempt.state, AttemptState::kLost);
  EXPECT_EQ(attempt.outcome.cause.text, "worker w1 was not heard of for 1m");
}

TEST(WorkersTest, ARevokedWorkerIsLostAtOnce) {
  Bench b;
  const SessionId s = b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  const AttemptKey old = b.Key(job);
  b.Apply(core::WorkerRevoked{WorkerId("id-w1")});
  EXPECT_EQ(b.View("w1").state, WorkerState::kOffline);
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  EXPECT_EQ(b.store.attempts.at(old.ref).outcome.cause.text,
            "the credential of worker w1 was revoked");
  const auto closes = All<CloseSession>(b.last);
  ASSERT_EQ(closes.size(), 1u);
  EXPECT_EQ(closes[0].session, s);
  EXPECT_EQ(closes[0].reason.code(), StatusCode::kUnauthenticated);
  // Its stream's own end comes behind, and says nothing new.
  b.Apply(core::WorkerDisconnected{s});
  b.Apply(core::Tick{});
  EXPECT_EQ(b.View("w1").state, WorkerState::kOffline) << "it is not waited for";
  // Another one goes on with the job; back with a new credential, what it held is ended.
  b.Connect("w2");
  EXPECT_EQ(b.WorkerOf(job), "w2");
  b.Connect("w1", kSmall, {{old, AttemptState::kRunning}});
  EXPECT_THAT(All<SendWelcome>(b.last)[0].kill, ::testing::ElementsAre(old));
  b.Apply(core::WorkerRevoked{WorkerId("id-unknown")});
}

TEST(WorkersTest, BackInsideTheLeaseKeepsItsJobs) {
  Bench b;
  const SessionId s = b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Pass(50s);
  b.Apply(core::WorkerHeard{s, std::nullopt});
  EXPECT_EQ(b.View("w1").state, WorkerState::kOnline);
  b.Pass(5s);
  EXPECT_EQ(b.Submit({}), JobId(2));
  EXPECT_EQ(b.State(JobId(2)), TaskState::kPreparing);
  b.Ended(job);
  EXPECT_EQ(b.State(job), TaskState::kSucceeded);
}

TEST(WorkersTest, TimeInWhichTheServerStoodStillIsNotHeldAgainstWorkers) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Step(10min);
  b.Apply(core::Tick{});
  EXPECT_EQ(b.View("w1").state, WorkerState::kOnline);
  EXPECT_EQ(b.State(job), TaskState::kRunning);
}

TEST(WorkersTest, ARestartedServerGivesAFullLease) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Pass(55s);
  b.Restart();
  b.Pass(55s);
  EXPECT_EQ(b.State(job), TaskState::kRunning);
  b.Connect("w1", kSmall, {{b.Key(job), AttemptState::kRunning}});
  b.Ended(job);
  EXPECT_EQ(b.State(job), TaskState::kSucceeded);
}

TEST(WorkersTest, ReconnectKeepsWhatIsCurrentAndKillsWhatIsNot) {
  Bench b;
  const SessionId old = b.Connect("w1");
  const JobId kept = b.Submit({});
  b.Running(kept);
  const JobId gone = b.Submit({});
  b.Running(gone);
  const JobId never_arrived = b.Submit({});
  AttemptKey foreign = b.Key(kept);
  foreign.server.incarnation = 7;
  AttemptKey earlier = b.Key(gone);
  earlier.ref.number = AttemptNo(9);
  const AttemptKey held = b.Key(kept);
  const SessionId fresh = b.Connect("w1", kSmall,
                                    {{held, AttemptState::kRunning},
                                     {held, AttemptState::kRunning},
                                     {foreign, AttemptState::kRunning},
                                     {earlier, AttemptState::kRunning}});
  const auto closes = All<CloseSession>(b.last);
  ASSERT_EQ(closes.size(), 1u);
  EXPECT_EQ(closes[0].session, old);
  const auto welcomes = All<SendWelcome>(b.last);
  ASSERT_EQ(welcomes.size(), 1u);
  EXPECT_EQ(welcomes[0].session, fresh);
  EXPECT_EQ(welcomes[0].epoch, WorkerEpoch(2));
  ASSERT_EQ(welcomes[0].keep.size(), 1u);
  EXPECT_EQ(welcomes[0].keep[0].ref, held.ref);
  EXPECT_EQ(welcomes[0].keep[0].epoch, WorkerEpoch(2));
  EXPECT_THAT(welcomes[0].kill, ::testing::ElementsAre(foreign, earlier));
  EXPECT_EQ(b.State(kept), TaskState::kRunning);
  EXPECT_EQ(b.Task(gone).losses, 1);
  EXPECT_EQ(b.Task(never_arrived).losses, 0);  // it never started
  EXPECT_EQ(b.Task(never_arrived).attempts, AttemptNo(2));
  // The late farewell of the old session takes nothing away.
  b.Apply(core::WorkerDisconnected{old});
  EXPECT_EQ(b.View("w1").state, WorkerState::kOnline);
}

TEST(WorkersTest, AReportThatWentDownWithTheSessionIsMadeGood) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Connect("w1", kSmall, {{b.Key(job), AttemptState::kRunning}});
  EXPECT_EQ(b.State(job), TaskState::kRunning);
}

TEST(WorkersTest, ANewBootLosesWhatRan) {
  Bench b;
  b.Connect("w1");
  const JobId running = b.Submit({});
  b.Running(running);
  const JobId over = b.Submit({});
  b.Finishing(over);
  b.Connect("w1", kSmall,
            {{b.Key(running), AttemptState::kRunning}, {b.Key(over), AttemptState::kFinishing}},
            "another boot");
  EXPECT_EQ(b.Task(running).losses, 1);
  EXPECT_EQ(All<SendWelcome>(b.last)[0].kill.size(), 1u);
  EXPECT_EQ(b.State(over), TaskState::kFinishing);
}

TEST(WorkersTest, APoisonJobEnds) {  // F18
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  for (int i = 0; i < 5; ++i) {
    b.Running(job);
    b.Connect("w1");
    EXPECT_EQ(b.State(job), TaskState::kPreparing);
    if (i == 2) {
      b.Restart();
      b.Connect("w1");
    }
  }
  b.Running(job);
  b.Connect("w1");
  EXPECT_EQ(b.State(job), TaskState::kFailed);
  EXPECT_EQ(b.Task(job).outcome.cause.kind, CauseKind::kCrashLimit);
  EXPECT_EQ(b.Task(job).outcome.cause.text,
            "crash limit: its machine was lost 6 times: lost on w1, w1, w1, w1, w1, w1");
}

TEST(WorkersTest, AKnownFailureIsNotRunAgain) {
  Bench b;
  b.Connect("w1");
  const JobId bad = b.Submit({});
  b.Running(bad);
  b.Finishing(bad, 0, Exit(3));
  const JobId good = b.Submit({});
  b.Running(good);
  b.Finishing(good);
  b.Connect("w1");  // has lost both
  EXPECT_EQ(b.State(bad), TaskState::kFailed);
  EXPECT_EQ(b.Task(bad).outcome, Exit(3));
  EXPECT_EQ(b.State(good), TaskState::kPreparing);  // its outputs are needed
  EXPECT_EQ(b.Task(good).losses, 1);
}

TEST(WorkersTest, TheWorkersOwnWordOfALossCountsAsOne) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Ended(job, 0, Because(CauseKind::kWorkerLost, "its monitor is gone"));
  EXPECT_EQ(b.Task(job).losses, 1);
  EXPECT_EQ(b.Task(job).attempts, AttemptNo(2));
}

TEST(WorkersTest, AStoppingWorkerGetsNothingBack) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  b.Running(job);
  b.Ended(job, 0, Because(CauseKind::kServerStopped));
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  EXPECT_EQ(b.Task(job).losses, 0);
  b.Connect("w1");
  EXPECT_EQ(b.State(job), TaskState::kPreparing);
}

TEST(WorkersTest, AWorkerThatRunsNothingIsOfflineAtOnce) {
  Bench b;
  b.Apply(core::WorkerDisconnected{b.Connect("w1")});
  EXPECT_EQ(b.View("w1").state, WorkerState::kOffline);
  b.Apply(core::Tick{});
  EXPECT_EQ(b.View("w1").state, WorkerState::kOffline);
  const SessionId s = b.Connect("w1");
  EXPECT_EQ(b.View("w1").state, WorkerState::kOnline);
  b.Running(b.Submit({}));
  b.Apply(core::WorkerDisconnected{s});
  EXPECT_EQ(b.View("w1").state, WorkerState::kSuspect) << "it has a job, and its lease";
}

TEST(WorkersTest, NewResourcesAreStoredAndUsed) {
  Bench b;
  const SessionId s = b.Connect("w1", {1, 1 << 30, {}});
  const JobId job = b.Submit(SpecBuilder().Tasks(3));
  EXPECT_EQ(b.View("w1").running, 1);
  b.Apply(core::WorkerHeard{s, Resources{2, 1 << 30, {}}});
  EXPECT_EQ(b.View("w1").running, 2);
  EXPECT_EQ(b.store.workers[WorkerId("id-w1")].profile.resources.slots, 2);
  b.Apply(core::WorkerHeard{s, Resources{1, 1 << 30, {}}});  // shrinks under its load
  b.Ended(job, 0);
  EXPECT_EQ(b.View("w1").running, 1);
  b.Ended(job, 1);
  EXPECT_EQ(b.View("w1").running, 1);
  b.Apply(core::WorkerHeard{s, Resources{1, 1 << 30, {}}});
  EXPECT_TRUE(All<core::PutWorker>(b.last).empty());  // a heartbeat writes nothing
}

}  // namespace
}  // namespace gpulayer::testing
