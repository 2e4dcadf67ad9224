#include "client/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/fs.h"
#include "client/proto_text.h"
#include "gpulayer/text.h"
#include "gpulayer/v1/jobs.pb.h"
#include "support/temp_dir.h"

namespace gpulayer::client {
namespace {

api::JobSpec Command(std::vector<std::string> argv) {
  api::JobSpec spec;
  spec.command = std::move(argv);
  return spec;
}

// Argument lists that a shell, a join or a text conversion would change.
TEST(ToProtoTest, F42ArgumentsStayAsTheyAre) {
  const std::vector<std::string> argv = {"python", "-c",  "import sys", "a b",  "c'd",      "$HOME",
                                         "*",      "x;y", "",           "n\nl", "\x80\xff", "[a,b]",
                                         "{}",     "%%",  "--",         "-x"};
  const Result<v1::JobSpec> proto = ToProto(Command(argv));
  ASSERT_TRUE(proto.ok()) << proto.status().ToString();
  EXPECT_EQ(std::vector<std::string>(proto->command().begin(), proto->command().end()), argv);
}

TEST(ToProtoTest, DrawsARequestIdUnlessGiven) {
  EXPECT_NE(ToProto(Command({"true"}))->request_id(), ToProto(Command({"true"}))->request_id());
  api::JobSpec spec = Command({"true"});
  spec.request_id = "mine";
  EXPECT_EQ(ToProto(spec)->request_id(), "mine");
}

TEST(ToProtoTest, AShellLineIsOneArgument) {
  api::JobSpec spec;
  spec.shell = "echo \"$HOME\" | wc";
  const v1::JobSpec proto = *ToProto(spec);
  ASSERT_EQ(proto.command_size(), 3);
  EXPECT_EQ(proto.command(2), spec.shell);
  spec.command = {"true"};
  EXPECT_EQ(ToProto(spec).status().code(), StatusCode::kInvalidArgument);
}

TEST(ToProtoTest, LimitsAreCheckedBeforeAnythingIsSent) {
  EXPECT_EQ(ToProto(Command({})).status().code(), StatusCode::kInvalidArgument);
  const Status big = ToProto(Command({"true", std::string(200'000, 'x')})).status();
  EXPECT_NE(big.message().find("200000"), std::string::npos) << big.message();
  EXPECT_EQ(big.code(), StatusCode::kResourceExhausted);
  api::JobSpec spec = Command({"true"});
  spec.name = "\xff";
  EXPECT_EQ(ToProto(spec).status().code(), StatusCode::kInvalidArgument);
}

TEST(ToProtoTest, ANameThatGpulayerSetsIsRefused) {
  api::JobSpec spec = Command({"true"});
  spec.env = {{"GPULAYER_TARGET", "local"}};
  EXPECT_TRUE(api::CheckSpec(spec).ok());
  spec.env.emplace_back("GPULAYER_JOB_ID", "7");
  const Status refused = ToProto(spec).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("GPULAYER_JOB_ID"), std::string::npos) << refused.message();
  EXPECT_EQ(api::CheckSpec(spec).message(), refused.message());
}

TEST(ToProtoTest, AnOutputPatternThatNeverMatchesIsRefused) {
  const std::string here = std::filesystem::current_path().string();
  const std::vector<std::pair<std::string, std::string>> rows = {
      {here + "/sub/m.bin", "Write ./sub/m.bin"},
      {"/elsewhere/m.bin", "Write ./m.bin"},
      {"~/m.bin", "home folder"},
      {"../m.bin", "leads out"},
      {"m[.bin", "without its ]"},
      {"", "empty"}};
  for (const auto& [glob, says] : rows) {
    api::JobSpec spec = Command({"true"});
    spec.outputs.globs = {"ok", glob};
    const Status refused = ToProto(spec).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << glob;
    EXPECT_NE(refused.message().find(says), std::string::npos) << refused.message();
  }
  api::JobSpec spec = Command({"true"});
  spec.outputs.globs = {here + "/src/m.bin"};
  spec.source_dir = "src";
  EXPECT_NE(ToProto(spec).status().message().find("Write ./m.bin"), std::string::npos);
  spec.outputs.globs = {"./m.bin", "a/./b", "s/", "{a,b}", "**/m?[ab]"};
  EXPECT_TRUE(ToProto(spec).ok());
}

TEST(ToProtoTest, ASpecComesBackAsItWas) {
  api::JobSpec spec = Command({"./render", "7"});
  spec.name = "r";
  spec.env = {{"K", "v=1"}};
  spec.resources.slots = 3;
  spec.resources.memory_bytes = 5 << 20;
  spec.resources.labels = {{"a", "b"}};
  spec.resources.zone = "z";
  spec.resources.workers = {"w"};
  spec.outputs.globs = {"*.png"};
  spec.time_limit = std::chrono::seconds(9);
  v1::JobInfo info;
  *info.mutable_spec() = *ToProto(spec);
  const api::JobSpec back = ToInfo(info).request;
  EXPECT_EQ(back.command, spec.command);
  EXPECT_EQ(back.env, spec.env);
  EXPECT_EQ(back.resources.slots, 3);
  EXPECT_EQ(back.resources.labels, spec.resources.labels);
  EXPECT_EQ(back.outputs.globs, spec.outputs.globs);
  EXPECT_EQ(back.time_limit, spec.time_limit);
  EXPECT_EQ(back.grace, spec.grace);
}

class FilesHereTest : public ::testing::Test {
 protected:
  FilesHereTest() {
    EXPECT_NE(::getcwd(before_, sizeof before_), nullptr);
    EXPECT_EQ(::chdir(dir_.path().c_str()), 0);
    EXPECT_TRUE(WriteFileAtomic("train.py", "").ok());
    EXPECT_TRUE(WriteFileAtomic("true", "").ok());
  }
  ~FilesHereTest() override { EXPECT_EQ(::chdir(before_), 0); }
  testing::TempDir dir_;
  char before_[4096];
};

TEST_F(FilesHereTest, AnArgumentThatIsAFileHereIsRefusedWithTheHint) {
  const Status status = CheckFilesHere(Command({"python", "train.py"}));
  EXPECT_EQ(status.message(), "train.py is a file here but nothing is shipped: add `--source .`");
  EXPECT_FALSE(CheckFilesHere(Command({"./train.py"})).ok());
}

TEST_F(FilesHereTest, WhatTheJobWouldSeeOrDoesNotNeedIsNot) {
  EXPECT_TRUE(CheckFilesHere(Command({"true"})).ok());  // of the worker's PATH
  EXPECT_TRUE(CheckFilesHere(Command({"python", "other.py", "", "."})).ok());
  EXPECT_TRUE(CheckFilesHere(Command({"cat", dir_.path() + "/train.py"})).ok());
  api::JobSpec spec = Command({"python", "train.py"});
  spec.no_source = true;
  EXPECT_TRUE(CheckFilesHere(spec).ok());
  spec.no_source = false;
  spec.source_dir = ".";
  EXPECT_TRUE(CheckFilesHere(spec).ok());
}

TEST_F(FilesHereTest, AFileOfTheSourceHasItsNameInside) {
  ASSERT_TRUE(MakeDirs("proj/sub").ok());
  ASSERT_TRUE(WriteFileAtomic("proj/sub/train.py", "").ok());
  const auto said = [](const std::string& source, const std::string& arg) {
    api::JobSpec spec = Command({"python", arg});
    spec.source_dir = source;
    return CheckFilesHere(spec).message();
  };
  EXPECT_EQ(said("proj", "proj/sub/train.py"),
            "proj/sub/train.py: the job starts inside a copy of proj, where its name is "
            "sub/train.py. Write that");
  EXPECT_NE(said("./proj/", "proj/./sub/train.py"), "");
  EXPECT_NE(said("../" + BaseName(dir_.path()) + "/proj",
                 "../" + BaseName(dir_.path()) + "/proj/sub/train.py"),
            "");
  EXPECT_EQ(said("proj", "sub/train.py"), "");
  EXPECT_EQ(said("proj", "train.py"), "");  // of this folder; who knows what it is there
  EXPECT_EQ(said("proj", "proj/sub"), "");  // perhaps a folder that it makes
  EXPECT_EQ(said(".", "proj/sub/train.py"), "");
  EXPECT_NE(said(dir_.path() + "/proj", "proj/sub/train.py"), "");
  EXPECT_EQ(said("absent", "proj/sub/train.py"), "");
  ASSERT_TRUE(MakeDirs("proj/proj/sub").ok());
  ASSERT_TRUE(WriteFileAtomic("proj/proj/sub/train.py", "").ok());
  EXPECT_EQ(said("proj", "proj/sub/train.py"), "");

  ASSERT_EQ(::chdir("proj/sub"), 0);
  EXPECT_EQ(said("..", "train.py"),
            "train.py: the job starts inside a copy of .., where its name is sub/train.py. "
            "Write that");
  EXPECT_NE(said(dir_.path() + "/proj", "train.py"), "");  // as from pyproject.toml
  EXPECT_EQ(said("..", "../sub/train.py"),
            "../sub/train.py: the job starts inside a copy of .., where its name is sub/train.py. "
            "Write that");
  EXPECT_EQ(said("..", "sub/train.py"), "");
  ASSERT_EQ(symlink(dir_.path().c_str(), "outside"), 0);
  EXPECT_EQ(said("..", "outside/train.py"), "");
}

struct ExitRow {
  const char* name;
  api::JobState state;
  std::optional<std::int32_t> exit_code, signal;
  api::CauseKind cause;
  int shell;
};
class ExitCodeTest : public ::testing::TestWithParam<ExitRow> {};
TEST_P(ExitCodeTest, Row) {
  const ExitRow& row = GetParam();
  api::JobInfo info;
  info.state = row.state;
  info.outcome = {row.exit_code, row.signal, row.cause, ""};
  EXPECT_EQ(api::ShellExitCode(info), row.shell);
  EXPECT_EQ(api::ResultOf(info).shell_exit_code, row.shell);
}
using S = api::JobState;
using C = api::CauseKind;
INSTANTIATE_TEST_SUITE_P(
    Contract, ExitCodeTest,
    ::testing::Values(ExitRow{"ok", S::kSucceeded, 0, {}, C::kProgram, 0},
                      ExitRow{"seven", S::kFailed, 7, {}, C::kProgram, 7},
                      ExitRow{"own124", S::kFailed, 124, {}, C::kProgram, 124},
                      ExitRow{"segv", S::kFailed, {}, 11, C::kSignal, 139},
                      ExitRow{"memory", S::kFailed, {}, 9, C::kOutOfMemory, 137},
                      ExitRow{"timeout", S::kTimedOut, {}, 15, C::kTimeLimit, 124},
                      ExitRow{"cancelled", S::kCancelled, {}, 15, C::kCancelled, 130},
                      ExitRow{"not_executable", S::kFailed, {}, {}, C::kNotExecutable, 126},
                      ExitRow{"not_found", S::kFailed, {}, {}, C::kNotFound, 127},
                      ExitRow{"preparation", S::kFailed, {}, {}, C::kPreparation, 125},
                      ExitRow{"crash_limit", S::kFailed, {}, {}, C::kCrashLimit, 125},
                      ExitRow{"outputs", S::kFailed, 0, {}, C::kOutputsNotStored, 125}),
    [](const ::testing::TestParamInfo<ExitRow>& row) { return std::string(row.param.name); });

TEST(TextTest, TimesAreLocalWithOffset) {
  ::setenv("TZ", "Europe/Berlin", 1);
  ::tzset();
  EXPECT_EQ(api::FormatTime(api::Time(std::chrono::microseconds(1'700'000'000'123'456))),
            "2023-11-14T23:13:20.123456+01:00");
  ::unsetenv("TZ");
  ::tzset();
}

TEST(TextTest, EnvFiles) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/env";
  ASSERT_TRUE(WriteFileAtomic(path, "# c\n\n A=1\nB= x = y \r\nC=\n").ok());
  using Vars = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(*api::ReadEnvFile(path), (Vars{{"A", "1"}, {"B", " x = y "}, {"C", ""}}));
  ASSERT_TRUE(WriteFileAtomic(path, "A=1\nnonsense\n").ok());
  EXPECT_NE(api::ReadEnvFile(path).status().message().find("line 2"), std::string::npos);
  ASSERT_TRUE(WriteFileAtomic(path, "export A=b\n").ok());
  EXPECT_NE(api::ReadEnvFile(path).status().message().find("line 1: drop `export`"),
            std::string::npos);
  for (const char* line : {"A = b", "A\t=b"}) {
    ASSERT_TRUE(WriteFileAtomic(path, std::string("X=1\n") + line + "\n").ok());
    const std::string said = api::ReadEnvFile(path).status().message();
    EXPECT_NE(said.find(path + ", line 2: the name"), std::string::npos) << said;
  }
}

TEST(CheckTextTest, NamesTheFieldThatIsNoText) {
  v1::SubmitRequest request;
  v1::JobSpec* spec = request.add_jobs();
  spec->set_name("ok");
  spec->add_command("bytes \xff");
  EXPECT_TRUE(CheckText(request).ok());
  spec->mutable_requirements()->add_workers("a\xff");
  Status status = CheckText(request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("workers"), std::string::npos) << status.message();
  spec->mutable_requirements()->clear_workers();
  spec->set_request_id(std::string("a\0b", 3));
  status = CheckText(request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("request id"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace gpulayer::client
