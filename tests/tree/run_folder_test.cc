#include "tree/run_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>

#include "support/temp_dir.h"
#include "tree/files.h"

namespace gpulayer::tree {
namespace {

using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::Link;
using testing::MemoryBlobs;
using testing::Put;
using testing::TempDir;
using Naming = RunFolderRequest::Naming;

constexpr const char* kServer = "0123456789abcdef0123456789abcdef";
constexpr const char* kOther = "fedcba9876543210fedcba9876543210";

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderRequest Request(const char* server, std::int64_t job,
                           Naming naming = Naming::kLoginInUse) {
    RunFolderRequest request;
    request.base_dir = dir_.path();
    request.server_uuid = server;
    request.job = JobId(job);
    request.naming = naming;
    request.target = "lab";
    request.to = dir_ / "to";
    return request;
  }
  // The folder's name in gpulayer_runs.
  std::string Make(const RunFolderRequest& request) {
    Result<std::string> made = MakeRunFolder(request);
    if (!made.ok()) return made.status().ToString();
    EXPECT_EQ(DirName(*made), dir_ / "gpulayer_runs");
    return BaseName(*made);
  }

  TempDir dir_;
};

TEST_F(RunFolderTest, APlaceIsLookedAtWithoutMakingOne) {
  EXPECT_TRUE(CheckRunsPlace(dir_.path()).ok());
  EXPECT_FALSE(PathExists(dir_ / "gpulayer_runs"));
  ASSERT_EQ(Make(Request(kServer, 42)), "42");
  EXPECT_TRUE(CheckRunsPlace(dir_.path()).ok());
  EXPECT_EQ(CheckRunsPlace(dir_ / "absent").code(), StatusCode::kFailedPrecondition);

  ASSERT_TRUE(MakeDirs(dir_ / "file").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "file/gpulayer_runs", "").ok());
  EXPECT_THAT(CheckRunsPlace(dir_ / "file").message(), HasSubstr("is no folder"));
  ASSERT_TRUE(MakeDirs(dir_ / "link").ok());
  ASSERT_EQ(symlink("nowhere", (dir_ / "link/gpulayer_runs").c_str()), 0);
  EXPECT_THAT(CheckRunsPlace(dir_ / "link").message(), HasSubstr("a link to nothing"));
  {
    ASSERT_TRUE(MakeDirs(dir_ / "gone").ok());
    const UniqueFd back = *OpenFile(".", O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(chdir((dir_ / "gone").c_str()), 0);
    ASSERT_EQ(rmdir((dir_ / "gone").c_str()), 0);
    EXPECT_THAT(CheckRunsPlace(".").message(), HasSubstr("was removed"));
    ASSERT_EQ(fchdir(back.get()), 0);
  }
  if (geteuid() == 0) return;  // may write everywhere
  ASSERT_TRUE(MakeDirs(dir_ / "closed", 0555).ok());
  EXPECT_THAT(CheckRunsPlace(dir_ / "closed").message(), HasSubstr("Permission denied"));
}

TEST_F(RunFolderTest, NamesAndMarker) {
  EXPECT_EQ(Make(Request(kServer, 42)), "42");
  EXPECT_EQ(Make(Request(kServer, 42)), "42");  // the same job again
  EXPECT_EQ(Make(Request(kServer, 42, Naming::kOtherTarget)), "lab-42");
  EXPECT_EQ(Make(Request(kServer, 1, Naming::kLocal)), "local-1");
  EXPECT_EQ(Make(Request(kServer, 1, Naming::kLocal)), "local-2");
  EXPECT_EQ(*ReadFile(dir_ / "gpulayer_runs/.gitignore"), "*\n");
  EXPECT_EQ(*ReadFile(dir_ / "gpulayer_runs/42/.gpulayer.json"),
            std::string("{\"server\":\"") + kServer + "\",\"job\":42}\n");
  EXPECT_EQ(testing::ModeOf(dir_ / "gpulayer_runs/42"), 0755U);
  EXPECT_THAT(*ListDir(dir_ / "gpulayer_runs"),
              ElementsAre(".gitignore", "42", "lab-42", "local-1", "local-2"));
}

TEST_F(RunFolderTest, AnotherJobsFolderIsNeverTaken) {
  EXPECT_EQ(Make(Request(kServer, 42)), "42");
  EXPECT_EQ(Make(Request(kOther, 42)), "42-fedcba");
  EXPECT_EQ(Make(Request(kOther, 42)), "42-fedcba");
  EXPECT_EQ(Make(Request("fedcbaffffffffffffffffffffffffff", 42)),
            "42-fedcbaffffffffffffffffffffffffff");
  Put(dir_ / "gpulayer_runs/7/mine");  // the user's own
  EXPECT_EQ(Make(Request(kServer, 7)), "7-012345");
  Put(dir_ / "gpulayer_runs/8");  // a file
  EXPECT_EQ(Make(Request(kServer, 8)), "8-012345");
  Put(dir_ / "gpulayer_runs/9/.gpulayer.json", "not json");
  EXPECT_EQ(Make(Request(kServer, 9)), "9-012345");
  for (const int job : {11, 12}) {  // no file: neither waited for nor read without an end
    const std::string folder = dir_ / ("gpulayer_runs/" + std::to_string(job));
    ASSERT_TRUE(MakeDirs(folder, 0755).ok());
    const std::string marker = folder + "/.gpulayer.json";
    ASSERT_EQ(job == 11 ? mkfifo(marker.c_str(), 0600) : symlink("/dev/zero", marker.c_str()), 0);
    EXPECT_EQ(Make(Request(kServer, job)), std::to_string(job) + "-012345");
  }
  ASSERT_TRUE(MakeDirs(dir_ / "gpulayer_runs/10", 0755).ok());  // empty: nothing to lose
  EXPECT_EQ(Make(Request(kServer, 10)), "10");
  Put(dir_ / "gpulayer_runs/local-x/a");
  Put(dir_ / "gpulayer_runs/local-5/a");
  EXPECT_EQ(Make(Request(kServer, 1, Naming::kLocal)), "local-6");
}

TEST_F(RunFolderTest, GivenFolder) {
  EXPECT_EQ(*MakeRunFolder(Request(kServer, 42, Naming::kTo)), dir_ / "to");
  EXPECT_THAT(*ListDir(dir_ / "to"), ElementsAre());
  EXPECT_FALSE(PathExists(dir_ / "gpulayer_runs"));
  EXPECT_EQ(Make(Request(kServer, 42)), "42");
  RunFolderRequest request = Request(kServer, 43, Naming::kTo);
  request.to = dir_ / "gpulayer_runs/42";
  EXPECT_EQ(MakeRunFolder(request).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(MakeRunFolder(request).status().message(), HasSubstr("job 42"));
  request.job = JobId(42);
  EXPECT_TRUE(MakeRunFolder(request).ok());
}

TEST_F(RunFolderTest, FilesOfOthersAreFoundBeforeAnythingIsWritten) {
  MemoryBlobs blobs(dir_ / "blobs");
  Tree tree;
  tree.entries = {blobs.File("a", "1"), Folder("b"), blobs.File("c/d", "2"), Link("e", "a")};
  const RunFolderRequest request = Request(kServer, 42, Naming::kTo);
  EXPECT_THAT(FindOthers(request, "", tree, 9), ElementsAre()) << "no such folder yet";
  ASSERT_TRUE(MakeDirs(dir_ / "to").ok());
  ASSERT_TRUE(UnpackInto(dir_ / "to", "", tree, blobs.Opener()).ok());
  ASSERT_TRUE(UnpackInto(dir_ / "to", "7", tree, blobs.Opener()).ok());
  EXPECT_THAT(FindOthers(request, "", tree, 9), ElementsAre()) << "all the same";
  tree.entries = {blobs.File("a", "!"), blobs.File("b", "1"), blobs.File("c/d", "longer"),
                  Link("e", "b")};
  EXPECT_THAT(FindOthers(request, "", tree, 9), ElementsAre("a", "b", "c/d", "e"));
  EXPECT_THAT(FindOthers(request, "7", tree, 2), ElementsAre("7/a", "7/b"));
  ASSERT_EQ(symlink("c", (dir_ / "to/l").c_str()), 0);
  tree.entries = {Folder("a"), blobs.File("e/x", "1"), blobs.File("l/d", "2"),
                  blobs.File("l/x", "1"), blobs.File("new", "1")};
  EXPECT_THAT(FindOthers(request, "", tree, 9), ElementsAre("a", "e/x", "l/d", "l/x"))
      << "nothing can be written through a link or below a file";

  RunFolderRequest own = request;
  own.to = dir_ / ("gpulayer_runs/" + Make(Request(kServer, 42)));
  Put(own.to + "/new", "edited");
  EXPECT_THAT(FindOthers(own, "", tree, 9), ElementsAre()) << "its own run folder";
}

TEST_F(RunFolderTest, ManyAtOnceNeverClash) {
  std::vector<std::thread> threads;
  std::vector<std::string> local(8), same(8), other(8);
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      local[i] = Make(Request(kServer, 1, Naming::kLocal));
      same[i] = Make(Request(kServer, 5));
      other[i] = Make(Request(i % 2 == 0 ? kServer : kOther, 6));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(local.begin(), local.end()).size(), 8U);
  EXPECT_THAT(same, ::testing::Each("5"));
  for (std::size_t i = 2; i < 8; ++i) EXPECT_EQ(other[i], other[i % 2]);
  EXPECT_NE(other[0], other[1]);
}

TEST_F(RunFolderTest, UnpackIntoKeepsTheMarkerAndTheFolder) {
  const std::string folder = *MakeRunFolder(Request(kServer, 42));
  ASSERT_TRUE(MakeDirs(dir_ / "blobs").ok());
  MemoryBlobs blobs(dir_ / "blobs");
  Tree tree;
  tree.entries = {blobs.File(".gpulayer.json", "evil"), blobs.File("a", "1")};
  for (int twice = 0; twice < 2; ++twice) {
    ASSERT_TRUE(UnpackInto(folder, "", tree, blobs.Opener()).ok());
    ASSERT_TRUE(UnpackInto(folder, "7", tree, blobs.Opener()).ok());
  }
  EXPECT_THAT(*ReadFile(folder + "/.gpulayer.json"), HasSubstr(kServer));
  EXPECT_EQ(*ReadFile(folder + "/a"), "1");
  EXPECT_EQ(*ReadFile(folder + "/7/a"), "1");
  EXPECT_FALSE(UnpackInto(folder, "..", tree, blobs.Opener()).ok());
  EXPECT_FALSE(UnpackInto(folder, "a/b", tree, blobs.Opener()).ok());
  ASSERT_EQ(symlink("/", (folder + "/9").c_str()), 0);
  EXPECT_FALSE(UnpackInto(folder, "9", tree, blobs.Opener()).ok());
}

}  // namespace
}  // namespace gpulayer::tree
