// Commands that join a running attempt.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "exec/exec_fixture.h"
#include "worker/exec/process_tree.h"
#include "worker/exec/protocol.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The worker's ends of a command; of a terminal `in` alone.
struct Command {
  UniqueFd keeper;
  UniqueFd in, out, err;
};

class JoinTest : public ExecTest {
 protected:
  void SetUp() override {
    ExecTest::SetUp();
    ASSERT_EQ(mkfifo((dir_ / "gate").c_str(), 0600), 0);
  }
  // Runs until Open() and ends with `exit_code`.
  AttemptId StartMain(const std::string& exit_code = "0") {
    AttemptId id = Start(Shell("echo up; read line < gate; exit " + exit_code));
    EXPECT_TRUE(Prints(id, "up\n"));
    EXPECT_TRUE(Eventually([&] { return ear_.Started(id); }));
    return id;
  }
  void OpenGate() { ASSERT_EQ(::system(("echo > " + (dir_ / "gate")).c_str()), 0); }

  Result<Command> Join(const AttemptId& id, std::vector<std::string> argv) {
    int in[2];
    int out[2];
    int err[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    const UniqueFd theirs[] = {UniqueFd(in[0]), UniqueFd(out[1]), UniqueFd(err[1])};
    Command c;
    c.in = UniqueFd(in[1]);
    c.out = UniqueFd(out[0]);
    c.err = UniqueFd(err[0]);
    JoinOrder order;
    order.argv = std::move(argv);
    GPULAYER_ASSIGN_OR_RETURN(
        c.keeper, client_->Join(id, order, {theirs[0].get(), theirs[1].get(), theirs[2].get()},
                                /*give_up=*/-1));
    return c;
  }
  Result<Command> JoinShell(const AttemptId& id, const std::string& script) {
    return Join(id, {"bash", "-c", script});
  }
  Result<Command> JoinOnTerminal(const AttemptId& id, std::vector<std::string> argv) {
    Command c;
    c.in = UniqueFd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    EXPECT_TRUE(c.in.valid() && grantpt(c.in.get()) == 0 && unlockpt(c.in.get()) == 0);
    Resize(c, 33, 44);
    char name[64];
    EXPECT_EQ(ptsname_r(c.in.get(), name, sizeof(name)), 0);
    const UniqueFd theirs(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
    JoinOrder order;
    order.argv = std::move(argv);
    order.terminal = true;
    order.term = "vt220";
    GPULAYER_ASSIGN_OR_RETURN(
        c.keeper, client_->Join(id, order, {theirs.get(), theirs.get(), theirs.get()}, -1));
    return c;
  }
  static void Resize(Command& c, unsigned short rows, unsigned short columns) {
    winsize size{};
    size.ws_row = rows;
    size.ws_col = columns;
    EXPECT_EQ(ioctl(c.in.get(), TIOCSWINSZ, &size), 0);
  }

  static Result<JoinReport> Next(Command& c) {
    pollfd wait = {c.keeper.get(), POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 20'000), 1);
    return ReadJoinReport(c.keeper);
  }
  static bool Started(Command& c) {
    const Result<JoinReport> report = Next(c);
    return report.ok() && report->kind == JoinReport::Kind::kStarted;
  }
  static JoinReport End(Command& c) {
    JoinReport report = Next(c).value_or(JoinReport{});
    if (report.kind == JoinReport::Kind::kStarted) report = Next(c).value_or(JoinReport{});
    return report;
  }
  // Up to `text`, or to the end.
  static std::string ReadUntil(const UniqueFd& fd, const std::string& text) {
    std::string all;
    while (text.empty() || all.find(text) == std::string::npos) {
      pollfd wait = {fd.get(), POLLIN, 0};
      if (poll(&wait, 1, 20'000) != 1) return all + "<nothing comes>";
      char buffer[4096];
      const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
      if (n <= 0) break;
      all.append(buffer, static_cast<std::size_t>(n));
    }
    return all;
  }
  static std::string ReadAllOf(const UniqueFd& fd) { return ReadUntil(fd, ""); }

  bool IsRefused(const AttemptId& id) {
    Result<Command> c = Join(id, {"true"});
    if (!c.ok()) return c.status().code() == StatusCode::kFailedPrecondition;
    return Next(*c).status().code() == StatusCode::kUnavailable;
  }
  pid_t Monitor(const AttemptId& id) {
    const std::string status =
        ReadFile("/proc/" + std::to_string(ear_.Pid(id)) + "/status").value_or("");
    return static_cast<pid_t>(std::atol(status.c_str() + status.find("PPid:") + 5));
  }
  bool OnlyTheProgramRuns(const AttemptId& id) {
    return ChildrenOf(Monitor(id)) == std::vector<pid_t>{static_cast<pid_t>(ear_.Pid(id))};
  }
  static std::vector<std::string> OpenFiles(pid_t pid) {
    std::vector<std::string> out;
    const std::string dir = "/proc/" + std::to_string(pid) + "/fd";
    for (const std::string& fd : ListDir(dir).value_or({})) {
      std::error_code error;
      out.push_back(std::filesystem::read_symlink(JoinPath(dir, fd), error).string());
    }
    return out;
  }
};

TEST(JoinFormatTest, WhatIsWrittenIsRead) {
  JoinOrder order;
  order.argv = {"a", "", "b\nc"};
  order.terminal = true;
  order.term = "xterm";
  EXPECT_EQ(DecodeJoinOrder(EncodeJoinOrder(order)).value_or({}), order);
  EXPECT_FALSE(DecodeJoinOrder(EncodeJoinOrder({})).ok());
  EXPECT_FALSE(DecodeJoinOrder(EncodeJoinOrder(order) + "x").ok());
  JoinReport report;
  EXPECT_EQ(DecodeJoinReport(EncodeJoinReport(report)).value_or({}), report);
  report.kind = JoinReport::Kind::kEnded;
  EXPECT_FALSE(DecodeJoinReport(EncodeJoinReport(report)).ok());
  report.signal = 9;
  EXPECT_EQ(DecodeJoinReport(EncodeJoinReport(report)).value_or({}), report);
}

TEST(JoinVersionTest, AnOlderGpulayerExecIsNotAsked) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / exec_wire::kExecFolder).ok());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s/%s", dir.path().c_str(),
                exec_wire::kExecFolder, exec_wire::kSocketName);
  const UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  int packets = 0;
  std::thread old([&] {
    const UniqueFd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char buffer[exec_wire::kMaxPacket];
    while (recv(peer.get(), buffer, sizeof(buffer), 0) > 0) {
      if (++packets > 1) continue;
      exec_wire::Message welcome;
      welcome.type = exec_wire::Type::kWelcome;
      welcome.value = exec_wire::kVersion;
      exec_wire::Send(peer.get(), exec_wire::Pack(welcome), -1);
    }
  });
  ExecClientOptions options;
  options.data_dir = dir.path();
  options.program = GPULAYER_EXEC_PROGRAM;
  Result<std::unique_ptr<ExecClient>> client = ExecClient::Open(options, [](const ExecEvent&) {});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  if (client.ok()) {
    JoinOrder order;
    order.argv = {"true"};
    const Status status = (*client)->Join(AttemptId("a"), order, {0, 1, 2}, -1).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("older version"));
    client->reset();
  }
  old.join();
  EXPECT_EQ(packets, 1);
}

TEST_F(JoinTest, HasTheAttemptsEnvironmentSecretsAndFolder) {
  AttemptSpec spec = Shell("echo up; read line < gate");
  spec.env.push_back("TOK=public");
  spec.secrets = 1;
  const AttemptId id = Prepare(std::move(spec));
  ASSERT_TRUE(client_->Start(id, {"TOK=hunter2"}).ok());
  ASSERT_TRUE(Prints(id, "up\n"));
  for (int i = 0; i < 2; ++i) {
    Result<Command> c =
        JoinShell(id,
                  "echo $TOK $D $GPULAYER_ATTEMPT_ID; pwd; umask; ls /proc/self/fd | wc -l; "
                  "echo bad >&2");
    ASSERT_TRUE(c.ok()) << c.status().ToString();
    EXPECT_EQ(ReadAllOf(c->out),
              "hunter2 " + dir_.path() + " " + id.value() + "\n" + dir_.path() + "\n0022\n4\n");
    EXPECT_EQ(ReadAllOf(c->err), "bad\n");
    EXPECT_EQ(End(*c).exit_code, 0);
  }
  OpenGate();
  Await(id);
  EXPECT_EQ(Output(id), "up\n");
}

TEST_F(JoinTest, ItsEndIsToldAndTheProgramsIsItsOwn) {
  const AttemptId id = StartMain("3");
  Result<Command> c = JoinShell(id, "exit 0");
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(End(*c).exit_code, 0);
  c = JoinShell(id, "exit 7");
  EXPECT_EQ(End(*c).exit_code, 7);
  c = JoinShell(id, "kill -USR1 $$");
  EXPECT_EQ(End(*c).signal, SIGUSR1);
  c = Join(id, {"no-such-program"});
  JoinReport report = End(*c);
  EXPECT_EQ(report.kind, JoinReport::Kind::kNotStarted);
  EXPECT_EQ(report.failed_step, StartStep::kExec);
  EXPECT_EQ(report.error, ENOENT);
  EXPECT_EQ(report.exit_code, 127);
  c = Join(id, {WriteScript("not-executable", "#!/bin/sh\n", 0644)});
  report = End(*c);
  EXPECT_EQ(report.kind, JoinReport::Kind::kNotStarted);
  EXPECT_EQ(report.exit_code, 126);
  OpenGate();
  const AttemptStatus end = Await(id);
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.swept, 0);
  EXPECT_EQ(end.order, StopOrder::kNone);
}

TEST_F(JoinTest, InputGoesThereAndEnds) {
  const AttemptId id = StartMain();
  Result<Command> c = Join(id, {"cat"});
  ASSERT_TRUE(c.ok());
  ASSERT_EQ(write(c->in.get(), "hello\n", 6), 6);
  EXPECT_EQ(ReadUntil(c->out, "\n"), "hello\n");
  c->in.Reset();
  EXPECT_EQ(ReadAllOf(c->out), "");
  EXPECT_EQ(End(*c).exit_code, 0);
  OpenGate();
  Await(id);
}

TEST_F(JoinTest, OnATerminal) {
  const AttemptId id = StartMain();
  Result<Command> c = JoinOnTerminal(
      id,
      {"bash", "-c", "test -t 0 && test -t 1 && test -t 2 && echo $TERM && stty size < /dev/tty"});
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(ReadAllOf(c->in), "vt220\r\n33 44\r\n");
  EXPECT_EQ(End(*c).exit_code, 0);
  OpenGate();
  Await(id);
}

TEST_F(JoinTest, ATerminalThatIsResizedSaysSo) {
  const AttemptId id = StartMain();
  Result<Command> c = JoinOnTerminal(
      id, {"bash", "-c", "trap 'stty size; exit 5' WINCH; sleep 600 & echo ready; wait"});
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(ReadUntil(c->in, "ready\r\n"), HasSubstr("ready"));
  Resize(*c, 50, 132);
  EXPECT_EQ(ReadUntil(c->in, "\n"), "50 132\r\n");
  EXPECT_EQ(End(*c).exit_code, 5);
  OpenGate();
  EXPECT_EQ(Await(id).swept, 0);
}

TEST_F(JoinTest, ControlCInterruptsWhatRunsOnTheTerminal) {
  const AttemptId id = StartMain();
  Result<Command> c = JoinOnTerminal(id, {"sleep", "600"});
  ASSERT_TRUE(c.ok());
  ASSERT_TRUE(Started(*c));
  ASSERT_EQ(write(c->in.get(), "\x03", 1), 1);
  EXPECT_EQ(End(*c).signal, SIGINT);
  OpenGate();
  EXPECT_EQ(Await(id).exit_code, 0);
}

TEST_F(JoinTest, WhatItLeavesBehindGoesWithIt) {
  const AttemptId id = StartMain();
  Result<Command> c = JoinShell(id, "sleep 600 & (setsid sleep 600 &) ; exit 4");
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(End(*c).exit_code, 4);
  EXPECT_TRUE(Eventually([&] { return Census(id.value()).size() == 1; }));
  OpenGate();
  EXPECT_EQ(Await(id).swept, 0);
}

TEST_F(JoinTest, AHangUpEndsItAndItsChildren) {
  const AttemptId id = StartMain();
  Result<Command> polite =
      JoinShell(id, "trap 'echo hup > $D/hup; exit' HUP; sleep 600 & echo ready; wait");
  Result<Command> deaf =
      JoinShell(id, "trap '' HUP; sleep 600 & (setsid sleep 600 &) ; echo ready; wait");
  ASSERT_TRUE(polite.ok() && deaf.ok());
  EXPECT_EQ(ReadUntil(polite->out, "\n"), "ready\n");
  EXPECT_EQ(ReadUntil(deaf->out, "\n"), "ready\n");
  EXPECT_TRUE(Eventually([&] { return Census(id.value()).size() == 6; }));
  polite->keeper.Reset();
  deaf->keeper.Reset();
  EXPECT_TRUE(Eventually([&] { return Census(id.value()).size() == 1; }));
  EXPECT_EQ(ReadFile(dir_ / "hup").value_or(""), "hup\n");
  OpenGate();
  const AttemptStatus end = Await(id);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.swept, 0);
}

TEST_F(JoinTest, TheAttemptsEndEndsItAndItIsNotLeftOver) {
  const AttemptId id = Start(Shell("sleep 600 & echo up; read line < gate"));
  ASSERT_TRUE(Prints(id, "up\n"));
  Result<Command> c = JoinShell(id, "sleep 600 & (setsid sleep 600 &) ; echo ready; wait");
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(ReadUntil(c->out, "\n"), "ready\n");
  OpenGate();
  const AttemptStatus end = Await(id);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.swept, 1);  // the program's own
  EXPECT_FALSE(end.killed);
  EXPECT_EQ(End(*c).signal, SIGKILL);
}

TEST_F(JoinTest, AStopDoesNotWaitForAShellThatIsDeafToIt) {
  const AttemptId id = StartMain();
  Result<Command> c =
      JoinOnTerminal(id, {"bash", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done"});
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(ReadUntil(c->in, "ready\r\n"), HasSubstr("ready"));
  ASSERT_TRUE(client_->Stop(id, 600s).ok());
  const AttemptStatus end = Await(id);
  EXPECT_EQ(end.order, StopOrder::kStop);
  EXPECT_EQ(end.signal, SIGTERM);
  EXPECT_FALSE(end.killed);
  EXPECT_EQ(end.swept, 0);
  EXPECT_EQ(End(*c).signal, SIGKILL);
}

TEST_F(JoinTest, NothingJoinsWhatDoesNotRun) {
  EXPECT_TRUE(IsRefused(AttemptId(Prefix() + "none")));
  EXPECT_TRUE(IsRefused(Prepare(Shell("true"))));
  const AttemptId over = Start(Shell("true"));
  Await(over);
  EXPECT_TRUE(IsRefused(over));
  AttemptSpec deaf = Shell("trap '' TERM; echo up; while :; do sleep 600; done");
  const AttemptId stopping = Start(deaf);
  ASSERT_TRUE(Prints(stopping, "up\n"));
  ASSERT_TRUE(client_->Stop(stopping, 600s).ok());
  EXPECT_TRUE(IsRefused(stopping));
  ASSERT_TRUE(client_->Stop(stopping, 0s).ok());
  Await(stopping);
  for (const AttemptId& id : {over, stopping}) {
    for (const std::string& name : ListDir(store_.PathOf(id)).value_or({})) {
      EXPECT_THAT(name, Not(::testing::StartsWith(kJoinPrefix)));
    }
  }
}

TEST_F(JoinTest, WhatCannotBeHandedOverIsRefused) {
  const AttemptId id = StartMain();
  for (const std::vector<std::string>& argv :
       {std::vector<std::string>{}, {"echo", std::string(1, '\0')}, {std::string(200'000, 'x')}}) {
    EXPECT_EQ(Join(id, argv).status().code(), StatusCode::kInvalidArgument);
  }
  Result<Command> c = Join(id, {"printf", "%s", std::string(120'000, 'x')});
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_EQ(ReadAllOf(c->out).size(), 120'000U);
  OpenGate();
  Await(id);
}

TEST_F(JoinTest, WhoeverWaitsCanGiveUp) {
  const AttemptId id = StartMain();
  const UniqueFd give_up(eventfd(1, EFD_CLOEXEC));
  const pid_t exec = ExecPid();
  ASSERT_EQ(kill(exec, SIGSTOP), 0);
  JoinOrder order;
  order.argv = {"true"};
  EXPECT_EQ(client_->Join(id, order, {0, 1, 2}, give_up.get()).status().code(),
            StatusCode::kCancelled);
  ASSERT_EQ(kill(exec, SIGCONT), 0);
  // The one that nobody waits for is no harm to the next.
  Result<Command> c = Join(id, {"true"});
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(End(*c).exit_code, 0);
  OpenGate();
  Await(id);
}

TEST_F(JoinTest, AKeeperHoldsNothingOfTheMonitors) {
  const AttemptId id = StartMain();
  Result<Command> c = JoinShell(id, "echo $PPID; read line");
  ASSERT_TRUE(c.ok() && Started(*c));
  const pid_t keeper = static_cast<pid_t>(std::atol(ReadUntil(c->out, "\n").c_str()));
  ProcessInfo info;
  ASSERT_TRUE(ReadProcessInfo(keeper, info));
  EXPECT_EQ(info.name, "gpulayer-join");
  // /dev/null, the daemon's log twice, the folder, SIGCHLD, the socket.
  EXPECT_EQ(OpenFiles(keeper).size(), 6U);
  for (const std::string& file : OpenFiles(keeper)) {
    EXPECT_THAT(file, Not(::testing::EndsWith("/log")));
  }
  // Nothing but the command ends with it.
  ASSERT_EQ(kill(keeper, SIGKILL), 0);
  EXPECT_EQ(ReadAllOf(c->out), "");
  EXPECT_EQ(Next(*c).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Eventually([&] { return OnlyTheProgramRuns(id); }));
  OpenGate();
  const AttemptStatus end = Await(id);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.swept, 0);
}

TEST_F(JoinTest, ManyLeaveNothingWithTheMonitor) {
  const AttemptId id = StartMain();
  const pid_t monitor = Monitor(id);
  const std::vector<std::string> before = OpenFiles(monitor);
  ASSERT_GT(before.size(), 5U);
  for (int i = 0; i < 50; ++i) {
    Result<Command> c = Join(id, {"true"});
    ASSERT_TRUE(c.ok()) << c.status().ToString();
    ASSERT_EQ(End(*c).exit_code, 0);
  }
  EXPECT_TRUE(Eventually([&] { return OnlyTheProgramRuns(id); }));
  EXPECT_EQ(OpenFiles(monitor), before);
  OpenGate();
  Await(id);
}

TEST_F(JoinTest, IsUnderTheAttemptsMemoryLimit) {
  AttemptSpec spec = Shell("cat /proc/self/cgroup; echo up; read line < gate");
  spec.memory_limit = std::int64_t{256} << 20;
  const AttemptId id = Start(std::move(spec));
  ASSERT_TRUE(Prints(id, "up\n"));
  Result<Command> c = JoinShell(id, "cat /proc/self/cgroup; echo up");
  ASSERT_TRUE(c.ok());
  // Where there can be no group both are in that of the daemon.
  EXPECT_EQ(ReadAllOf(c->out), Output(id));
  OpenGate();
  EXPECT_EQ(Await(id).exit_code, 0);
}

}  // namespace
}  // namespace gpulayer::testing
