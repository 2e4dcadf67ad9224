#include "server/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "engine/gated_store.h"
#include "model/limits.h"
#include "support/eventually.h"
#include "support/fake_clock.h"
#include "support/small_disk.h"
#include "support/temp_dir.h"

namespace gpulayer {
namespace {

using std::chrono_literals::operator""s;
using testing::Eventually;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr core::Options kCore{10s, 60s};

core::SubmitJobs Submit(const std::string& request, std::size_t payload = 0) {
  JobSpec spec;
  spec.name = request;
  spec.command = {"true", std::string(payload, 'x')};
  spec.wait_for_worker = true;
  spec.request_id = RequestId(request);
  core::SubmitJobs submit;
  submit.caller.user = UserName("ann");
  submit.specs.push_back(std::make_shared<const JobSpec>(std::move(spec)));
  return submit;
}

// Keeps what was delivered to a worker.
class RecordingSink : public SessionSink {
 public:
  void Deliver(const core::Effect& effect) override {
    MutexLock lock(mutex_);
    effects_.push_back(effect);
  }
  template <typename T>
  std::vector<T> Got() {
    MutexLock lock(mutex_);
    std::vector<T> found;
    for (const core::Effect& effect : effects_) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }

 private:
  Mutex mutex_;
  std::vector<core::Effect> effects_ GPULAYER_GUARDED_BY(mutex_);
};

class EngineTest : public ::testing::Test {
 protected:
  void Start() { engine_ = *Engine::Start({kCore}, *store_, clock_); }
  void Restart() {
    engine_.reset();
    store_.reset();
    store_ = std::make_unique<testing::GatedStore>(path_);
    Start();
  }
  core::ReplyBody SubmitAndWait(const std::string& request) {
    std::promise<core::ReplyBody> answer;
    EXPECT_TRUE(
        engine_->Post(Submit(request), [&](core::ReplyBody b) { answer.set_value(std::move(b)); })
            .ok());
    return answer.get_future().get();
  }
  JobId Job(const core::ReplyBody& body) {
    const auto* reply = std::get_if<core::SubmitReply>(&body);
    return reply != nullptr ? reply->jobs.at(0).job : JobId(-1);
  }
  core::WorkerConnected Hello(SessionId session) {
    core::WorkerConnected hello;
    hello.session = session;
    hello.profile.id = WorkerId("0123456789abcdef0123456789abcdef");
    hello.profile.name = "w1";
    hello.profile.resources.slots = 2;
    hello.profile.resources.memory_bytes = std::int64_t{8} << 30;
    hello.boot_id = "boot";
    return hello;
  }
  // Runs on the engine thread; what was posted before is done when it returns.
  template <typename Fn>
  auto Ask(Fn fn) {
    std::promise<decltype(fn(std::declval<const core::Core&>()))> answer;
    EXPECT_TRUE(
        engine_->Query([&](const core::Core& core, Instant) { answer.set_value(fn(core)); }).ok());
    return answer.get_future().get();
  }

  testing::TempDir dir_;
  std::string path_ = dir_ / "state.db";
  testing::FakeClock clock_;
  std::unique_ptr<testing::GatedStore> store_ = std::make_unique<testing::GatedStore>(path_);
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, TheAnswerComesAfterTheCommit) {
  Start();
  store_->Hold();
  std::atomic<int> answers{0};
  std::atomic<int> writes_at_answer{-1};
  ASSERT_TRUE(engine_
                  ->Post(Submit("r"),
                         [&](core::ReplyBody) {
                           writes_at_answer = store_->writes();
                           ++answers;
                         })
                  .ok());
  ASSERT_TRUE(Eventually([&] { return store_->tries() == 1; }));
  EXPECT_EQ(answers.load(), 0);
  store_->Release();
  ASSERT_TRUE(Eventually([&] { return answers.load() == 1; }));
  EXPECT_EQ(writes_at_answer.load(), 1);
  EXPECT_THAT(store_->Load()->jobs, SizeIs(1));
}

TEST_F(EngineTest, WhatWaitsIsCommittedTogether) {
  Start();
  store_->Hold();
  std::atomic<int> answers{0};
  const auto count = [&](core::ReplyBody) { ++answers; };
  ASSERT_TRUE(engine_->Post(Submit("first"), count).ok());
  ASSERT_TRUE(Eventually([&] { return store_->tries() == 1; }));
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(engine_->Post(Submit(std::to_string(i)), count).ok());
  }
  store_->Release();
  ASSERT_TRUE(Eventually([&] { return answers.load() == 501; }));
  EXPECT_LE(store_->writes(), 3);
}

TEST_F(EngineTest, QueriesSeeOnlyWhatIsStored) {
  Start();
  store_->Hold();
  std::atomic<std::int64_t> seen{-1};
  std::atomic<std::int64_t> stored{-1};
  ASSERT_TRUE(engine_->Post(Submit("r"), [](core::ReplyBody) {}).ok());
  ASSERT_TRUE(engine_
                  ->Query([&](const core::Core& core, Instant) {
                    stored = store_->writes();
                    seen = core.TotalCounts()[TaskState::kQueued];
                  })
                  .ok());
  ASSERT_TRUE(Eventually([&] { return store_->tries() == 1; }));
  EXPECT_EQ(seen.load(), -1);
  store_->Release();
  ASSERT_TRUE(Eventually([&] { return seen.load() == 1; }));
  EXPECT_EQ(stored.load(), 1);
}

TEST_F(EngineTest, AJobGoesToItsWorkerAndAClosedSessionHearsNothing) {
  Start();
  const auto sink = std::make_shared<RecordingSink>();
  const SessionId session = engine_->OpenSession(sink);
  ASSERT_TRUE(engine_->Post(Hello(session)).ok());
  ASSERT_TRUE(Eventually([&] { return sink->Got<core::SendWelcome>().size() == 1; }));
  const JobId job = Job(SubmitAndWait("r"));
  ASSERT_TRUE(Eventually([&] { return sink->Got<core::SendAssign>().size() == 1; }));
  EXPECT_EQ(sink->Got<core::SendAssign>()[0].key.ref.task.job, job);
  engine_->CloseSession(session);
  engine_->CloseSession(session);
  SubmitAndWait("another");
  EXPECT_THAT(sink->Got<core::SendAssign>(), SizeIs(1));
}

TEST_F(EngineTest, ARestartKeepsTheQueue) {
  Start();
  const JobId first = Job(SubmitAndWait("one"));
  const JobId second = Job(SubmitAndWait("two"));
  Restart();
  EXPECT_EQ(Ask([](const core::Core& c) { return c.TotalCounts()[TaskState::kQueued]; }), 2);
  EXPECT_EQ(Job(SubmitAndWait("one")), first) << "the same request is the same job";
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Post(Hello(engine_->OpenSession(sink))).ok());
  ASSERT_TRUE(Eventually([&] { return sink->Got<core::SendAssign>().size() == 2; }));
  EXPECT_GT(Job(SubmitAndWait("three")).value(), second.value());
  EXPECT_THAT(Ask([](const core::Core& c) { return c.CheckInvariants(); }), IsEmpty());
}

TEST_F(EngineTest, AWatchHearsOfEachCommitAfterIt) {
  Start();
  const JobId job = Job(SubmitAndWait("r"));
  std::atomic<int> writes_at_call{0};
  const std::int64_t watch = engine_->Watch(job, [&](JobId changed, bool) {
    EXPECT_EQ(changed, job);
    writes_at_call = store_->writes();
  });
  const int before = store_->writes();
  core::CancelTasks cancel;
  cancel.caller.user = UserName("ann");
  cancel.tasks.push_back({job, std::nullopt});
  std::promise<void> answered;
  ASSERT_TRUE(engine_
                  ->Post(cancel,
                         [&](core::ReplyBody body) {
                           EXPECT_TRUE(std::holds_alternative<core::CancelReply>(body));
                           answered.set_value();
                         })
                  .ok());
  answered.get_future().wait();
  // The submit may be told of as well, if its watchers are called only now.
  ASSERT_TRUE(Eventually([&] { return writes_at_call.load() > before; }));
  engine_->Unwatch(watch);
}

TEST_F(EngineTest, TimePassesWithoutEvents) {
  // Each reading is two seconds later: what nobody posts are the engine's own ticks.
  class RunningClock : public Clock {
   public:
    Instant Now() override {
      ++readings;
      fake_.Advance(2s);
      return fake_.Now();
    }
    std::atomic<int> readings{0};

   private:
    testing::FakeClock fake_;
  } clock;
  engine_ = *Engine::Start({kCore}, *store_, clock);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Post(Hello(engine_->OpenSession(sink))).ok());
  ASSERT_TRUE(Eventually([&] { return sink->Got<core::SendWelcome>().size() == 1; }));
  const int before = clock.readings.load();
  EXPECT_TRUE(Eventually([&] { return clock.readings.load() >= before + 2; }, 20s));
  engine_.reset();  // before its clock
}

TEST_F(EngineTest, StopAnswersAllThatWasAccepted) {
  Start();
  store_->Hold();
  std::atomic<int> answers{0};
  std::atomic<bool> asked{false};
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(engine_
                    ->Post(Submit(std::to_string(i)),
                           [&](core::ReplyBody body) {
                             EXPECT_TRUE(std::holds_alternative<core::SubmitReply>(body));
                             ++answers;
                           })
                    .ok());
  }
  ASSERT_TRUE(engine_->Query([&](const core::Core&, Instant) { asked = true; }).ok());
  std::thread stopper([&] { engine_->Stop(); });
  store_->Release();
  stopper.join();
  engine_->Stop();
  EXPECT_EQ(answers.load(), 2000);
  EXPECT_TRUE(asked.load());
  EXPECT_THAT(store_->Load()->jobs, SizeIs(2000));
  EXPECT_EQ(engine_->Post(Submit("late"), [](core::ReplyBody) { FAIL(); }).code(),
            StatusCode::kCancelled);
  EXPECT_EQ(engine_->Query([](const core::Core&, Instant) { FAIL(); }).code(),
            StatusCode::kCancelled);
}

TEST_F(EngineTest, PostsDuringAStopAreAnsweredOrRefused) {
  for (int round = 0; round < 5; ++round) {
    Start();
    std::atomic<int> accepted{0};
    std::atomic<int> answers{0};
    std::vector<std::thread> posters;
    for (int t = 0; t < 3; ++t) {
      posters.emplace_back([&, t] {
        for (int i = 0;; ++i) {
          while (accepted.load() - answers.load() > 50) std::this_thread::yield();
          const std::string id =
              std::to_string(round) + "-" + std::to_string(t) + "-" + std::to_string(i);
          ++accepted;
          if (!engine_->Post(Submit(id), [&](core::ReplyBody) { ++answers; }).ok()) {
            --accepted;
            return;
          }
        }
      });
    }
    EXPECT_TRUE(Eventually([&] { return answers.load() > 20; }));
    engine_->Stop();
    for (std::thread& poster : posters) poster.join();
    EXPECT_EQ(answers.load(), accepted.load());
    engine_.reset();
  }
}

TEST_F(EngineTest, AFullQueueRefusesAndASessionStillCloses) {
  Start();
  const auto sink = std::make_shared<RecordingSink>();
  const SessionId session = engine_->OpenSession(sink);
  ASSERT_TRUE(engine_->Post(Hello(session)).ok());
  ASSERT_TRUE(Eventually([&] { return sink->Got<core::SendWelcome>().size() == 1; }));
  store_->Hold();
  const int tries = store_->tries();
  std::atomic<int> answers{0};
  const auto count = [&](core::ReplyBody) { ++answers; };
  ASSERT_TRUE(engine_->Post(Submit("first"), count).ok());
  ASSERT_TRUE(Eventually([&] { return store_->tries() > tries; }));
  int accepted = 1;
  Status refused = OkStatus();
  // Large ones fill the queue by their bytes long before their number does. (No worker has that
  // many slots: the core refuses them and nothing is stored.)
  JobSpec large;
  large.command = {"true", std::string(1 << 20, 'x')};
  large.requirements.slots = 1000;
  large.request_id = RequestId("large");
  const auto spec = std::make_shared<const JobSpec>(std::move(large));
  for (; refused.ok() && accepted < 10'000; ++accepted) {
    core::SubmitJobs submit;
    submit.caller.user = UserName("ann");
    submit.specs = {spec};
    refused = engine_->Post(std::move(submit), count);
  }
  --accepted;
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("kEngineQueueEvents"));
  engine_->CloseSession(session);
  store_->Release();
  ASSERT_TRUE(Eventually([&] { return answers.load() == accepted; }, 60s));
  EXPECT_NE(Ask([](const core::Core& c) { return c.Workers().at(0).state; }), WorkerState::kOnline);
}

TEST_F(EngineTest, AFullDiskIsWaitedOut) {
  Start();
  store_->FailWith(ResourceExhausted("server disk full: test"));
  std::atomic<int> answers{0};
  ASSERT_TRUE(engine_->Post(Submit("r"), [&](core::ReplyBody) { ++answers; }).ok());
  ASSERT_TRUE(Eventually([&] { return store_->tries() >= 2; }));
  EXPECT_EQ(answers.load(), 0);
  // Who asks meanwhile hears why, instead of waiting as well.
  const auto never = [](auto&&...) { ADD_FAILURE(); };
  EXPECT_EQ(engine_->Query(never).message(), "server disk full: test");
  EXPECT_EQ(engine_->Post(Submit("s"), never).code(), StatusCode::kResourceExhausted);
  store_->FailWith(OkStatus());
  EXPECT_TRUE(Eventually([&] { return answers.load() == 1; }));
  EXPECT_TRUE(Eventually([&] { return engine_->Query([](auto&&...) {}).ok(); }));
  EXPECT_THAT(store_->Load()->jobs, SizeIs(1));
}

TEST_F(EngineTest, AStopOnAFullDiskAnswersThatNothingWasStored) {
  Start();
  store_->FailWith(ResourceExhausted("server disk full: test"));
  std::atomic<int> answers{0};
  const auto refused = [&](core::ReplyBody body) {
    const auto* status = std::get_if<Status>(&body);
    EXPECT_TRUE(status != nullptr && status->code() == StatusCode::kCancelled);
    ++answers;
  };
  ASSERT_TRUE(engine_->Post(Submit("one"), refused).ok());
  ASSERT_TRUE(Eventually([&] { return store_->tries() >= 1; }));
  engine_->Stop();
  EXPECT_EQ(answers.load(), 1);
  EXPECT_THAT(store_->Load()->jobs, IsEmpty());
}

TEST_F(EngineTest, AnyOtherFailureEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Start();
        store_->FailWith(DataLoss("database x: damaged."));
        SubmitAndWait("r");
      },
      ::testing::ExitedWithCode(74), "database x: damaged. The server ends here");
}

TEST(EngineFullDiskTest, NothingIsLostOnADiskThatFillsUp) {
  testing::SmallDisk disk("4m");
  if (!disk.mounted()) GTEST_SKIP() << disk.SkipReason();
  testing::FakeClock clock;
  testing::GatedStore store(disk / "state.db");
  const auto engine = *Engine::Start({kCore}, store, clock);
  ASSERT_TRUE(disk.Fill(100'000).ok());
  std::atomic<int> answers{0};
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(engine->Post(Submit(std::to_string(i)), [&](core::ReplyBody) { ++answers; }).ok());
  }
  ASSERT_TRUE(Eventually([&] { return store.tries() >= 3; }));
  EXPECT_LT(answers.load(), 1000);
  ASSERT_TRUE(disk.MakeRoom().ok());
  EXPECT_TRUE(Eventually([&] { return answers.load() == 1000; }));
  EXPECT_THAT(store.Load()->jobs, SizeIs(1000));
  engine->Stop();
}

}  // namespace
}  // namespace gpulayer
