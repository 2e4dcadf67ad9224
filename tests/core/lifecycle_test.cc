#include "core/bench.h"

namespace gpulayer::testing {
namespace {

using core::SendAssign;
using core::SendEndAck;

TEST(LifecycleTest, OneTaskFromQueueToSuccess) {
  Bench b;
  const JobId job = b.Submit({});
  EXPECT_EQ(b.submitted.warning, "no worker is known yet: the job waits");
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  const SessionId s = b.Connect("w1");
  const auto assigns = All<SendAssign>(b.last);
  ASSERT_EQ(assigns.size(), 1u);
  EXPECT_EQ(assigns[0].session, s);
  EXPECT_EQ(assigns[0].key.id.value(), "0123456789ab-1-1.0-1");
  EXPECT_EQ(assigns[0].allocation.slots, 1);
  EXPECT_EQ(b.State(job), TaskState::kPreparing);

  b.Running(job);
  EXPECT_EQ(b.State(job), TaskState::kRunning);
  EXPECT_TRUE(b.store.jobs[job].started.has_value());
  EXPECT_EQ(b.View("w1").slots_used, 1);
  b.Finishing(job);
  EXPECT_EQ(b.State(job), TaskState::kFinishing);
  EXPECT_EQ(b.View("w1").slots_used, 0);
  const auto acks = All<SendEndAck>(b.Ended(job));
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_TRUE(acks[0].current);
  EXPECT_EQ(b.State(job), TaskState::kSucceeded);
  EXPECT_EQ(b.store.jobs[job].state, TaskState::kSucceeded);
  EXPECT_EQ(b.store.jobs[job].outcome, Exit(0));
  EXPECT_TRUE(b.store.jobs[job].ended.has_value());
  EXPECT_FALSE(b.core().Explain(job, b.now()).ok());
}

// Which end of an attempt means what for its task.
struct EndRow {
  const char* name;
  Outcome outcome;
  bool started;
  TaskState task;
};
class EndTest : public ::testing::TestWithParam<EndRow> {};
TEST_P(EndTest, Row) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  if (GetParam().started) b.Running(job);
  b.Ended(job, 0, GetParam().outcome, GetParam().started);
  EXPECT_EQ(b.State(job), GetParam().task);
  EXPECT_EQ(b.View("w1").slots_used, 0);
}
INSTANTIATE_TEST_SUITE_P(
    Ends, EndTest,
    ::testing::Values(
        EndRow{"Good", Exit(0), true, TaskState::kSucceeded},
        EndRow{"Bad", Exit(7), true, TaskState::kFailed},
        EndRow{"Own124", Exit(124), true, TaskState::kFailed},
        EndRow{"TimeLimit", Because(CauseKind::kTimeLimit), true, TaskState::kTimedOut},
        EndRow{"Signal", Because(CauseKind::kSignal), true, TaskState::kFailed},
        EndRow{"Preparation", Because(CauseKind::kPreparation), false, TaskState::kFailed},
        EndRow{"NotFound", Because(CauseKind::kNotFound), false, TaskState::kFailed},
        EndRow{"Outputs", Because(CauseKind::kOutputsNotStored), true, TaskState::kFailed},
        // The only worker could not start it: not the job's fault, tried again after a while.
        EndRow{"Spawn", Because(CauseKind::kSpawnFailed), false, TaskState::kQueued},
        // Handed back: nothing is charged, it waits for the worker's next session.
        EndRow{"Stopping", Because(CauseKind::kServerStopped), true, TaskState::kQueued}),
    [](const auto& param) { return param.param.name; });

TEST(LifecycleTest, ArrayEndsWithTheLowestTaskInTheWorstState) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit(SpecBuilder().Tasks(4));
  b.Ended(job, 3, Exit(9));
  b.Ended(job, 0, Exit(0));
  b.Ended(job, 2, Exit(5));
  b.Ended(job, 1, Because(CauseKind::kTimeLimit));
  EXPECT_EQ(b.store.jobs[job].state, TaskState::kFailed);
  EXPECT_EQ(b.store.jobs[job].outcome, Exit(5));
}

TEST(LifecycleTest, MillionTasksAreOneEntry) {
  Bench b;
  b.Connect("w1", {2, 1 << 30, {}});
  const JobId job = b.Submit(SpecBuilder().Tasks(1'000'000));
  EXPECT_EQ(b.store.tasks.size(), 2u);
  EXPECT_EQ(b.store.jobs[job].queued.ToText(), "2-999999");
  EXPECT_EQ(b.core().TotalCounts()[TaskState::kQueued], 999'998);
  const auto body = b.Cancel(job);
  EXPECT_EQ(std::get<core::CancelReply>(body).cancelled, 1'000'000);
  EXPECT_EQ(b.store.tasks.size(), 2u);
  EXPECT_EQ(b.store.jobs[job].counts[TaskState::kCancelled], 999'998);
}

TEST(LifecycleTest, StaleReportsChangeNothing) {
  Bench b;
  const SessionId s = b.Connect("w1");
  const JobId job = b.Submit({});
  const AttemptKey key = b.Key(job);
  const auto stale = [&](SessionId session, AttemptKey k) {
    b.Apply(core::AttemptProgress{session, k, AttemptState::kRunning, {}});
    EXPECT_TRUE(All<core::PutTask>(b.last).empty());
    const auto acks = All<SendEndAck>(b.Apply(core::AttemptEnded{session, k, true, Exit(0)}));
    ASSERT_EQ(acks.size(), 1u);
    EXPECT_FALSE(acks[0].current);
    EXPECT_FALSE(b.core().IsCurrent(session, k));
    EXPECT_EQ(acks[0].key, k);
    EXPECT_EQ(b.State(job), TaskState::kPreparing);
  };
  AttemptKey k = key;
  k.server.incarnation = 2;
  stale(s, k);
  EXPECT_TRUE(b.core().IsCurrent(s, key));
  k = key;
  k.id = AttemptId("other");
  stale(s, k);
  k = key;
  k.ref.number = AttemptNo(2);
  stale(s, k);
  k = key;
  k.ref.task.job = JobId(99);
  stale(s, k);
  k = key;
  k.epoch = WorkerEpoch(0);
  stale(s, k);
  stale(SessionId(99), key);
  stale(b.Connect("w2"), key);  // another worker speaks of it
}

// A worker whose daemon was down tells of starts and ends long after.
TEST(LifecycleTest, StartAndEndAreThoseOfTheProgramNotOfTheReports) {
  Bench b;
  const SessionId s = b.Connect("w1");
  const JobId job = b.Submit({});
  const WallTime created = b.now().wall;
  const AttemptKey key = b.Key(job);
  b.Step(100s);
  b.Apply(core::AttemptProgress{s, key, AttemptState::kRunning, {}, 60s});
  EXPECT_EQ(b.store.attempts[key.ref].started, created + 40s);
  EXPECT_EQ(b.store.jobs[job].started, created + 40s);
  b.Step(500s);
  b.Apply(core::AttemptEnded{s, key, true, Exit(0), {}, 7, 560s, 300s});
  EXPECT_EQ(b.store.attempts[key.ref].started, created + 40s);
  EXPECT_EQ(b.store.attempts[key.ref].ended, created + 300s);
  EXPECT_EQ(b.store.jobs[job].ended, created + 300s);
}

TEST(LifecycleTest, NoReportMovesATimeOutOfItsAttempt) {
  Bench b;
  const SessionId s = b.Connect("w1");
  const JobId job = b.Submit({});
  const WallTime created = b.now().wall;
  const AttemptKey key = b.Key(job);
  b.Step(10s);
  b.Apply(core::AttemptProgress{s, key, AttemptState::kRunning, {}, 4000s});
  EXPECT_EQ(b.store.attempts[key.ref].started, created);
  b.Step(10s);
  b.Apply(core::AttemptEnded{s, key, true, Exit(0), {}, 7, 1s, 4000s});
  EXPECT_EQ(b.store.attempts[key.ref].started, created);
  EXPECT_EQ(b.store.attempts[key.ref].ended, created);
}

TEST(LifecycleTest, AStartFoundOnReconnectIsSetRightByTheWorker) {
  Bench b;
  b.Connect("w1");
  const JobId job = b.Submit({});
  const WallTime created = b.now().wall;
  AttemptKey key = b.Key(job);
  b.Step(50s);
  const SessionId s = b.Connect("w1", {4, 16ll << 30, {}}, {{key, AttemptState::kRunning}});
  EXPECT_EQ(b.store.attempts[key.ref].started, created + 50s);
  key = b.Key(job);
  b.Apply(core::AttemptProgress{s, key, AttemptState::kRunning, {}, 45s});
  EXPECT_EQ(b.store.attempts[key.ref].started, created + 5s);
  EXPECT_EQ(b.store.jobs[job].started, created + 5s);
  b.Apply(core::AttemptProgress{s, key, AttemptState::kRunning, {}, 47s});  // known: it stays
  EXPECT_EQ(b.store.attempts[key.ref].started, created + 5s);
}

// The last end of an array is that of the task which ended last, in whatever order they are told.
TEST(LifecycleTest, AJobEndsWithItsLastTask) {
  Bench b;
  const SessionId s = b.Connect("w1");
  const JobId job = b.Submit(SpecBuilder().Tasks(2));
  const WallTime created = b.now().wall;
  b.Step(100s);
  b.Apply(core::AttemptEnded{s, b.Key(job, 0), true, Exit(0), {}, 7, 100s, 20s});
  b.Apply(core::AttemptEnded{s, b.Key(job, 1), true, Exit(0), {}, 7, 100s, 60s});
  EXPECT_EQ(b.store.jobs[job].ended, created + 80s);
}

TEST(LifecycleTest, RepeatedEndIsAnsweredAgain) {
  Bench b;
  const SessionId s = b.Connect("w1");
  const JobId job = b.Submit({});
  const AttemptKey key = b.Key(job);
  b.Ended(job);
  const auto acks = All<SendEndAck>(b.Apply(core::AttemptEnded{s, key, true, Exit(1)}));
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(b.State(job), TaskState::kSucceeded);
}

TEST(LifecycleTest, FailedStartGoesToAnotherWorker) {
  Bench b;
  b.Connect("w1");
  b.Connect("w2");
  const JobId job = b.Submit({});
  const std::string first = b.WorkerOf(job);
  b.Ended(job, 0, Because(CauseKind::kSpawnFailed, "too many open files"), false);
  EXPECT_EQ(b.State(job), TaskState::kPreparing);
  EXPECT_NE(b.WorkerOf(job), first);
  EXPECT_EQ(b.Task(job).failures, 0);
  // When both have failed it waits a moment and goes round again.
  b.Ended(job, 0, Because(CauseKind::kSpawnFailed, "too many open files"), false);
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  const std::vector<SessionId> all = {b.session("w1"), b.session("w2")};
  b.Pass(1s, all);
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  b.Pass(1s, all);
  EXPECT_EQ(b.State(job), TaskState::kPreparing);
  b.Running(job);
  b.Ended(job);
  EXPECT_EQ(b.State(job), TaskState::kSucceeded);
}

TEST(LifecycleTest, StartsThatFailNeverSpinAndEndOnce) {
  Bench b;
  for (const char* name : {"w1", "w2", "w3"}) b.Connect(name);
  const JobId job = b.Submit({});
  int tries = 0;
  int seconds = 0;
  for (; seconds < 400 && b.State(job) != TaskState::kFailed; ++seconds) {
    while (b.State(job) == TaskState::kPreparing) {
      b.Ended(job, 0, Because(CauseKind::kSpawnFailed, "no room"), false);
      ++tries;
    }
    b.Pass(1s, {b.session("w1"), b.session("w2"), b.session("w3")});
  }
  EXPECT_EQ(tries, 10);
  EXPECT_GE(seconds, 30);
  EXPECT_EQ(b.Task(job).outcome.cause.text,
            "no worker could start it in 10 tries (w1, w2, w3): no room");
  EXPECT_EQ(b.Task(job).failures, 0);
}

// Neither an absent worker nor others' work may keep it from the one that is there.
TEST(LifecycleTest, AnAbsentWorkerIsNotWaitedForAfterAFailedStart) {
  Bench b;
  b.Connect("w1");
  b.Connect("gone");
  b.Apply(core::WorkerDisconnected{b.session("gone")});
  const JobId job = b.Submit({});
  b.Ended(job, 0, Because(CauseKind::kSpawnFailed, "no room"), false);
  EXPECT_EQ(b.State(job), TaskState::kQueued);
  const JobId other = b.Submit({});
  EXPECT_EQ(b.State(other), TaskState::kPreparing);  // passes it meanwhile
  b.Pass(2s, {b.session("w1")});
  EXPECT_EQ(b.State(job), TaskState::kPreparing);
  EXPECT_EQ(b.WorkerOf(job), "w1");
}

TEST(LifecycleTest, BrokenWorkerDoesNotEatTheQueue) {  // F19
  Bench b;
  b.Connect("bad", {1, 1 << 30, {}});
  const JobId job = b.Submit(SpecBuilder().Tasks(200));
  b.Connect("good", {2, 1 << 30, {}});  // tighter fits go to bad first
  int bad_starts = 0;
  for (int round = 0; round < 1000 && b.store.jobs[job].state != TaskState::kSucceeded; ++round) {
    for (int i = 0; i < 200; ++i) {
      if (b.State(job, i) != TaskState::kPreparing) continue;
      const bool bad = b.WorkerOf(job, i) == "bad";
      bad_starts += bad ? 1 : 0;
      b.Ended(job, i, bad ? Because(CauseKind::kSpawnFailed, "no device") : Exit(0), !bad);
    }
  }
  EXPECT_EQ(b.store.jobs[job].state, TaskState::kSucceeded);
  EXPECT_LE(bad_starts, 5);
  EXPECT_EQ(b.View("bad").quarantine, "");  // of one job: it may be to blame
}

TEST(LifecycleTest, ThreeJobsThatCannotStartTakeAWorkerOut) {  // F19
  Bench b;
  b.Connect("bad");
  for (int i = 1; i <= 3; ++i) {
    const JobId job = b.Submit({});
    b.Ended(job, 0, Because(CauseKind::kSpawnFailed, "no device"), false);
    b.Pass(1s, {b.session("bad")});
    if (b.State(job) == TaskState::kPreparing) {  // once more
      b.Ended(job, 0, Because(CauseKind::kSpawnFailed, "no device"), false);
    }
    EXPECT_EQ(b.View("bad").quarantine,
              i < 3 ? "" : "starts of 3 jobs failed in a row, the last one: no device");
  }
  b.Pass(60s, {b.session("bad")});
  EXPECT_EQ(b.State(b.Submit({})), TaskState::kQueued);
  b.Connect("bad");  // mended
  EXPECT_EQ(b.View("bad").quarantine, "");
}

TEST(LifecycleTest, AStartBetweenMeansThatTheWorkerIsSound) {
  Bench b;
  b.Connect("w1");
  for (int i = 0; i < 4; ++i) {
    b.Ended(b.Submit({}), 0, Because(CauseKind::kSpawnFailed, "odd job"), false);
    const JobId good = b.Submit({});
    if (i % 2 == 0) b.Running(good);  // a short one is over before it is said to run
    b.Ended(good);
  }
  EXPECT_EQ(b.View("w1").quarantine, "");
}

// One job whose starts fail neither ends the worker for others nor spins there.
TEST(LifecycleTest, AnArrayThatCannotStartRestsAndOthersPass) {
  Bench b;
  const SessionId w1 = b.Connect("w1", {2, 1 << 30, {}});
  const JobId odd = b.Submit(SpecBuilder().Tasks(1000));
  int starts = 0;
  for (int second = 0; second < 60; ++second) {
    for (bool any = true; any;) {
      any = false;
      for (int i = 0; i < 20; ++i) {
        if (b.State(odd, i) != TaskState::kPreparing) continue;
        b.Ended(odd, i, Because(CauseKind::kSpawnFailed, "odd job"), false);
        any = true;
        ++starts;
      }
    }
    const JobId other = b.Submit({});
    EXPECT_EQ(b.State(other), TaskState::kPreparing) << second;
    b.Cancel(other);
    b.Ended(other, 0, Because(CauseKind::kCancelled), false);
    b.Pass(1s, {w1});
  }
  EXPECT_LE(starts, 2 * 6);  // two slots; after 0, 1, 3, 7, 15 and 31 seconds
  EXPECT_GE(starts, 6);
  EXPECT_EQ(b.View("w1").quarantine, "");
}

}  // namespace
}  // namespace gpulayer::testing
