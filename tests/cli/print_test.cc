#include "cli/print.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>

namespace gpulayer::cli {
namespace {

std::string Through(bool terminal, const std::vector<std::string>& pieces) {
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  ByteSink sink(fds[1], terminal);
  for (const std::string& piece : pieces) EXPECT_TRUE(sink.Write(piece));
  EXPECT_TRUE(sink.Finish());
  ::close(fds[1]);
  std::string out;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(fds[0], buffer, sizeof buffer)) > 0;) {
    out.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fds[0]);
  return out;
}

TEST(ByteSinkTest, F34AFileGetsTheBytesAsTheyAre) {
  const std::string bytes("hi\n\x80\xff\n\0bye\x1b[1m\n", 15);
  EXPECT_EQ(Through(false, {bytes}), bytes);
}

TEST(ByteSinkTest, F34ATerminalGetsMarksAndAllOtherLinesWhole) {
  EXPECT_EQ(Through(true, {"hi\n\x80\xff\nbye\n"}), "hi\n\xEF\xBF\xBD\xEF\xBF\xBD\nbye\n");
  EXPECT_EQ(Through(true, {"\x1b[1mred\x1b[0m"}), "\x1b[1mred\x1b[0m");
}

TEST(ByteSinkTest, F34ACharacterCutBetweenPiecesIsWhole) {
  const std::string euro = "\xE2\x82\xAC";
  EXPECT_EQ(Through(true, {"a" + euro.substr(0, 1), euro.substr(1, 1), euro.substr(2) + "b"}),
            "a" + euro + "b");
  EXPECT_EQ(Through(true, {"a" + euro.substr(0, 2)}), "a\xEF\xBF\xBD");
  EXPECT_EQ(Through(true, {euro.substr(0, 2), "x"}), "\xEF\xBF\xBD\xEF\xBF\xBDx");
}

TEST(ByteSinkTest, AFullPipeThatDoesNotBlockIsWaitedFor) {
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_NONBLOCK), 0);
  const std::string bytes(1'000'000, 'x');  // more than a pipe holds
  std::size_t got = 0;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t n = 1; n != 0;) {
      pollfd p{fds[0], POLLIN, 0};
      ::poll(&p, 1, -1);
      n = ::read(fds[0], buffer, sizeof buffer);
      if (n > 0) got += static_cast<std::size_t>(n);
    }
  });
  ByteSink sink(fds[1], false);
  EXPECT_TRUE(sink.Write(bytes));
  ::close(fds[1]);
  reader.join();
  EXPECT_EQ(got, bytes.size());
  ::close(fds[0]);
}

TEST(ByteSinkTest, AFullDiskIsNotAReaderThatWentAway) {
  const int full = ::open("/dev/full", O_WRONLY);
  ByteSink sink(full, false);
  EXPECT_FALSE(sink.Write("x"));
  EXPECT_EQ(sink.error(), ENOSPC);
  ::close(full);
  EXPECT_FALSE(sink.Write("y"));
  EXPECT_EQ(sink.error(), ENOSPC);  // the first one is the reason
  EXPECT_EQ(WriteErrorText(1, ENOSPC), "standard output: No space left on device");
}

TEST(PrintLogNoteTest, IsOneLine) {
  testing::internal::CaptureStderr();
  PrintLogNote("the log was cut\n");
  PrintLogNote("and\x1b more");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "gpulayer: the log was cut\ngpulayer: and\xEF\xBF\xBD more\n");
}

TEST(TimeTextTest, IsToTheSecond) {
  ::setenv("TZ", "XYZ-1:30", 1);
  ::tzset();
  EXPECT_EQ(TimeText(Time(std::chrono::microseconds(1'700'000'000'123'456))),
            "2023-11-14 23:43:20 +01:30");
  EXPECT_EQ(TimeText(std::optional<Time>()), "");
  ::unsetenv("TZ");
  ::tzset();
}

TEST(TokenStateTest, SaysWhatIsPastAsPast) {
  const Time now(std::chrono::seconds(1'700'000'000));
  TokenInfo token;
  EXPECT_EQ(TokenState(token, now), "valid");
  token.expires = now + std::chrono::hours(1);
  EXPECT_EQ(TokenState(token, now), "until " + TimeText(*token.expires));
  token.expires = now - std::chrono::hours(1);
  EXPECT_EQ(TokenState(token, now), "expired " + TimeText(*token.expires));
  token.revoked = now;
  EXPECT_EQ(TokenState(token, now), "revoked " + TimeText(now));
}

TEST(WorkerNamesTest, TwoOfOneNameShowTheirIds) {
  std::vector<WorkerInfo> workers(3);
  workers[0].name = workers[2].name = "box";
  workers[0].id = "1a";
  workers[2].id = "2b";
  workers[1].name = "mac";
  EXPECT_EQ(WorkerNames(workers), (std::vector<std::string>{"box (1a)", "mac", "box (2b)"}));
}

TEST(WithoutDurationTest, WaitingLongerIsNoNews) {
  EXPECT_EQ(WithoutDuration("job 4 queued: waits (1m5s): vm: 2 of 2 slots in use by job 3"),
            "job 4 queued: waits: vm: 2 of 2 slots in use by job 3");
  EXPECT_EQ(WithoutDuration("job 4 queued: waits: x"), "job 4 queued: waits: x");
  EXPECT_EQ(WithoutDuration("job 4 queued: starts next"), "job 4 queued: starts next");
}

TEST(UpTextTest, SaysWhatRunsAndWhoReachesIt) {
  UpReport report;
  report.data_dir = "/d";
  report.addresses = {"10.0.0.5:7461"};
  report.join_token = "gl1.w";
  report.login_token = "gl1.c";
  const std::string fresh = UpText(report);
  EXPECT_EQ(fresh.rfind("GPUlayer is up, in /d\n", 0), 0u);
  EXPECT_NE(fresh.find("  gpulayer join 10.0.0.5:7461 --token gl1.w\n"), std::string::npos);
  EXPECT_NE(fresh.find("  gpulayer login 10.0.0.5:7461 --token gl1.c\n"), std::string::npos);
  report.was_up = true;
  EXPECT_EQ(UpText(report).rfind("GPUlayer was up already, in /d\n", 0), 0u);
  EXPECT_EQ(UpText(report).find("server only"), std::string::npos);
  report.worker = false;
  EXPECT_NE(UpText(report).find("\nserver only; for a worker too: `gpulayer down`, then"),
            std::string::npos);
  report.restarted = {"server", "worker"};
  EXPECT_EQ(UpText(report).rfind("started the server and worker again, which had ended. ", 0), 0u);
  report.only_here = true;
  report.addresses = {"127.0.0.1:7999"};
  EXPECT_EQ(UpText(report).find("join"), std::string::npos);
  EXPECT_NE(
      UpText(report).find("Only this machine reaches it (127.0.0.1:7999). For other "
                          "machines: `gpulayer down`, then `gpulayer up --listen 0.0.0.0:7999`"),
      std::string::npos);
}

TEST(OutputsTextTest, SaysHowManyAndWhereOrHow) {
  JobInfo job;
  job.id = 7;
  EXPECT_EQ(OutputsText(job, std::nullopt), "no outputs\n");
  EXPECT_EQ(OutputsText(job, ""), "no outputs\n");
  job.tasks.resize(2);
  for (TaskInfo& task : job.tasks) {
    task.output_files = 1;
    task.output_bytes = 1024;
  }
  EXPECT_EQ(OutputsText(job, "/tmp/x"), "2 outputs, 2KiB, in /tmp/x\n");
  const std::string text = OutputsText(job, std::nullopt);
  EXPECT_EQ(text.rfind("2 outputs, 2KiB: ", 0), 0u);
  EXPECT_NE(text.find("`gpulayer job result 7 --to DIR`"), std::string::npos);
}

TEST(LeftOutLinesTest, WhatManyTasksLeftOutAlikeIsSaidOnce) {
  EXPECT_EQ(LeftOutLines({{"a", 0, "r"}, {"b", 0, "r"}, {"a", 0, "r"}}, 3),
            (std::vector<std::string>{"left out a: r (2 times)", "left out b: r"}));
}

TEST(TableTest, WideCharactersTakeTwoColumns) {
  Table table({"NAME", "X"});
  table.Add({"\u0422\u5403", "1"});
  table.Add({"abc", "2"});
  EXPECT_EQ(table.ToText(), "NAME  X\n\u0422\u5403   1\nabc   2\n");
}

TEST(LeftOutLinesTest, NamesEachAndCountsTheRest) {
  EXPECT_TRUE(LeftOutLines({}, 0).empty());
  EXPECT_EQ(LeftOutLines({{"a\nb", 2048, "over the limit"}}, 3),
            (std::vector<std::string>{"left out a\xEF\xBF\xBD"
                                      "b (2KiB): over the limit",
                                      "left out 2 more"}));
}

TEST(UsageErrorTest, EndsItsSentenceOnce) {
  testing::internal::CaptureStderr();
  PrintUsageError("--slots: at least 1", "up");
  PrintUsageError("Did you mean x?", "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "gpulayer: --slots: at least 1. See `gpulayer up --help`.\n"
            "gpulayer: Did you mean x? See `gpulayer --help`.\n");
}

TEST(TableTest, ColumnsAreAsWideAsTheyNeedToBe) {
  Table table({"ID", "NAME", "STATE"});
  table.Add({"7", "tr\xC3\xA4in", "queued"});
  table.Add({"1234", "", "running"});
  table.Add({"8", "a\nb", "failed"});
  EXPECT_EQ(table.ToText(),
            "ID    NAME   STATE\n"
            "7     tr\xC3\xA4in  queued\n"
            "1234  -      running\n"
            "8     a\xEF\xBF\xBD"
            "b    failed\n");
}

}  // namespace
}  // namespace gpulayer::cli
