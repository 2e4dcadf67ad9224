// The bytes of attempt folders, and the log writer on a full disk.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fs.h"
#include "support/temp_dir.h"
#include "worker/exec/attempt_dir.h"
#include "worker/exec/log_sink.h"

namespace gpulayer::testing {
namespace {

AttemptSpec SomeSpec() {
  AttemptSpec spec;
  spec.argv = {"a", "", std::string("\x80\n", 2)};
  spec.env = {"A=b"};
  spec.cwd = "/w";
  spec.stdin_path = "/in";
  spec.time_limit = std::chrono::milliseconds(1500);
  return spec;
}

AttemptStatus SomeStatus() {
  AttemptStatus s;
  s.signal = 9;
  s.order = StopOrder::kTimeLimit;
  s.killed = true;
  s.started = AttemptStarted{7, {TimePoint(Duration(5)), FromMicros(6)}};
  s.main_ended = Instant{TimePoint(Duration(8)), FromMicros(9)};
  s.ended = {TimePoint(Duration(10)), FromMicros(11)};
  s.log_bytes = 12;
  s.log_dropped_bytes = 13;
  s.swept = 2;
  s.swept_names = {"1 a", "2 b"};
  s.unreachable = 1;
  s.attempt = "at-1";
  return s;
}

TEST(AttemptFormatTest, LimitsRoundTripAndAreNotWrittenWhereTheyDoNotMatter) {
  const std::size_t plain = EncodeSpec(SomeSpec()).size();
  AttemptSpec spec = SomeSpec();
  spec.log_limit = 65536;
  EXPECT_EQ(*DecodeSpec(EncodeSpec(spec)), spec);
  spec = SomeSpec();
  spec.memory_limit = 7;
  EXPECT_EQ(*DecodeSpec(EncodeSpec(spec)), spec);
  EXPECT_EQ(EncodeSpec(spec).size(), plain + 16);  // an older gpulayer-exec reads the plain one
  spec = SomeSpec();
  spec.secrets = 3;
  EXPECT_EQ(*DecodeSpec(EncodeSpec(spec)), spec);
  EXPECT_EQ(EncodeSpec(spec).size(), plain + 24);  // and takes this one for damaged
  const std::vector<std::string> secrets = {"A=1", "B=" + std::string("\n=\xff")};
  EXPECT_EQ(*DecodeSecrets(EncodeSecrets(secrets)), secrets);
  EXPECT_FALSE(DecodeSecrets(EncodeSecrets(secrets).substr(0, 20)).ok());
  AttemptStatus status = SomeStatus();
  status.memory_limit = 7;
  status.oom_kills = 2;
  EXPECT_EQ(*DecodeStatus(EncodeStatus(status), "at-1"), status);
  EXPECT_EQ(EncodeStatus(status).size(), EncodeStatus(SomeStatus()).size() + 16);
  const TailHeader header{3, 65536, 100, 200, 300, false, true};
  EXPECT_EQ(*DecodeTailHeader(EncodeTailHeader(header)), header);
  EXPECT_EQ(EncodeTailHeader(header).size(), kTailHeaderBytes);
  EXPECT_FALSE(DecodeTailHeader(EncodeTailHeader(header).substr(1)).ok());
}

TEST(AttemptFormatTest, RoundTrips) {
  EXPECT_EQ(*DecodeSpec(EncodeSpec(SomeSpec())), SomeSpec());
  EXPECT_EQ(*DecodeStatus(EncodeStatus(SomeStatus()), "at-1"), SomeStatus());
  EXPECT_EQ(*DecodeStarted(EncodeStarted(*SomeStatus().started)), *SomeStatus().started);
}

TEST(AttemptFormatTest, TheLayoutOfVersion1Stays) {
  EXPECT_EQ(EncodeStarted({7, {TimePoint(Duration(5)), FromMicros(6)}}),
            std::string("GLSTRT1\n\7\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0", 32));
  AttemptSpec spec;
  spec.argv = {"x"};
  spec.cwd = "/";
  spec.grace = Duration(1);
  EXPECT_EQ(EncodeSpec(spec),
            std::string("GLSPEC1\n\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\1\0\0\0\0\0\0\0\1\0\0\0/\0\0\0\0"
                        "\1\0\0\0\1\0\0\0x\0\0\0\0",
                        46));
  AttemptStatus status;  // as gpulayer-exec wrote it before there were limits
  status.exit_code = 3;
  status.log_bytes = 9;
  status.attempt = "a";
  const std::string none(8, '\xFF');
  EXPECT_EQ(EncodeStatus(status),
            "GLSTAT1\n" + std::string(8, '\0') + std::string("\3\0\0\0\0\0\0\0", 8) + none +
                std::string(8 + 24 + 4 + 16 + 16, '\0') + std::string("\11\0\0\0\0\0\0\0", 8) +
                std::string(24 + 4, '\0') + std::string("\1\0\0\0a", 5));
}

TEST(AttemptFormatTest, CutAndChangedBytesAreDamageNotCrashes) {
  const std::string spec = EncodeSpec(SomeSpec());
  const std::string status = EncodeStatus(SomeStatus());
  for (std::size_t n = 0; n < spec.size(); ++n) EXPECT_FALSE(DecodeSpec(spec.substr(0, n)).ok());
  const std::size_t before_attempt = status.size() - sizeof(std::uint32_t) - 4;  // "at-1"
  for (std::size_t n = 0; n < status.size(); ++n) {
    // A gpulayer-exec of before the field wrote that.
    EXPECT_EQ(DecodeStatus(status.substr(0, n), "at-1").ok(), n == before_attempt) << n;
  }
  EXPECT_FALSE(DecodeSpec(spec + "x").ok());
  for (std::size_t at = 0; at < spec.size(); ++at) {
    std::string changed = spec;
    changed[at] = '\xFF';
    IgnoreError(DecodeSpec(changed).status(), "only must not crash");
  }
  for (std::size_t at = 0; at < status.size(); ++at) {
    std::string changed = status;
    changed[at] = '\xFF';
    IgnoreError(DecodeStatus(changed, "at-1").status(), "only must not crash");
  }
}

TEST(AttemptFormatTest, TheStatusOfAnotherAttemptIsDamage) {
  EXPECT_EQ(DecodeStatus(EncodeStatus(SomeStatus()), "at-2").status().code(),
            StatusCode::kDataLoss);
}

TEST(AttemptFormatTest, AStatusIsNeverLongerThanItsBound) {
  AttemptStatus s = SomeStatus();
  s.swept_names.assign(100, std::string(200, 'n'));
  EXPECT_LE(EncodeStatus(s).size(), kMaxStatusBytes);
  EXPECT_TRUE(DecodeStatus(EncodeStatus(s), "at-1").ok());
}

TEST(AttemptFormatTest, Ids) {
  for (const char* good : {"a", "42.7-2_X", "A1"}) EXPECT_TRUE(IsValidAttemptId(good));
  for (const char* bad : {"", ".", "..", ".a", "a/b", "a b", "\x80"}) {
    EXPECT_FALSE(IsValidAttemptId(bad)) << bad;
  }
  EXPECT_FALSE(IsValidAttemptId(std::string(kMaxAttemptIdBytes + 1, 'a')));
}

// A file size limit stands for the full disk: the same short writes and failures.
class FullDiskTest : public ::testing::Test {
 protected:
  FullDiskTest() {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
  }
  ~FullDiskTest() override {
    Limit(before_.rlim_cur);
    close(pipe_[0]);
    close(pipe_[1]);
    signal(SIGXFSZ, SIG_DFL);
  }
  void Limit(rlim_t bytes) {
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  void Copy(LogSink& sink, const std::string& text) {
    EXPECT_EQ(write(pipe_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(sink.Copy(pipe_[0], LogStream::kOut), LogSink::Progress::kMore);
  }
  rlimit before_{};
  int pipe_[2] = {-1, -1};
};

TEST_F(FullDiskTest, F20_DroppedOutputIsNotedWhereItWasAndFramesStayWhole) {
  TempDir dir;
  const UniqueFd file = *OpenFile(dir / "log", O_RDWR | O_CREAT);
  const auto sink = std::make_unique<LogSink>(file.get(), AT_FDCWD);
  Copy(*sink, "before");
  Limit(40);
  Copy(*sink, "this is cut in the middle");
  Copy(*sink, "not at all");
  Limit(before_.rlim_cur);
  Copy(*sink, "after");
  sink->Finish();
  EXPECT_EQ(sink->dropped(), 35);
  const std::string bytes = *ReadFile(dir / "log");
  EXPECT_EQ(sink->size(), static_cast<std::int64_t>(bytes.size()));
  const std::vector<FrameView> frames = *ParseFrames(bytes);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].data, "before");
  EXPECT_EQ(frames[1].stream, LogStream::kNote);
  EXPECT_EQ(frames[1].data, "dropped 35 bytes: the worker's disk was full\n");
  EXPECT_EQ(frames[2].data, "after");
  EXPECT_EQ(sink->Copy(pipe_[0], LogStream::kOut), LogSink::Progress::kNothingNow);
}

// A disk that is full in the middle of a frame, and has a little room again afterwards.
TEST(LogSinkTest, TornFrameLeavesNothingBehindTheNext) {
  const TempDir dir;
  const Result<UniqueFd> log = OpenFile(dir / "log", O_RDWR | O_CREAT);
  ASSERT_TRUE(log.ok());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd out(ends[0]), in(ends[1]);
  LogSink sink(log->get(), AT_FDCWD);

  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 5000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ASSERT_TRUE(WriteAll(in.get(), std::string(10'000, '\xFF')).ok());
  EXPECT_EQ(sink.Copy(out.get(), LogStream::kOut), LogSink::Progress::kMore);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(sink.dropped(), 10'000);

  ASSERT_TRUE(WriteAll(in.get(), "again").ok());
  EXPECT_EQ(sink.Copy(out.get(), LogStream::kOut), LogSink::Progress::kMore);
  const std::string bytes = *ReadFile(dir / "log");  // as a reader meets it while the program runs
  const Result<std::vector<FrameView>> frames = ParseFrames(bytes);
  ASSERT_TRUE(frames.ok()) << frames.status().ToString();
  ASSERT_EQ(frames->size(), 2U);
  EXPECT_EQ((*frames)[0].stream, LogStream::kNote);
  EXPECT_EQ((*frames)[1].data, "again");
  EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), sink.size());
}

}  // namespace
}  // namespace gpulayer::testing
