// Variables that reach a program and no disk.
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>

#include "exec/exec_fixture.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kValue[] = "hunter2-hunter2-hunter2";

class ExecSecretsTest : public ExecTest {
 protected:
  AttemptId StartWith(AttemptSpec spec, const std::vector<std::string>& secrets) {
    spec.secrets = std::ssize(secrets);
    const AttemptId id = Prepare(std::move(spec));
    EXPECT_TRUE(client_->Start(id, secrets).ok());
    return id;
  }
  std::string Everything() {
    std::string out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
      if (entry.is_regular_file()) out += ReadFile(entry.path().string()).value_or("");
    }
    return out;
  }
};

TEST_F(ExecSecretsTest, F47_TheProgramHasThemAndNoFile) {
  AttemptSpec spec = Shell("echo ${#TOK} ${#BIG} $D; read line < gate");
  ASSERT_EQ(::system(("mkfifo " + (dir_ / "gate")).c_str()), 0);
  const std::string big(65'000, 'x');
  const AttemptId id =
      StartWith(spec, {std::string("TOK=") + kValue, "BIG=" + big, "D=instead", "E2=" + big});
  ASSERT_TRUE(Prints(id, "23 65000 instead\n"));
  EXPECT_THAT(Everything(), Not(HasSubstr(kValue)));
  ASSERT_EQ(::system(("echo > " + (dir_ / "gate")).c_str()), 0);
  EXPECT_EQ(Await(id).exit_code, 0);
  EXPECT_THAT(Everything(), Not(HasSubstr(kValue)));
}

TEST_F(ExecSecretsTest, WithoutThemNothingIsStarted) {
  AttemptSpec spec = Shell("echo ran");
  spec.secrets = 1;
  const AttemptId id = Start(spec);
  const AttemptStatus none = Await(id);
  EXPECT_EQ(none.failed_step, StartStep::kSpawn);
  EXPECT_EQ(none.error, ENOKEY);
  EXPECT_EQ(OutcomeOf(none).cause.kind, CauseKind::kSpawnFailed);
  EXPECT_EQ(Output(id), "");
  spec.secrets = 2;
  const AttemptId fewer = Prepare(spec);
  ASSERT_TRUE(client_->Start(fewer, {"TOK=1"}).ok());
  EXPECT_EQ(Await(fewer).error, ENOKEY);
}

TEST_F(ExecSecretsTest, ASiblingHasNoneAndNeitherHasAKeeperThatRuns) {
  const AttemptId with =
      StartWith(Shell("echo up; exec sleep 600"), {std::string("TOK=") + kValue});
  ASSERT_TRUE(Prints(with, "up\n"));
  EXPECT_EQ(Run(Shell("echo \"<$TOK>\"; ls /proc/self/fd | wc -l")).exit_code, 0);
  EXPECT_EQ(LastOutput(), "<>\n4\n");
  const Result<std::vector<std::string>> fds =
      ListDir("/proc/" + std::to_string(ExecPid()) + "/fd");
  ASSERT_TRUE(fds.ok());
  for (const std::string& fd : *fds) {
    std::error_code error;
    const auto to =
        std::filesystem::read_symlink("/proc/" + std::to_string(ExecPid()) + "/fd/" + fd, error);
    EXPECT_THAT(to.string(), Not(HasSubstr("gpulayer-secrets")));
  }
  ASSERT_TRUE(client_->Stop(with, 0s).ok());
  Await(with);
}

TEST_F(ExecSecretsTest, NoProcessOfOursLeavesACore) {
  const AttemptId id = Start(Shell("echo up; exec sleep 600"));
  ASSERT_TRUE(Prints(id, "up\n"));
  const std::string limits =
      ReadFile("/proc/" + std::to_string(ExecPid()) + "/limits").value_or("");
  EXPECT_THAT(limits, ::testing::ContainsRegex("Max core file size +0 "));
  ASSERT_TRUE(client_->Stop(id, 0s).ok());
  Await(id);
}

}  // namespace
}  // namespace gpulayer::testing
