// How programs are run: outcome, arguments, environment, descriptors, input, output.
#include <sstream>

#include "exec/exec_fixture.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(ExecTest, F04_ExitCodesAreTheProgramsOwn) {
  for (const int code : {0, 1, 7, 124, 125, 126, 127, 130, 137, 255}) {
    const AttemptStatus s = Run(Spec({"sh", "-c", "exit " + std::to_string(code)}));
    EXPECT_EQ(s.failed_step, StartStep::kNone);
    EXPECT_EQ(s.exit_code, code);
    EXPECT_EQ(s.signal, std::nullopt);
    EXPECT_EQ(s.order, StopOrder::kNone);
    EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kProgram);
    EXPECT_EQ(s.swept, 0);
  }
}

TEST_F(ExecTest, F04_SignalsAreKeptApart) {
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM, SIGPIPE}) {
    const AttemptStatus s = Run(Spec({"sh", "-c", "kill -" + std::to_string(signal) + " $$"}));
    EXPECT_EQ(s.signal, signal);
    EXPECT_EQ(s.exit_code, std::nullopt);
    EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kSignal);
    EXPECT_FALSE(s.killed);
  }
}

TEST_F(ExecTest, NotFoundIs127) {
  for (const char* name : {"no-such-program", "/no/such", "./no-such", "/etc/passwd/x", ""}) {
    const AttemptStatus s = Run(Spec({name}));
    EXPECT_EQ(s.failed_step, StartStep::kExec) << name;
    EXPECT_EQ(s.exit_code, 127) << name;
    EXPECT_FALSE(s.started.has_value());
    EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kNotFound);
    EXPECT_FALSE(ear_.Started(last_));
  }
}

TEST_F(ExecTest, FoundButNotExecutableIs126) {
  WriteScript("plain", "echo no\n", 0644);
  WriteScript("bad-interpreter", "#!/no/such/interpreter\n");
  WriteScript("not-text", std::string("\x7f"
                                      "ELF\x01\x02\x00",
                                      7));
  for (const char* name : {"./plain", "./bad-interpreter", "./not-text", "/"}) {
    const AttemptStatus s = Run(Spec({name}));
    EXPECT_EQ(s.failed_step, StartStep::kExec) << name;
    EXPECT_EQ(s.exit_code, 126) << name;
    EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kNotExecutable);
  }
  AttemptSpec in_path = Spec({"plain"});
  in_path.env[0] = "PATH=/no/such:" + dir_.path();
  EXPECT_EQ(Run(in_path).exit_code, 126);
}

TEST_F(ExecTest, PathSearchUsesTheJobsPathAndGoesOnAfterTheUnusable) {
  ASSERT_TRUE(MakeDirs(dir_ / "a/prog").ok());  // a folder of that name
  ASSERT_TRUE(MakeDirs(dir_ / "b").ok());
  ASSERT_TRUE(MakeDirs(dir_ / "c").ok());
  WriteScript("b/prog", "#!/bin/sh\necho wrong\n", 0644);
  WriteScript("c/prog", "#!/bin/sh\necho right\n");
  AttemptSpec spec = Spec({"prog"});
  spec.env[0] = "PATH=" + (dir_ / "a") + ":" + (dir_ / "b") + ":" + (dir_ / "c");
  EXPECT_EQ(Run(spec).exit_code, 0);
  EXPECT_EQ(LastOutput(), "right\n");
}

TEST_F(ExecTest, ScriptWithoutHeaderRunsUnderSh) {
  WriteScript("script", "printf '%s|' \"$0\" \"$@\"\nexit 3\n");
  EXPECT_EQ(Run(Spec({"./script", "a b", ""})).exit_code, 3);
  EXPECT_EQ(LastOutput(), "./script|a b||");
}

TEST_F(ExecTest, F42_ArgumentsAndEnvironmentArriveByteForByte) {
  const std::vector<std::string> odd = {"a b",          "c'd", "$HOME", "*",
                                        "x;y",          "",    "n\nl",  "\"q\"",
                                        "\x80\xff\xfe", "\\",  "-n",    std::string(100'000, 'x')};
  std::vector<std::string> argv = {
      "/usr/bin/env", "-u", "_", "sh", "-c", "cat /proc/$$/cmdline; echo; cat /proc/$$/environ"};
  argv.insert(argv.end(), odd.begin(), odd.end());
  AttemptSpec spec = Spec({"cat", "/proc/self/environ"});
  spec.env.push_back("ODD=a b\n'\"$HOME*\x80\xff");
  spec.env.push_back("EMPTY=");
  spec.env.push_back("=no name");
  spec.env.push_back("no equals");
  const AttemptId id = Start(spec);
  EXPECT_EQ(Await(id).exit_code, 0);
  std::string expected;
  const AttemptSpec stored = *store_.ReadSpec(id);
  for (const std::string& entry : stored.env) expected += entry + '\0';
  EXPECT_EQ(Output(id), expected);

  std::vector<std::string> args = {"cat", "/proc/self/cmdline"};
  std::string cmdline;
  args.insert(args.end(), {"--", "/dev/null"});
  for (const std::string& a : args) cmdline += a + '\0';
  EXPECT_EQ(Run(Spec(args)).exit_code, 0);
  EXPECT_EQ(LastOutput(), cmdline);

  std::vector<std::string> print = {"printf", "%s\\0"};
  std::string printed;
  for (const std::string& a : odd) {
    print.push_back(a);
    printed += a + '\0';
  }
  EXPECT_EQ(Run(Spec(print)).exit_code, 0);
  EXPECT_EQ(LastOutput(), printed);
}

TEST_F(ExecTest, ArgumentsTooLongAre126) {
  EXPECT_EQ(Run(Spec({"true", std::string(200'000, 'x')})).exit_code, 126);
}

TEST_F(ExecTest, ProcessStateIsClean) {
  const AttemptStatus s = Run(Shell(
      "ls /proc/self/fd | tr '\\n' ' '; echo; umask; pwd; ulimit -c; cat /proc/self/oom_score_adj;"
      "grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o pid=,pgid=,sid= -p $$"));
  EXPECT_EQ(s.exit_code, 0);
  const std::string out = LastOutput();
  EXPECT_THAT(out, HasSubstr("0 1 2 3 \n"));  // 3 is the folder that ls reads
  EXPECT_THAT(out, HasSubstr("0022\n" + dir_.path() + "\n0\n500\n"));
  EXPECT_THAT(out, HasSubstr("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"));
  std::istringstream words(out.substr(out.rfind("SigIgn:") + 24));
  std::int64_t pid = 0, group = 0, session = 0;
  words >> pid >> group >> session;
  EXPECT_EQ(pid, s.started->pid);
  EXPECT_EQ(group, pid);
  EXPECT_EQ(session, pid);
}

TEST_F(ExecTest, F43_InputEndsAtOnceUnlessGiven) {
  EXPECT_EQ(Run(Spec({"cat"})).exit_code, 0);
  EXPECT_EQ(LastOutput(), "");
  AttemptSpec spec = Spec({"cat"});
  spec.stdin_path = WriteScript("input", std::string("in\0put", 6), 0600);
  EXPECT_EQ(Run(spec).exit_code, 0);
  EXPECT_EQ(LastOutput(), std::string("in\0put", 6));
  spec.stdin_path = dir_ / "missing";
  EXPECT_EQ(Run(spec).failed_step, StartStep::kStdin);
}

TEST_F(ExecTest, StartFailuresSayWhichStep) {
  AttemptSpec spec = Spec({"true"});
  spec.cwd = dir_ / "missing";
  const AttemptStatus s = Run(spec);
  EXPECT_EQ(s.failed_step, StartStep::kCwd);
  EXPECT_EQ(s.error, ENOENT);
  EXPECT_EQ(OutcomeOf(s).cause.kind, CauseKind::kSpawnFailed);

  const AttemptId damaged = Prepare(Spec({"true"}));
  WriteScript("attempts/v1/" + damaged.value() + "/spec", "GLSPEC1\nxxxxxxx");
  ASSERT_TRUE(client_->Start(damaged).ok());
  EXPECT_EQ(Await(damaged).failed_step, StartStep::kSpec);
}

TEST_F(ExecTest, SpecIsCheckedWhenWritten) {
  const AttemptId id = Prepare(Spec({"true"}));
  const AttemptSpec good = *store_.ReadSpec(id);
  for (int i = 0; i < 5; ++i) {
    AttemptSpec bad = good;
    if (i == 0) bad.argv.clear();
    if (i == 1) bad.argv.push_back(std::string("a\0b", 3));
    if (i == 2) bad.env.clear();
    if (i == 3) bad.cwd = "relative";
    if (i == 4) bad.time_limit = 0s;
    EXPECT_EQ(store_.WriteSpec(id, bad).code(), StatusCode::kInvalidArgument) << i;
  }
  EXPECT_EQ(store_.Create(AttemptId("../x")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_.Create(id).status().code(), StatusCode::kAlreadyExists);
}

TEST_F(ExecTest, AFolderServesAgain) {
  std::string folder;  // by the number of its inode
  const auto inode = [&](const AttemptId& id) {
    struct stat st{};
    EXPECT_EQ(stat(store_.PathOf(id).c_str(), &st), 0);
    return std::to_string(st.st_ino);
  };
  for (int i = 0; i < 20; ++i) {
    const std::string said = std::string(static_cast<std::size_t>(20 - i), 'x');
    EXPECT_EQ(Run(Shell("echo " + said + "; exit " + std::to_string(i))).exit_code, i);
    EXPECT_EQ(LastOutput(), said + "\n");
    if (i == 0) folder = inode(last_);
    EXPECT_EQ(inode(last_), folder);
    ASSERT_TRUE(store_.Remove(last_).ok());
    EXPECT_FALSE(PathExists(store_.PathOf(last_)));
    EXPECT_THAT(*store_.List(), ::testing::IsEmpty());
    EXPECT_EQ(store_.ReadStatus(last_).status().code(), StatusCode::kNotFound);
  }
  // Nothing of an earlier attempt shows in one that has not begun.
  const AttemptId next = Prepare(Spec({"true"}));
  EXPECT_EQ(inode(next), folder);
  EXPECT_EQ(store_.ReadStatus(next).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_.ReadStarted(next).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(PathExists(store_.PathOf(next) + "/" + kLogFile));
}

TEST_F(ExecTest, AFolderWithStrangeThingsDoesNotServeAgain) {
  const std::vector<std::string> scripts = {"mkdir $F/dir", "ln -s x $F/link", "mkfifo $F/pipe",
                                            "ln $F/spec $D/hard", "chmod 644 $F/spec"};
  for (const std::string& script : scripts) {
    AttemptSpec spec = Shell("F=$D/attempts/v1/$GPULAYER_ATTEMPT_ID; " + script);
    EXPECT_EQ(Run(spec).exit_code, 0) << script;
    ASSERT_TRUE(store_.Remove(last_).ok());
    EXPECT_FALSE(PathExists(store_.PathOf(last_)));
    EXPECT_THAT(*ListDir(dir_ / "attempts/v1/.spare"), ::testing::IsEmpty()) << script;
    unlink((dir_ / "hard").c_str());
  }
}

TEST_F(ExecTest, StreamsAreKeptApartInOneLog) {
  EXPECT_EQ(Run(Shell("echo out; echo err >&2; printf 'last'")).exit_code, 0);
  EXPECT_EQ(LastOutput(), "out\nlast");
  EXPECT_EQ(LastOutput(LogStream::kErr), "err\n");
}

TEST_F(ExecTest, F33_LastLineIsThereWhenTheEndIsTold) {
  for (int i = 0; i < 200; ++i) {
    const AttemptStatus s = Run(Spec({"printf", "x\\nlast-without-newline"}));
    ASSERT_EQ(LastOutput(), "x\nlast-without-newline") << i;
    ASSERT_EQ(s.log_bytes, static_cast<std::int64_t>(kFrameHeader + 22)) << i;
  }
}

std::int64_t MonitorPeakKib(pid_t program) {
  const Result<std::string> stat = ReadFile("/proc/" + std::to_string(program) + "/stat");
  if (!stat.ok()) return -1;
  const std::string parent = stat->substr(stat->rfind(')') + 4);
  const Result<std::string> status =
      ReadFile("/proc/" + std::to_string(std::stol(parent)) + "/status");
  if (!status.ok()) return -1;
  return std::stol(status->substr(status->find("VmHWM:") + 6));
}

TEST_F(ExecTest, F23_AGiantLineCostsNoMemory) {
  const AttemptId id =
      Start(Shell("head -c 50000000 /dev/zero | tr '\\0' x; echo done >&2; read -t 20 x "
                  "</proc/self/fd/0; exec sleep 60"));
  ASSERT_TRUE(Prints(id, "done\n"));
  const std::int64_t peak = MonitorPeakKib(static_cast<pid_t>(ear_.Pid(id)));
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, 16 * 1024);
  ASSERT_TRUE(client_->Stop(id, 0s).ok());
  Await(id);
  const std::string out = Output(id);
  EXPECT_EQ(out.size(), 50'000'000u);
  EXPECT_EQ(out.find_first_not_of('x'), std::string::npos);
}

TEST_F(ExecTest, OutputGoesOnAfterOneStreamIsClosed) {
  EXPECT_EQ(Run(Shell("exec >&-; echo still >&2; exec 2>&-; exit 4")).exit_code, 4);
  EXPECT_EQ(LastOutput(LogStream::kErr), "still\n");
}

TEST_F(ExecTest, NoAttemptRunsTwice) {
  const AttemptId id = Start(Shell("echo run >>$D/count"));
  Await(id);
  ASSERT_TRUE(client_->Start(id).ok());
  ASSERT_TRUE(Eventually([&] { return ear_.Ends(id) == 2; }));
  EXPECT_EQ(*ReadFile(dir_ / "count"), "run\n");
}

TEST_F(ExecTest, ManyQuickJobsLeaveNothing) {
  Run(Spec({"true"}));
  const pid_t exec = ExecPid();
  const std::string fds = "/proc/" + std::to_string(exec) + "/fd";
  const std::size_t before = ListDir(fds)->size();
  std::vector<AttemptId> ids;
  for (int i = 0; i < 300; ++i) ids.push_back(Start(Spec({"true"})));
  for (const AttemptId& id : ids) EXPECT_EQ(Await(id).exit_code, 0);
  EXPECT_EQ(ListDir(fds)->size(), before);
  const std::string self = std::to_string(exec);
  EXPECT_TRUE(Eventually([&] {
    return ReadFile("/proc/" + self + "/task/" + self + "/children").value_or("x").empty();
  })) << "zombies or monitors are left";
}

}  // namespace
}  // namespace gpulayer::testing
