// A worker that runs commands inside its attempts, against a server that the test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/census.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "worker/fake_server.h"
#include "worker/worker.h"

namespace gpulayer {
namespace {

using namespace std::chrono_literals;
using testing::Census;
using testing::CensusMatch;
using testing::Eventually;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::TempDir;

v1::ExecInput Data(std::string bytes) {
  v1::ExecInput in;
  in.set_data(std::move(bytes));
  return in;
}
v1::ExecInput EndOfInput() {
  v1::ExecInput in;
  in.set_end(true);
  return in;
}

// What a call said.
struct Said {
  std::string out, err;
  int chunks = 0;
  bool done = false;
  v1::ExecOutput::Ended ended;
};

class ExecCallsTest : public ::testing::Test {
 protected:
  using Stream = FakeServer::ExecStream;
  // One end of a call while it lasts; OK ends it at the last word.
  using Talk = std::function<grpc::Status(Stream&, Said&)>;

  ExecCallsTest() {
    server_.attempt_prefix =
        "xc" + std::to_string(getpid()) + "-" + std::to_string(counter_.fetch_add(1)) + "-";
    server_.on_exec = [this](const std::string& ticket, Stream& stream) {
      Talk talk;
      {
        MutexLock lock(mutex_);
        talk = talks_[ticket];
      }
      Said said;
      const grpc::Status status = talk(stream, said);
      said.done = true;
      MutexLock lock(mutex_);
      said_[ticket] = std::move(said);
      return status;
    };
    WorkerOptions options;
    options.server = server_.address();
    options.data_dir = dir_ / "worker";
    options.name = "w1";
    options.slots = 4;
    options.exec_program = GPULAYER_EXEC_PROGRAM;
    Result<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
    EXPECT_TRUE(worker.ok()) << worker.status().ToString();
    worker_ = *std::move(worker);
    EXPECT_TRUE(Eventually([&] { return server_.connected() && worker_->connected(); }));
    EXPECT_EQ(mkfifo((dir_ / "gate").c_str(), 0600), 0);
    JobSpec spec;
    spec.command = {"/bin/sh", "-c", "echo up; exec sleep 600"};
    spec.grace = 10s;
    spec.env = {{"GATE", dir_ / "gate"}};
    key_ = server_.Assign(1, spec);
    EXPECT_TRUE(Eventually([&] { return server_.progressed(key_, AttemptState::kRunning); }));
  }
  ~ExecCallsTest() override {
    worker_.reset();
    EXPECT_TRUE(Eventually([&] { return Alive() == 0; }));
  }
  std::size_t Alive() { return Census(server_.attempt_prefix, CensusMatch::kPrefix).size(); }

  void Begin(const AttemptKey& key, const std::string& ticket, Talk talk) {
    {
      MutexLock lock(mutex_);
      talks_[ticket] = std::move(talk);
    }
    server_.OpenExec(key, ticket);
  }
  Said Await(const std::string& ticket) {
    EXPECT_TRUE(Eventually(
        [&] {
          MutexLock lock(mutex_);
          return said_[ticket].done;
        },
        30s))
        << ticket;
    MutexLock lock(mutex_);
    return said_[ticket];
  }
  Said Run(const Talk& talk) {
    const std::string ticket = "t" + std::to_string(++tickets_);
    Begin(key_, ticket, talk);
    return Await(ticket);
  }
  static v1::ExecInput Command(const std::string& script, bool terminal = false) {
    v1::ExecInput in;
    for (const char* arg : {"bash", "-c"}) in.mutable_begin()->add_command(arg);
    in.mutable_begin()->add_command(script);
    if (terminal) {
      in.mutable_begin()->mutable_terminal()->set_rows(33);
      in.mutable_begin()->mutable_terminal()->set_columns(44);
      in.mutable_begin()->set_term("vt220");
    }
    return in;
  }
  // Until its output has `text`, or it ends.
  static void Hear(Stream& stream, Said& said, const std::string& text = "") {
    v1::ExecOutput message;
    while (!said.ended.has_exit_code() && said.ended.signal() == 0 &&
           (text.empty() || said.out.find(text) == std::string::npos) && stream.Read(&message)) {
      ++said.chunks;
      said.out += message.out();
      said.err += message.err();
      if (message.has_ended()) said.ended = message.ended();
    }
  }
  // Says all that, and hears all.
  static Talk Script(std::vector<v1::ExecInput> lines) {
    return [lines = std::move(lines)](Stream& stream, Said& said) {
      for (const v1::ExecInput& line : lines) stream.Write(line);
      Hear(stream, said);
      return grpc::Status::OK;
    };
  }

  static inline std::atomic<int> counter_{0};
  TempDir dir_;
  Mutex mutex_;
  std::map<std::string, Talk> talks_;
  std::map<std::string, Said> said_;
  int tickets_ = 0;
  FakeServer server_{dir_ / "s.sock"};
  std::unique_ptr<Worker> worker_;
  AttemptKey key_;
};

TEST_F(ExecCallsTest, InputOutputErrorsAndEnd) {
  const Said said = Run(Script({Command("cat; echo bad >&2; exit 7"), Data("hel"), Data("lo\n"),
                                EndOfInput(), Data("too late")}));
  EXPECT_EQ(said.out, "hello\n");
  EXPECT_EQ(said.err, "bad\n");
  EXPECT_EQ(said.ended.exit_code(), 7);
  EXPECT_EQ(said.ended.error(), "");
  const Said killed = Run(Script({Command("kill -9 $$")}));
  EXPECT_FALSE(killed.ended.has_exit_code());
  EXPECT_EQ(killed.ended.signal(), SIGKILL);
}

TEST_F(ExecCallsTest, WhatCannotBeStartedSaysWhy) {
  v1::ExecInput begin;
  Said said = Run(Script({begin}));
  EXPECT_EQ(said.ended.exit_code(), 125);
  begin.mutable_begin()->add_command("no-such-program");
  said = Run(Script({begin}));
  EXPECT_EQ(said.ended.exit_code(), 127);
  EXPECT_EQ(said.ended.error(), "program not found: no-such-program: No such file or directory");
  begin.mutable_begin()->set_command(0, "/");
  said = Run(Script({begin}));
  EXPECT_EQ(said.ended.exit_code(), 126);
  EXPECT_THAT(said.ended.error(), HasSubstr("cannot be executed: /: "));
  AttemptKey other = key_;
  other.id = AttemptId("other");
  Begin(other, "x", Script({begin}));
  said = Await("x");
  EXPECT_EQ(said.ended.exit_code(), 125);
  EXPECT_EQ(said.ended.error(), "the task is not running any more");
}

TEST_F(ExecCallsTest, ATerminal) {
  const Said said = Run([](Stream& stream, Said& heard) {
    stream.Write(
        Command("trap 'stty size; kill $!; cat; exit 5' WINCH; echo $TERM; stty size; "
                "sleep 600 & echo ready; wait",
                /*terminal=*/true));
    Hear(stream, heard, "ready\r\n");
    v1::ExecInput resize;
    resize.mutable_resize()->set_rows(50);
    resize.mutable_resize()->set_columns(132);
    stream.Write(resize);
    Hear(stream, heard, "50 132\r\n");
    stream.Write(EndOfInput());
    Hear(stream, heard);
    return grpc::Status::OK;
  });
  EXPECT_EQ(said.out, "vt220\r\n33 44\r\nready\r\n50 132\r\n");
  EXPECT_EQ(said.err, "");
  EXPECT_EQ(said.ended.exit_code(), 5);
}

TEST_F(ExecCallsTest, ControlC) {
  const Said said = Run([](Stream& stream, Said& heard) {
    stream.Write(Command("echo ready; exec sleep 600", /*terminal=*/true));
    Hear(stream, heard, "ready");
    stream.Write(Data("\x03"));
    Hear(stream, heard);
    return grpc::Status::OK;
  });
  EXPECT_EQ(said.ended.signal(), SIGINT);
}

TEST_F(ExecCallsTest, MuchGoesBothWaysWhole) {
  std::string sent;
  for (int i = 0; sent.size() < (std::size_t{8} << 20); ++i) sent += std::to_string(i) + "\n";
  const Said said = Run([&](Stream& stream, Said& heard) {
    stream.Write(Command("cat"));
    std::thread writer([&] {
      for (std::size_t at = 0; at < sent.size(); at += 65'536) {
        stream.Write(Data(sent.substr(at, 65'536)));
      }
      stream.Write(EndOfInput());
    });
    Hear(stream, heard);
    writer.join();
    return grpc::Status::OK;
  });
  EXPECT_EQ(said.ended.exit_code(), 0);
  EXPECT_EQ(said.out.size(), sent.size());
  EXPECT_EQ(Hash::Of(said.out), Hash::Of(sent));
}

TEST_F(ExecCallsTest, ACommandThatTakesNoInputHoldsNothingUp) {
  const Said said = Run([this](Stream& stream, Said& heard) {
    stream.Write(Command("exec 0<&-; echo closed; read line < $GATE; exit 3"));
    Hear(stream, heard, "closed\n");
    for (int i = 0; i < 64; ++i) stream.Write(Data(std::string(65'536, 'x')));
    EXPECT_EQ(::system(("echo > " + (dir_ / "gate")).c_str()), 0);
    Hear(stream, heard);
    return grpc::Status::OK;
  });
  EXPECT_EQ(said.ended.exit_code(), 3);
}

TEST_F(ExecCallsTest, AHangUpEndsTheCommand) {
  Run([&](Stream& stream, Said& heard) {
    stream.Write(Command("sleep 600 & echo ready; wait"));
    Hear(stream, heard, "ready\n");
    EXPECT_TRUE(Eventually([&] { return Alive() == 3; }));
    return grpc::Status::CANCELLED;
  });
  EXPECT_TRUE(Eventually([&] { return Alive() == 1; }));
}

TEST_F(ExecCallsTest, ManyLeaveNothingWithTheWorker) {
  const auto open_files = [] { return ListDir("/proc/self/fd").value_or({}).size(); };
  const auto threads = [] { return ListDir("/proc/self/task").value_or({}).size(); };
  Run(Script({Command("true")}));
  const std::size_t files_before = open_files();
  const std::size_t threads_before = threads();
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(Run(Script({Command("true", i % 2 == 0)})).ended.exit_code(), 0);
  }
  // The last one's go with the next; gRPC has as many threads as it likes.
  EXPECT_TRUE(Eventually([&] { return open_files() < files_before + 10; }));
  EXPECT_TRUE(Eventually([&] { return threads() < threads_before + 20; }));
}

TEST_F(ExecCallsTest, SixteenAtOnceAndAStopEndsThem) {
  std::atomic<int> ready{0};
  for (int i = 0; i < 16; ++i) {
    Begin(key_, "many" + std::to_string(i), [&](Stream& stream, Said& heard) {
      stream.Write(Command("echo ready; exec sleep 600"));
      Hear(stream, heard, "ready\n");
      ++ready;
      Hear(stream, heard);
      return grpc::Status::OK;
    });
  }
  ASSERT_TRUE(Eventually([&] { return ready.load() == 16; }));
  const Said said = Run(Script({Command("true")}));
  EXPECT_EQ(said.ended.exit_code(), 125);
  EXPECT_EQ(said.ended.error(), "this worker runs 16 such commands already");
  worker_->Stop();
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(Await("many" + std::to_string(i)).done);
}

TEST_F(ExecCallsTest, AWorkerThatLeavesItsJobsTakesItsCommandsAlong) {
  std::atomic<bool> ready{false};
  Begin(key_, "t", [&](Stream& stream, Said& heard) {
    stream.Write(Command("echo ready; exec sleep 600"));
    Hear(stream, heard, "ready\n");
    ready.store(true);
    Hear(stream, heard);
    return grpc::Status::OK;
  });
  ASSERT_TRUE(Eventually([&] { return ready.load(); }));
  EXPECT_TRUE(Eventually([&] { return Alive() == 2; }));
  worker_->Stop(WorkerStopMode::kKeepJobs);
  EXPECT_TRUE(Eventually([&] { return Alive() == 1; }));
  Await("t");
  WorkerOptions options;
  options.server = server_.address();
  options.data_dir = dir_ / "worker";
  options.slots = 4;
  options.exec_program = GPULAYER_EXEC_PROGRAM;
  Result<std::unique_ptr<Worker>> next = Worker::Start(std::move(options));
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  worker_ = *std::move(next);
  ASSERT_TRUE(Eventually([&] { return worker_->connected(); }));
  // The program's environment is there for the next worker's commands too.
  EXPECT_EQ(Run(Script({Command("test -p $GATE")})).ended.exit_code(), 0);
}

}  // namespace
}  // namespace gpulayer
