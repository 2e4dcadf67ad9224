#include "client/targets.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fs.h"
#include "gpulayer/host.h"
#include "support/temp_dir.h"

namespace gpulayer::client {
namespace {

class TargetsTest : public ::testing::Test {
 protected:
  TargetsTest() {
    ::unsetenv("GPULAYER_TARGET");
    ::unsetenv("GPULAYER_CONFIG_DIR");
    ::unsetenv("GPULAYER_DATA_DIR");
  }
  ~TargetsTest() override { ::unsetenv("GPULAYER_TARGET"); }

  std::string config() const { return dir_.path() + "/config"; }
  std::string data() const { return dir_.path() + "/data"; }
  LoginStore store() const { return LoginStore(config()); }
  void Put(const std::string& name) {
    ASSERT_TRUE(
        store().Put({name, name + ":7461", "PEM", "glc1.client.1.s", "ann", "client", "u"}).ok());
  }
  Result<Target> Resolve(const std::string& target) {
    return ResolveTarget({target, config(), data()});
  }
  void StartServerHere() {
    ASSERT_TRUE(MakeDirs(data()).ok());
    ASSERT_TRUE(WriteFileAtomic(data() + "/server.sock", "").ok());
  }

  testing::TempDir dir_;
};

TEST(LoginNameTest, EveryHostGivesOneThatIsTaken) {
  EXPECT_EQ(LoginNameOf("gpu-box.example.org"), "gpu-box.example.org");
  EXPECT_EQ(LoginNameOf("10.0.0.5"), "10.0.0.5");
  for (const char* host : {"::1", "::", "fe80::1%eth0", "2001:db8::2:1"}) {
    EXPECT_TRUE(CheckLoginName(LoginNameOf(host)).ok()) << LoginNameOf(host);
  }
  EXPECT_NE(LoginNameOf("1::2:3"), LoginNameOf("1:2::3"));
}

TEST_F(TargetsTest, NoneSaysWhatToRun) {
  const Status status = Resolve("").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("run `gpulayer up` or `gpulayer login`"), std::string::npos);
}

TEST_F(TargetsTest, LoginsOfWhichNoneIsInUseAreNamed) {
  Put("box");
  Put("lab");
  const Status status = Resolve("").status();
  EXPECT_NE(status.message().find("(box, lab) none is in use. Run `gpulayer target use NAME`"),
            std::string::npos)
      << status.message();
}

TEST_F(TargetsTest, TheServerHereComesLast) {
  StartServerHere();
  EXPECT_EQ(Resolve("")->name, "here");
  EXPECT_EQ(Resolve("")->endpoint.socket, data() + "/server.sock");
  Put("box");
  EXPECT_EQ(Resolve("")->name, "here");  // kept, but not in use
  ASSERT_TRUE(store().Use("box").ok());
  EXPECT_EQ(Resolve("")->name, "box");
}

TEST_F(TargetsTest, TheServerHereHasAName) {
  EXPECT_EQ(Resolve("here").status().code(), StatusCode::kFailedPrecondition);
  StartServerHere();
  EXPECT_EQ(Resolve("here")->endpoint.socket, data() + "/server.sock");
  EXPECT_TRUE(Resolve("here")->login_in_use);
  Put("box");
  ASSERT_TRUE(store().Use("box").ok());
  EXPECT_EQ(Resolve("here")->name, "here");
  EXPECT_FALSE(Resolve("here")->login_in_use);  // its run folders are told apart
}

TEST_F(TargetsTest, ADataDirectoryThatMayNotBeLookedIntoIsSaid) {
  StartServerHere();
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0), 0);
  const uid_t me = ::geteuid();
  ASSERT_EQ(me == 0 ? ::seteuid(65534) : 0, 0);  // root may look everywhere
  const Status status = ResolveTarget({"here", "/none", data()}).status();
  ASSERT_EQ(me == 0 ? ::seteuid(me) : 0, 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0700), 0);
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status.message();
  EXPECT_NE(status.message().find(data() + ": Permission denied"), std::string::npos);
}

TEST_F(TargetsTest, AMachineThatOnlyJoinedSaysWhereAndWhatToType) {
  ASSERT_TRUE(MakeDirs(data()).ok());
  ASSERT_TRUE(WriteFileAtomic(data() + "/daemons.json",
                              R"({"kind": "join", "listen": "", "address": "box:7461",
                                  "worker": true, "worker_args": [], "server_process": null,
                                  "worker_process": {"pid": 1, "started": ""}})")
                  .ok());
  const Status status = Resolve("").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("a worker of box:7461"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("gpulayer login box:7461"), std::string::npos);
}

TEST_F(TargetsTest, AMovedSocketIsFound) {
  ASSERT_TRUE(MakeDirs(data() + "/server").ok());
  ASSERT_TRUE(
      WriteFileAtomic(data() + "/server/endpoint.json", R"({"socket": "/run/x/s", "pid": 1})")
          .ok());
  EXPECT_EQ(Resolve("")->endpoint.socket, "/run/x/s");
}

TEST_F(TargetsTest, TheServerOfADirectoryThatThisOneIsACopyOfIsNotHere) {
  ASSERT_TRUE(MakeDirs(data() + "/server").ok());
  ASSERT_TRUE(WriteFileAtomic(data() + "/server/lock", "").ok());
  ASSERT_TRUE(WriteFileAtomic(data() + "/server.sock", "").ok());
  struct stat lock{};
  ASSERT_EQ(::stat((data() + "/server/lock").c_str(), &lock), 0);
  const auto tell = [&](std::uint64_t inode) {
    ASSERT_TRUE(
        WriteFileAtomic(data() + "/server/endpoint.json",
                        R"({"socket": "/of/another", "lock_inode": )" + std::to_string(inode) + "}")
            .ok());
  };
  tell(lock.st_ino);
  EXPECT_EQ(Resolve("")->endpoint.socket, data() + "/server.sock");  // moved with its directory
  tell(lock.st_ino + 1);
  EXPECT_EQ(Resolve("").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(TargetsTest, AFileThatIsNoneIsNotWaitedFor) {
  Put("box");
  ASSERT_TRUE(store().Use("box").ok());
  ASSERT_EQ(::unlink((config() + "/targets/box.json").c_str()), 0);
  ASSERT_EQ(::mkfifo((config() + "/targets/box.json").c_str(), 0600), 0);
  EXPECT_EQ(Resolve("").status().code(), StatusCode::kDataLoss);
  EXPECT_NE(Resolve("").status().message().find("box.json: a FIFO"), std::string::npos);
  ASSERT_EQ(::unlink((config() + "/targets/in_use").c_str()), 0);
  ASSERT_EQ(::mkfifo((config() + "/targets/in_use").c_str(), 0600), 0);
  EXPECT_EQ(Resolve("").status().code(), StatusCode::kDataLoss);
}

TEST_F(TargetsTest, TheArgumentBeatsTheEnvironmentBeatsTheLoginInUse) {
  Put("a");
  Put("b");
  Put("c");
  ASSERT_TRUE(store().Use("a").ok());
  EXPECT_EQ(Resolve("")->name, "a");
  ::setenv("GPULAYER_TARGET", "b", 1);
  EXPECT_EQ(Resolve("")->name, "b");
  EXPECT_FALSE(Resolve("")->login_in_use);
  EXPECT_EQ(Resolve("c")->name, "c");
  EXPECT_EQ(Resolve("remote")->name, "a");
  EXPECT_TRUE(Resolve("remote")->login_in_use);
  EXPECT_TRUE(Resolve("a")->login_in_use);
  EXPECT_EQ(Resolve("local")->kind, Target::Kind::kLocal);
  EXPECT_EQ(Resolve("c")->endpoint.address, "c:7461");
}

TEST_F(TargetsTest, UnknownNames) {
  EXPECT_EQ(Resolve("nobody").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Resolve("../x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Resolve("remote").status().code(), StatusCode::kFailedPrecondition);
  for (const char* name : {"", "local", "remote", "here", ".x", "-x", "a/b", "a b"}) {
    EXPECT_FALSE(CheckLoginName(name).ok()) << name;
  }
}

// Older versions reserved fewer names.
TEST_F(TargetsTest, ALoginWithANameThatIsReservedByNowCanBeForgotten) {
  Put("box");
  const std::string dir = config() + "/targets/";
  ASSERT_EQ(::rename((dir + "box.json").c_str(), (dir + "here.json").c_str()), 0);
  ASSERT_TRUE(WriteFileAtomic(dir + "in_use", "here\n").ok());
  EXPECT_EQ(Resolve("")->endpoint.address, "box:7461");
  EXPECT_EQ(Resolve("remote")->endpoint.address, "box:7461");
  EXPECT_EQ(store().List()->size(), 1u);
  EXPECT_EQ(store().Put(*store().Get("here")).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(store().Remove("here").ok());
  EXPECT_EQ(*store().InUse(), std::nullopt);
  EXPECT_FALSE(PathExists(dir + "here.json"));
}

TEST_F(TargetsTest, CredentialsAreForTheirOwnerAlone) {
  Put("box");
  struct stat info{};
  ASSERT_EQ(::stat((config() + "/targets").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat((config() + "/targets/box.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(TargetsTest, RemovingTheOneInUseLeavesNone) {
  Put("a");
  Put("b");
  ASSERT_TRUE(store().Use("a").ok());
  ASSERT_TRUE(store().Remove("a").ok());
  EXPECT_EQ(*store().InUse(), std::nullopt);
  EXPECT_EQ(store().List()->size(), 1u);
  EXPECT_EQ(store().Remove("a").code(), StatusCode::kNotFound);
}

TEST_F(TargetsTest, ADamagedFileIsNamed) {
  Put("box");
  ASSERT_TRUE(WriteFileAtomic(config() + "/targets/box.json", "{").ok());
  const Status status = Resolve("box").status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("box.json"), std::string::npos);
}

TEST_F(TargetsTest, ADamagedFileHidesNoOtherAndCanBeForgotten) {
  Put("a");
  Put("box");
  ASSERT_TRUE(WriteFileAtomic(config() + "/targets/a.json", "{").ok());
  const Result<std::vector<Login>> listed = store().List();
  ASSERT_TRUE(listed.ok() && listed->size() == 2) << listed.status().ToString();
  EXPECT_NE((*listed)[0].damage.find("a.json"), std::string::npos);
  EXPECT_EQ((*listed)[1].name, "box");
  EXPECT_EQ((*listed)[1].damage, "");
  EXPECT_EQ(api::Logout("a", config()).value_or(""), "a");
  EXPECT_EQ(store().List()->size(), 1u);
}

// Work for another server must not end up at the one that happens to be here.
TEST_F(TargetsTest, AnInUseThatNamesNoLoginIsSaid) {
  Put("box");
  for (const char* text : {"", "\n", "gone\n", "{\"a\"", "../box\n"}) {
    ASSERT_TRUE(WriteFileAtomic(config() + "/targets/in_use", text).ok());
    for (const char* target : {"", "remote"}) {
      const Status status = Resolve(target).status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << text;
      EXPECT_NE(status.message().find("targets/in_use names no login. Run `gpulayer target use"),
                std::string::npos);
    }
    EXPECT_TRUE(Resolve("box").ok());
    EXPECT_TRUE(Resolve("local").ok());
  }
  EXPECT_TRUE(store().Use("box").ok());
  EXPECT_EQ(Resolve("")->name, "box");
}

}  // namespace
}  // namespace gpulayer::client
