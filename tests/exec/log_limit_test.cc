// Output over --log-limit: the head and the tail are kept, whatever happens to whom.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <numeric>
#include <random>

#include "base/text.h"
#include "exec/exec_fixture.h"
#include "worker/exec/log_sink.h"
#include "worker/logs/log_tail.h"

namespace gpulayer::testing {
namespace {

constexpr std::int64_t kLimit = 64 << 10;

// A log that is over, as it is sent to the server.
struct Sent {
  std::string bytes;
  std::vector<FrameView> frames;  // of `bytes`
  std::int64_t dropped = 0;       // as its note says
  std::string head, tail;  // what the program wrote, both streams; no tail: nothing is missing
};

Sent ReadLog(const std::string& dir, std::int64_t from = 0) {
  Sent sent;
  for (bool final = false; !final;) {
    // A reader of its own for each piece: as after a restart at any time.
    LogTail tail(dir, from + static_cast<std::int64_t>(sent.bytes.size()));
    const Result<LogPiece> piece = tail.Read();
    EXPECT_TRUE(piece.ok()) << piece.status().ToString();
    if (!piece.ok()) return sent;
    sent.bytes += piece->data;
    final = piece->final;
    if (piece->data.empty() && !final) {
      ADD_FAILURE() << "neither bytes nor an end";
      return sent;
    }
  }
  const Result<std::vector<FrameView>> frames = ParseFrames(sent.bytes);
  EXPECT_TRUE(frames.ok());
  sent.frames = frames.value_or({});
  std::string* part = &sent.head;
  for (const FrameView& frame : sent.frames) {
    if (frame.stream != LogStream::kNote) {
      *part += frame.data;
    } else if (frame.data.find(" bytes of output here") != std::string_view::npos) {
      EXPECT_EQ(sent.dropped, 0) << "one note";
      sent.dropped = DroppedIn(frame.data);
      part = &sent.tail;
    }
  }
  return sent;
}

// A sink with its attempt's folder, and what was written into it.
class LogLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
    log_ = *OpenFile(dir_ / "log", O_RDWR | O_CREAT);
    folder_ = *OpenFile(dir_.path(), O_RDONLY | O_DIRECTORY);
    sink_ = std::make_unique<LogSink>(log_.get(), folder_.get());
    sink_->Limit(kLimit);
  }
  void TearDown() override {
    for (const int fd : pipe_) close(fd);
  }

  void Write(const std::string& data, LogStream stream = LogStream::kOut) {
    ASSERT_TRUE(WriteAll(pipe_[1], data).ok());
    while (sink_->Copy(pipe_[0], stream) == LogSink::Progress::kMore) {
    }
    all_ += data;
    EXPECT_LE(OnDisk(), kLimit + 512);
  }
  std::int64_t OnDisk() {
    std::int64_t size = 0;
    for (const char* name : {"log", "tail0", "tail1"}) {
      struct stat st = {};
      if (stat((dir_ / name).c_str(), &st) == 0) size += st.st_size;
    }
    return size;
  }
  Sent End() {
    EXPECT_TRUE(WriteFileAtomic(dir_ / "status", "", 0600, Durability::kNone).ok());
    return ReadLog(dir_.path());
  }
  // Head and tail are the program's own first and last bytes, and the note says what is missing.
  void ExpectKept(const Sent& sent) {
    EXPECT_EQ(sent.head, all_.substr(0, sent.head.size()));
    EXPECT_EQ(sent.tail, all_.substr(all_.size() - sent.tail.size()));
    EXPECT_EQ(static_cast<std::int64_t>(all_.size()),
              static_cast<std::int64_t>(sent.head.size() + sent.tail.size()) + sent.dropped);
  }

  TempDir dir_;
  int pipe_[2] = {-1, -1};
  UniqueFd log_, folder_;
  std::unique_ptr<LogSink> sink_;
  std::string all_;
};

std::string Lines(int from, int to) {
  std::string out;
  for (int i = from; i < to; ++i) out += "line " + std::to_string(i) + "\n";
  return out;
}

TEST_F(LogLimitTest, HeadAndTailAreKeptAndTheNoteCountsTheRest) {
  for (int i = 0; i < 1000; ++i) Write(Lines(i * 100, i * 100 + 100));
  sink_->Finish();
  const Sent sent = End();
  ExpectKept(sent);
  EXPECT_GT(sent.head.size(), kLimit / 3);
  EXPECT_GT(sent.tail.size(), kLimit / 5);
  EXPECT_EQ(sent.tail.rfind("line ", 0), 0U);
  EXPECT_GE(sink_->size(), static_cast<std::int64_t>(sent.bytes.size()));
  EXPECT_LE(static_cast<std::int64_t>(sent.bytes.size()), kLimit + 1024);
}

TEST_F(LogLimitTest, TheNoteNamesTheLimitAndTheHeldBackOneComesBeforeIt) {
  for (int i = 0; i < 100; ++i) Write(Lines(0, 500));
  std::vector<std::string> notes;
  const Sent sent = End();
  for (const FrameView& frame : sent.frames) {
    if (frame.stream == LogStream::kNote) notes.emplace_back(frame.data);
  }
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0], kHeldBackNote);
  EXPECT_EQ(notes[1], "dropped " + std::to_string(sent.dropped) +
                          " bytes of output here (--log-limit 64KiB)\n");
}

TEST_F(LogLimitTest, BelowTheLimitNothingIsMissing) {
  for (int i = 0; i < 12; ++i) Write(std::string(3500, 'x') + "\n");  // 42 KB: past the half
  sink_->Finish();
  const Sent sent = End();
  EXPECT_EQ(sent.head, all_);
  EXPECT_EQ(sent.dropped, 0);
}

TEST_F(LogLimitTest, ALongLineHasNoBeginningToLookFor) {
  for (int i = 0; i < 500; ++i) Write(std::string(1000, 'x'));
  Write("\n");
  sink_->Finish();
  const Sent sent = End();
  ExpectKept(sent);
  EXPECT_GT(sent.tail.size(), kLimit / 5);
}

TEST_F(LogLimitTest, EachStreamsTailBeginsWithALine) {
  for (int i = 0; i < 2000; ++i) {
    Write("out " + std::to_string(i) + " half,");
    Write("err " + std::to_string(i) + " half,", LogStream::kErr);
    Write(" whole\n");
    Write(" whole\n", LogStream::kErr);
  }
  sink_->Finish();
  const Sent sent = End();
  std::string of[3];
  bool in_tail = false;
  for (const FrameView& frame : sent.frames) {
    if (DroppedIn(frame.data) > 0) in_tail = true;
    if (in_tail) of[static_cast<int>(frame.stream)] += frame.data;
  }
  EXPECT_EQ(of[1].rfind("out ", 0), 0U) << of[1].substr(0, 40);
  EXPECT_EQ(of[2].rfind("err ", 0), 0U) << of[2].substr(0, 40);
  EXPECT_NE(of[1].find("out 1999 half, whole\n"), std::string::npos);
}

// The keeper may die between any two writes, and within the last one.
TEST_F(LogLimitTest, WhatIsThereAtAnyTimeIsHeadAndTail) {
  std::minstd_rand random(7);
  for (int i = 0; i < 300; ++i) {
    std::string data(random() % 3000 + 1, 'a');
    for (char& c : data) c = random() % 40 == 0 ? '\n' : static_cast<char>('a' + random() % 26);
    Write(data);
    const Sent sent = End();
    ExpectKept(sent);
    if (::testing::Test::HasFailure()) FAIL() << "after write " << i;
  }
  // Torn in the middle of a frame, and a file whose header was not written yet.
  const std::string newest = OpenFile(dir_ / "tail0", O_RDWR).ok() ? "tail0" : "tail1";
  const std::string bytes = *ReadFile(dir_ / newest);
  ASSERT_EQ(truncate((dir_ / newest).c_str(), static_cast<off_t>(bytes.size() - 1)), 0);
  EXPECT_EQ(ParseFrames(End().bytes).ok(), true);
  ASSERT_EQ(truncate((dir_ / "tail0").c_str(), 10), 0);
  const Sent one = End();
  EXPECT_EQ(one.head, all_.substr(0, one.head.size()));
  EXPECT_FALSE(one.tail.empty());
}

TEST_F(LogLimitTest, F20_AFullDiskCostsOutputAndNothingElse) {
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  for (int i = 0; i < 50; ++i) Write(Lines(i, i + 200));
  rlimit small = old;
  small.rlim_cur = 10;  // not even a header
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 50; ++i) Write(Lines(i, i + 200));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  EXPECT_GT(sink_->dropped(), 0);
  for (int i = 0; i < 2; ++i) Write(Lines(i, i + 200));
  sink_->Finish();
  const Sent sent = End();
  std::int64_t noted = 0;
  std::int64_t kept = 0;
  for (const FrameView& frame : sent.frames) {
    if (frame.stream == LogStream::kNote) noted += DroppedIn(frame.data);
    if (frame.stream != LogStream::kNote) kept += static_cast<std::int64_t>(frame.data.size());
  }
  EXPECT_EQ(noted + kept, static_cast<std::int64_t>(all_.size()));
}

class LogLimitExecTest : public ExecTest {
 protected:
  // Numbered lines, far over the limit, and then it waits.
  AttemptSpec Chatty(const std::string& end) {
    AttemptSpec spec = Shell("seq 200000; echo over; " + end);
    spec.log_limit = kLimit;
    return spec;
  }
  bool IsInTail(const AttemptId& id) {
    return Eventually([&] {
      for (const char* name : kTailFiles) {
        const Result<std::string> tail = ReadFile(JoinPath(store_.PathOf(id), name));
        if (tail.ok() && tail->find("over\n") != std::string::npos) return true;
      }
      return false;
    });
  }
  void ExpectBothEnds(const AttemptId& id) {
    const Sent sent = ReadLog(store_.PathOf(id));
    EXPECT_EQ(sent.head.rfind("1\n2\n3\n", 0), 0U);
    EXPECT_TRUE(sent.tail.ends_with("199999\n200000\nover\n")) << sent.tail.size();
    constexpr std::int64_t kAll = 1'288'895 + 5;
    EXPECT_EQ(static_cast<std::int64_t>(sent.head.size() + sent.tail.size()) + sent.dropped, kAll);
  }
};

TEST_F(LogLimitExecTest, OfAProgramThatEndsByItself) {
  const AttemptStatus s = Run(Chatty("exit 3"));
  EXPECT_EQ(s.exit_code, 3);
  EXPECT_EQ(s.log_dropped_bytes, 0);
  ExpectBothEnds(last_);
  const Sent sent = ReadLog(store_.PathOf(last_));
  EXPECT_GE(s.log_bytes, static_cast<std::int64_t>(sent.bytes.size()));
}

TEST_F(LogLimitExecTest, OfOneWhoseKeepersAreKilled) {
  client_.reset();
  ASSERT_TRUE(Eventually([&] { return ExecPid() == 0; }));
  Reopen(ExecClientOptions::Life::kOutlivesWorker);
  const AttemptId first = Start(Chatty("sleep 1000"));
  const AttemptId second = Start(Chatty("sleep 1000"));
  ASSERT_TRUE(IsInTail(first) && IsInTail(second));
  // The keeper of the first, then gpulayer-exec and with it the second's.
  const std::string status = *ReadFile("/proc/" + std::to_string(ear_.Pid(first)) + "/status");
  const auto at = status.find("PPid:\t");
  ASSERT_NE(at, std::string::npos);
  kill(static_cast<pid_t>(std::stol(status.substr(at + 6))), SIGKILL);
  EXPECT_EQ(Await(first).failed_step, StartStep::kMonitor);
  ExpectBothEnds(first);
  const pid_t exec = ExecPid();
  ASSERT_GT(exec, 1);
  kill(exec, SIGKILL);
  EXPECT_EQ(Await(second).order, StopOrder::kShutdown);
  ExpectBothEnds(second);
  ASSERT_TRUE(client_->Shutdown(0s, 10s).ok());
}

}  // namespace
}  // namespace gpulayer::testing
