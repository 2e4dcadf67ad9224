#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cli/args.h"
#include "cli/hints.h"
#include "cli/parser.h"
#include "cli/verbs.h"

namespace gpulayer::cli {
namespace {

struct Said {
  Parsed parsed;
  std::string err;
  std::string out;
};

Said Type(std::vector<std::string> words) {
  words.insert(words.begin(), "gpulayer");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Said said;
  said.parsed = Parse(static_cast<int>(argv.size()), argv.data());
  said.out = testing::internal::GetCapturedStdout();
  said.err = testing::internal::GetCapturedStderr();
  return said;
}

TEST(ParseTest, WrongUsageIsTwoForEveryVerb) {
  const std::vector<std::vector<std::string>> kWrong = {
      {},
      {"nonsense"},
      {"submit"},
      {"submit", "true"},
      {"submit", "--nonsense", "--", "true"},
      {"submit", "--memory", "x", "--", "true"},
      {"submit", "--slots", "0", "--", "true"},
      {"submit", "--time", "", "--", "true"},
      {"submit", "--memory", "", "--", "true"},
      {"submit", "--output", "", "--", "true"},
      {"submit", "--target", "", "--", "true"},
      {"up", "--listen", ""},
      {"logout", ""},
      {"submit", "--env", "novalue", "--", "true"},
      {"submit", "--shell", "x", "--", "true"},
      {"submit", "--source", ".", "--no-source", "--", "true"},
      {"submit", "--source", "./no-such", "--", "true"},
      {"submit", "--source", "/dev/null", "--", "true"},
      {"submit", "--stdin", "./no-such", "--", "true"},
      {"submit", "--target", "local", "--detach", "--", "true"},
      {"run", "--detach", "--", "true"},
      {"job", "exec", "--", "true"},
      {"job", "exec", "x", "--", "true"},
      {"job", "exec", "7", "--json", "--", "true"},
      {"job", "exec", "7", "--", ""},
      {"job"},
      {"job", "show"},
      {"job", "show", "x"},
      {"job", "show", "1.2"},
      {"job", "list", "--state", "x"},
      {"job", "wait"},
      {"job", "cancel"},
      {"job", "list", "--", "true"},
      {"logs"},
      {"worker", "show"},
      {"token", "create"},
      {"token", "create", "--role", "king"},
      {"token", "revoke"},
      {"target", "use"},
      {"join", "--token", "t"},
      {"login"},
      {"up", "--slots", "x"},
      {"up", "--slots", "0"},
      {"join", "box", "--slots", "0"},
      {"join", "box", "--name", "a\nb"},
      {"join", "box", "--name", "\xff"},
      {"join", "box", "--label", "k=a\nb"},
      {"job", "list", "--before", "0"},
      {"logs", "--tail", "-1", "7"},
      {"completion"},
      {"completion", "tcsh"},
  };
  for (const auto& words : kWrong) {
    const Said said = Type(words);
    EXPECT_FALSE(said.parsed.run) << testing::PrintToString(words);
    EXPECT_EQ(said.parsed.exit_code, 2) << testing::PrintToString(words);
    EXPECT_EQ(said.err.rfind("gpulayer: ", 0), 0u) << said.err;
    EXPECT_EQ(said.out, "");
  }
}

struct Told {
  std::vector<std::string> words;
  std::string says;
};

void ExpectTold(const std::vector<Told>& rows) {
  for (const Told& row : rows) {
    const Said said = Type(row.words);
    EXPECT_FALSE(said.parsed.run) << testing::PrintToString(row.words);
    EXPECT_EQ(said.parsed.exit_code, 2) << testing::PrintToString(row.words);
    EXPECT_NE(said.err.find(row.says), std::string::npos)
        << testing::PrintToString(row.words) << said.err;
  }
}

TEST(ParseTest, WhatIsWrongIsSaidWithWhatIsRight) {
  ExpectTold({
      {{"up", "--listen", "x"}, "ADDRESS:PORT is needed, like 0.0.0.0:7461"},
      {{"up", "--listen", "127.0.0.1:70000"}, "a port is 1 to 65535"},
      {{"up", "--listen", "a:b:1"}, "ADDRESS:PORT is needed"},
      {{"login", "a:b:c"}, "HOST:PORT is needed, like gpu-box:7461"},
      {{"login", "h:99999"}, "a port is 1 to 65535"},
      {{"join", "h:0"}, "a port is 1 to 65535"},
      {{"join", "a:b:c"}, "HOST:PORT is needed"},
      {{"login", "h:1", "--name", "../x"}, "use letters, digits"},
      {{"login", "h:1", "--name", "here"}, "a meaning of its own"},
      {{"login", "h:1", "--name", "local"}, "a meaning of its own"},
      {{"login", "here:7461"}, "Choose another with --name"},
      {{"target", "use", "../x"}, "use letters, digits"},
      {{"target", "use", "here"}, "a meaning of its own"},
      {{"logout", "local"}, "a meaning of its own"},
      {{"token", "create", "--role", "client", "--expires", "0s"}, "--expires: more than 0"},
      {{"submit", "--time", "0s", "--", "true"}, "--time: more than 0"},
      {{"submit", "--name", std::string(201, 'x'), "--", "true"}, "over the limit of 200"},
      {{"submit", "--name", "a\nb", "--", "true"}, "control characters"},
      {{"submit", "--", ""}, "the name of the program is empty"},
      {{"submit", "--stdin", "-", "--", "true"}, "Write it into a file first"},
      {{"job", "logs", "1", "--attempt", "0"}, "--attempt: 1 or more"},
      {{"submit", "--env", "GPULAYER_JOB_ID=7", "--", "true"},
       "GPULAYER_JOB_ID: GPUlayer sets it itself"},
      {{"submit", "--env", "A = b", "--", "true"}, "the name holds a space"},
      {{"submit", "--memory", "4", "--", "true"}, "\"4\" is that many bytes. Write a unit: 4GiB"},
      {{"submit", "--source-limit", "2,50", "--", "true"}, "Write a unit: 2GiB"},
      {{"submit", "--output-limit", "100", "--", "true"}, "100MiB"},
      {{"job", "show", "1", "2"}, "\"2\" is one word too many"},
      {{"submit", "--slots", "two", "--", "true"},
       "--slots: \"two\" is no whole number. Write one like 4. See"},
      {{"submit", "--slots", "4294967297", "--", "true"},
       "--slots: 4294967297 is too large. Write a number like 4"},
      {{"job", "logs", "7", "--tail", "99999999999999999999"},
       "--tail: 99999999999999999999 is too large. Write a number like 4"},
      {{"submit", "--slots", "0x10", "--", "true"}, "\"0x10\" is no whole number"},
      {{"submit", "--slots", "010", "--", "true"}, "\"010\" is no whole number"},
      {{"submit", "--slots", "1.5", "--", "true"}, "\"1.5\" is no whole number"},
      {{"submit", "--detach=x", "--", "true"}, "--detach takes no value"},
      {{"submit", "--name", "a", "--name", "b", "--", "true"}, "--name is there more than once"},
      {{"job", "list", "--limit", "x"}, "--limit: \"x\" is no whole number"},
      {{"job", "list", "--state", "x"}, "There are blocked, queued, preparing, running, "},
      {{"submit", "--stdin", "/nonexistent", "--", "true"},
       "--stdin: /nonexistent: No such file or directory. It wants a file that is here"},
      {{"submit", "--env-file", "/nonexistent", "--", "true"}, "--env-file: open /nonexistent"},
      {{"submit", "--time", "5", "--", "true"}, "--time: \"5\" has no unit: write 5s, 5m, 5h"},
      {{"submit", "--grace", "5", "--", "true"}, "--grace: \"5\" has no unit"},
      {{"token", "create", "--role", "client", "--expires", "5"}, "--expires: \"5\" has no unit"},
  });
}

TEST(ParseTest, APathThatNoShellHasExpandedIsRefused) {
  ExpectTold({
      {{"submit", "--source", "~/p", "--", "true"},
       "--source: the shell has not expanded ~ in ~/p: write $HOME/p. See"},
      {{"submit", "--stdin", "~/in", "--", "true"}, "--stdin: the shell has not expanded"},
      {{"submit", "--env-file", "~/env", "--", "true"}, "--env-file: the shell has not expanded"},
      {{"job", "result", "7", "--to", "~"}, "write $HOME. See"},
      {{"up", "--data-dir", "~/x"}, "--data-dir: the shell has not expanded"},
      {{"down", "--data-dir=~/x"}, "--data-dir: the shell has not expanded"},
      {{"join", "box:7461", "--token", "@~/token"},
       "--token: the shell has not expanded ~ in ~/token: write $HOME/token"},
      {{"login", "box:7461", "--token", "@~ann/token"}, "write the whole path"},
  });
}

TEST(ParseTest, ACommandWithoutItsDashesIsShownWithThem) {
  ExpectTold({
      {{"submit", "--source", ".", "python3", "train.py", "--epochs", "20"},
       "Write the command after `--`: gpulayer submit --source . -- python3 train.py --epochs 20."},
      {{"submit", "--name", "a", "--env", "A=b", "a", "x y"},
       "gpulayer submit --name a --env A=b -- a 'x y'."},
      {{"run", "true"}, "gpulayer run -- true."},
      {{"submit", "x", "--", "true"}, "\"x\" is no option; the command stands after `--`"},
      {{"job", "exec", "7", "ls", "-l"}, "gpulayer job exec 7 -- ls -l."},
      {{"job", "exec", "7.2", "x", "--", "ls"}, "\"x\" is no option; the command stands after"},
      {{"submit", "--source", "--", "python3", "train.py"}, "--source wants a value: folder that"},
      {{"submit", "--slots", "--", "true"}, "--slots wants a value: CPUs"},
  });
}

TEST(ParseTest, OptionsStandAfterTheVerb) {
  ExpectTold({
      {{"--json", "ps"}, "--json stands before the verb. Write it after: gpulayer VERB --json"},
      {{"--zzz"}, "--zzz stands before the verb"},
      {{"--verson"}, "--verson is no option. Did you mean --version?"},
      {{"-v"}, "-v is no option. Did you mean --version?"},
  });
}

TEST(ParseTest, HelpAndVersionAreUnderstoodAsElsewhere) {
  EXPECT_EQ(Type({"help"}).out, Type({"--help"}).out);
  EXPECT_EQ(Type({"help", "submit"}).out, Type({"submit", "--help"}).out);
  EXPECT_EQ(Type({"help", "job", "list"}).out, Type({"job", "list", "--help"}).out);
  EXPECT_EQ(Type({"help", "nonsense"}).parsed.exit_code, 2);
  EXPECT_TRUE(Type({"--version"}).parsed.run);
  EXPECT_TRUE(Type({"-V"}).parsed.run);
  const std::string alone = Type({}).err;
  EXPECT_EQ(alone.rfind("gpulayer: which verb?\n", 0), 0u);
  EXPECT_NE(alone.find("submit"), std::string::npos);
}

TEST(ParseTest, TargetUseOfAWordSaysHowToGetBack) {
  for (const char* word : {"here", "local", "remote"}) {
    const std::string err = Type({"target", "use", word}).err;
    EXPECT_NE(err.find("`gpulayer logout`"), std::string::npos) << err;
    EXPECT_EQ(err.find("--name"), std::string::npos) << err;
  }
  EXPECT_EQ(Type({"logout", "local"}).err.find("--name"), std::string::npos);
}

TEST(ParseTest, AnErrorGetsItsNextStep) {
  EXPECT_NE(NextStep(Status(StatusCode::kRejected, "no worker can run this: needs x"))
                .find("--wait-for-worker"),
            std::string::npos);
  EXPECT_NE(NextStep(Status(StatusCode::kNotFound, "read source folder x: No such file")), "");
  EXPECT_NE(NextStep(Status(StatusCode::kNotFound, "token: open x: No such file")), "");
  EXPECT_EQ(NextStep(Status(StatusCode::kRejected,
                            "no worker can run this: no worker is named a; there are: b")),
            "Name one of them, or queue it all the same with --wait-for-worker");
  EXPECT_EQ(NextStep(Status(StatusCode::kRejected, "something else")), "");
}

TEST(ParseTest, AProgramThatDidNotStartIsNamedWithWhatToDo) {
  JobInfo job;
  job.request.command = {"train.py"};
  EXPECT_EQ(ProgramText(job, ""), "");
  job.outcome = {127, std::nullopt, CauseKind::kNotFound, "program not found: No such file"};
  EXPECT_EQ(ProgramText(job, "").rfind("train.py: program not found: No such file. ", 0), 0u);
  EXPECT_NE(ProgramText(job, "").find("./train.py"), std::string::npos);
  EXPECT_NE(ProgramText(job, "/nonexistent").find("the worker's PATH"), std::string::npos);
  job.request.command = {"passwd"};
  EXPECT_NE(ProgramText(job, "/etc").find("That file ships: write ./passwd. `chmod +x` it"),
            std::string::npos);
  std::string source = std::string(::testing::TempDir()) + "/gltest-XXXXXX";
  ASSERT_NE(::mkdtemp(source.data()), nullptr);
  std::ofstream(source + "/built") << "x";
  std::ofstream(source + "/.gitignore") << "built\n";
  job.request.command = {"built"};
  EXPECT_NE(ProgramText(job, source).find("left out by ignore rules"), std::string::npos);
  std::filesystem::remove_all(source);
  job.outcome = {126, std::nullopt, CauseKind::kNotExecutable, "Permission denied"};
  job.request.command = {"./train.py"};
  EXPECT_NE(ProgramText(job, "").find("Or write python3 ./train.py"), std::string::npos);
  job.outcome = {127, std::nullopt, CauseKind::kNotFound, "program not found: No such file"};
  job.request.command = {"echo hi | cat"};
  EXPECT_NE(ProgramText(job, "/nonexistent").find("--shell takes"), std::string::npos);
  job.request.command = {"./train.py"};
  EXPECT_NE(ProgramText(job, "").find("empty: nothing ships without --source"), std::string::npos);
  job.source_hash = "1f";
  EXPECT_NE(ProgramText(job, "/etc").find("a copy of --source"), std::string::npos);
  job.request.command = {"/opt/train"};
  EXPECT_NE(ProgramText(job, "/etc").find("That path has to be on the worker"), std::string::npos);
  job.outcome.cause = CauseKind::kNotExecutable;
  EXPECT_NE(ProgramText(job, "").find("in its first line (#!)"), std::string::npos);
  job.outcome.cause_text = "program cannot be executed: Permission denied";
  EXPECT_NE(ProgramText(job, "").find("On the worker it may not be executed"), std::string::npos);
  job.request.command = {"./train.py"};
  EXPECT_NE(ProgramText(job, "").find("chmod +x"), std::string::npos);
  job.outcome.cause_text = "program cannot be executed: Argument list too long";
  EXPECT_NE(ProgramText(job, "").find("more than the worker's system takes"), std::string::npos);
  job.outcome.cause_text = "program cannot be executed: Exec format error";
  EXPECT_NE(ProgramText(job, "").find("like #!/bin/sh"), std::string::npos);
}

TEST(ParseTest, WhatOthersCallItIsUnderstoodAsAHint) {
  ExpectTold({
      {{"list"}, "\"list\" is no verb. Did you mean `gpulayer job list`?"},
      {{"ls"}, "`gpulayer job list`"},
      {{"wait", "7"}, "`gpulayer job wait`"},
      {{"show", "7"}, "`gpulayer job show`"},
      {{"workers"}, "`gpulayer worker list`"},
      {{"nodes"}, "`gpulayer worker list`"},
      {{"kill", "7"}, "`gpulayer job cancel`"},
      {{"revoke", "x"}, "`gpulayer token revoke`"},
      {{"use", "box"}, "`gpulayer target use`"},
      {{"sumbit"}, "`gpulayer submit`"},
      {{"job", "ls"}, "`gpulayer job list`"},
      {{"job", "kill", "7"}, "`gpulayer job cancel`"},
      {{"job", "status", "7"}, "`gpulayer job show`"},
      {{"token", "new"}, "`gpulayer token create`"},
      {{"job", "atach", "7"}, "`gpulayer job attach`"},
      {{"job"}, "which verb?"},
      {{"submit", "--gpus", "1", "--", "true"},
       "--gpus is no option of submit. Did you mean --devices (which is not built yet in this "
       "version)?"},
      {{"submit", "--cpus=4", "--", "true"},
       "--cpus is no option of submit. Did you mean --slots?"},
      {{"submit", "--mem", "4GiB", "--", "true"}, "Did you mean --memory?"},
      {{"submit", "--memry", "4GiB", "--", "true"}, "Did you mean --memory?"},
      {{"submit", "--timeout", "4m", "--", "true"}, "Did you mean --time?"},
      {{"job", "cancel", "--force", "7"}, "Did you mean --now?"},
      {{"job", "result", "--out", "x", "7"}, "Did you mean --to?"},
      {{"up", "--port", "1"}, "Did you mean --listen?"},
      {{"run", "--target", "box", "--", "true"},
       "--target is no option of run, which is for this machine: `gpulayer submit --target NAME`"},
      {{"submit", "--zzzzzz", "--", "true"}, "--zzzzzz is no option of submit. See"},
  });
}

TEST(ParseTest, ACommandInOneWordIsNoted) {
  JobSpec spec;
  spec.command = {"echo hi there"};
  EXPECT_NE(OneWordHint(spec).find("use --shell"), std::string::npos);
  for (const std::vector<std::string>& fine : std::vector<std::vector<std::string>>{
           {"echo"}, {"echo", "hi there"}, {"/opt/my prog/run"}}) {
    spec.command = fine;
    EXPECT_EQ(OneWordHint(spec), "") << testing::PrintToString(fine);
  }
}

TEST(ParseTest, F47_ASecretIsNamedAndNeverTyped) {
  ::unsetenv("NO_SUCH");
  ::setenv("IS_EMPTY", "", 1);
  const std::vector<std::pair<std::vector<std::string>, std::string>> kWrong = {
      {{"TOK=hunter2"}, "--secret: TOK: a value on the command line"},
      {{"TOK="}, "a value on the command line"},
      {{"=hunter2"}, "its name is missing"},
      {{"NO_SUCH"}, "NO_SUCH is not set here"},
      {{"hunter2!"}, "no name of a variable"},
      {{"IS_EMPTY"}, "its value is empty"},
      {{"TOK=@/no/such"}, "/no/such: No such file"},
      {{"TOK=@/dev/null"}, "its value is empty"},
      {{"TOK=@/etc/passwd", "TOK=@/etc/passwd"}, "more than once"},
      {{"A=-", "B=-"}, "standard input is one secret only"},
  };
  for (const auto& [secrets, why] : kWrong) {
    std::vector<std::string> words = {"submit"};
    for (const std::string& secret : secrets) {
      words.push_back("--secret");
      words.push_back(secret);
    }
    words.insert(words.end(), {"--", "true"});
    const Said said = Type(words);
    EXPECT_EQ(said.parsed.exit_code, 2) << said.err;
    EXPECT_NE(said.err.find(why), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("hunter2"), std::string::npos) << said.err;
  }
  ::setenv("TOK", "hunter2", 1);
  const Said said = Type({"submit", "--secret", "TOK", "--env", "TOK=1", "--", "true"});
  EXPECT_EQ(said.parsed.exit_code, 2);
  EXPECT_NE(said.err.find("TOK is an environment variable and a secret"), std::string::npos)
      << said.err;
  EXPECT_TRUE(Type({"submit", "--secret", "TOK", "--", "true"}).parsed.run);
  EXPECT_TRUE(Type({"submit", "--dry-run", "--secret", "NO_SUCH", "--", "true"}).parsed.run);
  EXPECT_TRUE(Type({"job", "retry", "7", "--secret", "TOK"}).parsed.run);
  ::unsetenv("TOK");
  ::unsetenv("IS_EMPTY");
}

TEST(ParseTest, WhatIsNotBuiltYetSaysSo) {
  const std::vector<std::vector<std::string>> kLater = {
      {"submit", "--nodes", "2", "--", "true"},
      {"submit", "--retries=2", "--", "true"},
      {"submit", "--fence", "--", "true"},
      {"run", "--accelerator", "cuda", "--", "true"},
      {"up", "--http", "off"},
      {"up", "--service"},
      {"down", "--drain=10m"},
      {"down", "--drain"},
      {"job", "release", "7"},
      {"job", "set", "7", "--priority", "1"},
      {"job", "exec", "--rank", "1", "7", "--", "sh"},
      {"top"},
      {"top", "--help"},
      {"server", "backup", "x"},
      {"worker", "drain", "box"},
      {"job", "cancel", "--mine"},
      {"join", "box", "--advertise-address", "10.0.0.5"},
      {"logs", "--rank", "1", "7"}};
  for (const auto& words : kLater) {
    const Said said = Type(words);
    EXPECT_EQ(said.parsed.exit_code, 2) << testing::PrintToString(words);
    EXPECT_FALSE(said.parsed.run);
    EXPECT_NE(said.err.find("is not built yet in this version"), std::string::npos)
        << testing::PrintToString(words) << said.err;
    EXPECT_EQ(said.err.find("--help"), std::string::npos) << said.err;
  }
  EXPECT_EQ(Type({"submit", "--nodes", "2", "--", "true"})
                .err.rfind("gpulayer: --nodes is not built yet", 0),
            0u);
}

TEST(ParseTest, RightUsageGivesSomethingToRun) {
  const std::vector<std::vector<std::string>> kRight = {
      {"submit", "--", "true"},
      {"submit", "--shell", "echo x"},
      {"submit", "--source", ".", "--dry-run"},
      {"run", "--", "--nodes"},
      {"ps"},
      {"job", "list", "--state", "running", "--limit", "5"},
      {"logs", "-f", "7.0"},
      {"job", "exec", "7", "--", "ls", "--", "-l", "--json"},
      {"job", "exec", "--target", "x", "7.2", "--", "cat"},
      {"job", "wait", "7", "8"},
      {"cancel", "7", "8.1", "--now"},
      {"token", "create", "--role", "client", "--expires", "1d"},
      {"up", "--listen", "127.0.0.1:0", "--no-worker"},
      {"down"},
      {"join", "box:7461", "--token", "-", "--label", "a=b"},
      {"login", "box:7461", "--token", "@file"},
      {"logout"},
      {"version"},
  };
  for (const auto& words : kRight) {
    const Said said = Type(words);
    EXPECT_TRUE(said.parsed.run) << testing::PrintToString(words) << said.err;
  }
}

TEST(ParseTest, EveryVerbsHelpHasAnExample) {
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{},
                                             {"job"},
                                             {"worker"},
                                             {"token"},
                                             {"target"},
                                             {"resources"},
                                             {"up"},
                                             {"down"},
                                             {"join", "--token", "t"},
                                             {"login"},
                                             {"logout"},
                                             {"target", "list"},
                                             {"target", "use"},
                                             {"submit"},
                                             {"run"},
                                             {"job", "list"},
                                             {"job", "show"},
                                             {"job", "explain"},
                                             {"job", "logs"},
                                             {"job", "wait"},
                                             {"job", "attach"},
                                             {"job", "cancel"},
                                             {"job", "result"},
                                             {"ps"},
                                             {"logs"},
                                             {"cancel"},
                                             {"worker", "list"},
                                             {"worker", "show"},
                                             {"resources", "detect"},
                                             {"token", "create"},
                                             {"token", "list"},
                                             {"token", "revoke"},
                                             {"status"},
                                             {"version"},
                                             {"completion"}}) {
    std::vector<std::string> words = verb;
    words.push_back("--help");
    const Said said = Type(words);
    EXPECT_EQ(said.parsed.exit_code, 0);
    EXPECT_NE(said.out.find("Example:\n  "), std::string::npos)
        << testing::PrintToString(verb) << said.out;
  }
}

// The words that its usage shows behind the verb and its options.
std::vector<std::string> WordsOf(const std::vector<std::string>& verb) {
  std::vector<std::string> typed = verb;
  typed.emplace_back("--help");
  std::istringstream help(Type(typed).out);
  std::string line;
  while (std::getline(help, line) && line.rfind("Usage: ", 0) != 0) {
  }
  const std::string options = "[OPTIONS]";
  const std::size_t at = line.find(options);
  std::istringstream rest(at == std::string::npos ? "" : line.substr(at + options.size()));
  return {std::istream_iterator<std::string>(rest), std::istream_iterator<std::string>()};
}

std::vector<VerbInfo> AllVerbs() {
  Parser parser("", "");
  for (auto* add : {AddHostVerbs, AddLoginVerbs, AddSubmitVerbs, AddJobVerbs, AddWorkerVerbs,
                    AddTokenVerbs, AddOtherVerbs}) {
    add(parser);
  }
  return parser.Describe();
}

TEST(ParseTest, TheUsageShowsWhichWordsAreNeeded) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(WordsOf({"login"}), Words{"ADDRESS"});
  EXPECT_EQ(WordsOf({"join"}), Words{"[ADDRESS]"});
  EXPECT_EQ(WordsOf({"logout"}), Words{"[NAME]"});
  EXPECT_EQ(WordsOf({"job", "cancel"}), Words{"ID..."});
  EXPECT_EQ(WordsOf({"job", "wait"}), Words{"ID..."});
  EXPECT_EQ(WordsOf({"token", "revoke"}), Words{"ID"});
  EXPECT_EQ(WordsOf({"job", "exec"}), (Words{"ID", "[--", "PROGRAM", "[ARGUMENT…]]"}));
  // Of all verbs: what is needed is missed, in a line of its own.
  int needing = 0;
  for (const VerbInfo& info : AllVerbs()) {
    const std::vector<std::string>& verb = info.path;
    const Words words = WordsOf(verb);
    if (words.empty() || words[0][0] == '[' || words[0] == "--" || words[0] == "SUBCOMMAND")
      continue;
    ++needing;
    SCOPED_TRACE(::testing::PrintToString(verb));
    const Said said = Type(verb);
    EXPECT_EQ(said.parsed.exit_code, 2);
    EXPECT_FALSE(said.parsed.run);
    EXPECT_EQ(said.err.rfind("gpulayer: which ", 0), 0U) << said.err;
    EXPECT_NE(said.err.find(" --help`.\n"), std::string::npos) << said.err;
  }
  EXPECT_GT(needing, 10);
}

TEST(ParseTest, HelpSaysWhatAValueIs) {
  const std::string submit = Type({"submit", "--help"}).out;
  for (const char* line :
       {"Usage: gpulayer submit [OPTIONS] -- PROGRAM [ARGUMENT…]\n", "--source DIR ",
        "--memory SIZE ", "--time DURATION ", "--env K=V ", "--slots N ", "--stdin FILE "}) {
    EXPECT_NE(submit.find(line), std::string::npos) << line << submit;
  }
  const std::string show = Type({"job", "show", "--help"}).out;
  EXPECT_NE(show.find("Usage: gpulayer job show [OPTIONS] ID\n"), std::string::npos) << show;
  // Each option that takes a value has a word of its own for it.
  for (const auto& verb : std::vector<std::vector<std::string>>{{"submit"},
                                                                {"run"},
                                                                {"up"},
                                                                {"down"},
                                                                {"join"},
                                                                {"login"},
                                                                {"job", "list"},
                                                                {"job", "show"},
                                                                {"job", "logs"},
                                                                {"job", "result"},
                                                                {"token", "create"}}) {
    std::vector<std::string> words = verb;
    words.push_back("--help");
    const std::string help = Type(words).out;
    EXPECT_EQ(help.find(" TEXT"), std::string::npos) << help;
    EXPECT_EQ(help.find(" INT"), std::string::npos) << help;
  }
}

TEST(CompletionTest, NamesVerbsAndOptions) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Said said = Type({"completion", shell});
    ASSERT_TRUE(said.parsed.run);
    testing::internal::CaptureStdout();
    EXPECT_EQ(said.parsed.run(), 0);
    const std::string text = testing::internal::GetCapturedStdout();
    EXPECT_NE(text.find("submit"), std::string::npos);
    EXPECT_NE(text.find(std::string(shell) == "fish" ? "-l source-limit" : "--source-limit"),
              std::string::npos);
    EXPECT_EQ(text.find("--nodes"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpulayer::cli
