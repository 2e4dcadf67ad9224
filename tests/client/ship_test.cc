#include "client/ship.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "base/fs.h"
#include "client/fake_transport.h"
#include "client/fetch.h"
#include "model/blob_file.h"
#include "support/temp_dir.h"
#include "wire/tree.h"

namespace gpulayer::client {
namespace {

class ShipTest : public ::testing::Test {
 protected:
  ShipTest() {
    EXPECT_TRUE(MakeDirs(root()).ok());
    options_.source = {1 << 20, 100, {}, {}, false};
    options_.cache_dir = dir_.path() + "/cache";
    options_.call_timeout = std::chrono::seconds(30);
  }
  std::string root() const { return dir_.path() + "/src"; }
  void Write(const std::string& name, const std::string& data) {
    ASSERT_TRUE(MakeDirs(DirName(root() + "/" + name)).ok());
    ASSERT_TRUE(WriteFileAtomic(root() + "/" + name, data).ok());
  }

  testing::TempDir dir_;
  FakeTransport server_;
  ShipOptions options_;
};

TEST_F(ShipTest, SendsContentThenManifestInOneStream) {
  Write("a.txt", "alpha");
  Write("d/b.txt", std::string(600'000, 'b'));
  Write("d/same.txt", "alpha");
  Write("empty", "");
  const Result<Shipped> shipped = ShipSource(server_, root(), options_);
  ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
  EXPECT_EQ(server_.uploads, 1);
  ASSERT_EQ(server_.received.size(), 4u);  // three contents, one manifest
  const std::string manifest = server_.received.back();
  EXPECT_EQ(manifest, shipped->tree.bytes());
  const Result<Tree> tree = wire::ParseTree(server_.blobs[manifest]);
  ASSERT_TRUE(tree.ok());
  for (const TreeEntry& entry : tree->entries) {
    if (entry.type != EntryType::kFile) continue;
    const std::string& data = server_.blobs[std::string(entry.hash.bytes())];
    EXPECT_EQ(Hash::Of(data), entry.hash) << entry.path;
    EXPECT_EQ(static_cast<std::int64_t>(data.size()), entry.size) << entry.path;
  }
}

TEST_F(ShipTest, UnchangedCostsOneQuestionAndOneEditOneBlob) {
  Write("a.txt", "alpha");
  Write("b.txt", "beta");
  ASSERT_TRUE(ShipSource(server_, root(), options_).ok());
  server_.calls.clear();
  ASSERT_TRUE(ShipSource(server_, root(), options_).ok());
  EXPECT_EQ(server_.calls[Method::kMissing], 1);
  EXPECT_EQ(server_.uploads, 1);
  server_.received.clear();
  Write("b.txt", "gamma");
  ASSERT_TRUE(ShipSource(server_, root(), options_).ok());
  EXPECT_EQ(server_.received.size(), 2u);  // the blob and the manifest
}

TEST_F(ShipTest, AFileThatTheCommandNamesAndRulesLeaveOutIsWarnedOf) {
  Write(".gitignore", "data/\n/sq\n");
  Write("data/big.csv", "1");
  Write("sq", "1");
  Write("a.py", "");
  // Of two jobs of a batch.
  options_.source.commands = {{"./sq", "a.py", "data", "none.csv", "../x", ""},
                              {"./sq", "--in=data/big.csv"}};
  Result<Shipped> shipped = ShipSource(server_, root(), options_);
  ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
  ASSERT_EQ(shipped->warnings.size(), 2U);
  EXPECT_EQ(shipped->warnings[1],
            "data/big.csv is here, but the ignore rules leave it out: it is not shipped. Write "
            "`!/data/big.csv` into " +
                root() + "/.gpulayerignore to ship it");
  EXPECT_EQ(shipped->warnings[0].substr(0, 10), "sq is here");
  Write(".gpulayerignore", "!/data/big.csv\n!/sq\n");
  shipped = ShipSource(server_, root(), options_);
  ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
  EXPECT_EQ(shipped->warnings, std::vector<std::string>());
  options_.source.commands = {{"sq"}};  // of the worker's PATH
  Write(".gpulayerignore", "");
  EXPECT_EQ(ShipSource(server_, root(), options_)->warnings, std::vector<std::string>());
}

TEST_F(ShipTest, AVirtualEnvironmentIsNotAdvisedToShip) {
  Write("venv/pyvenv.cfg", "");
  Write("venv/bin/python", "");
  options_.source.commands = {{"venv/bin/python"}};
  const Result<Shipped> shipped = ShipSource(server_, root(), options_);
  ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
  ASSERT_EQ(shipped->warnings.size(), 1U);
  EXPECT_NE(shipped->warnings[0].find("venv is a virtual environment"), std::string::npos);
  EXPECT_EQ(shipped->warnings[0].find("gpulayerignore"), std::string::npos);
  options_.source.name_ignored = true;
  EXPECT_EQ(ListSource(root(), options_.source)->kept_out, std::vector<std::string>{"venv/"});
}

TEST_F(ShipTest, OurOwnFoldersDoNotShip) {
  Write("config/targets/a.json", "secret");
  Write("a", "");
  options_.source.never = {root() + "/config", "/no/such"};
  const Result<Shipped> shipped = ShipSource(server_, root(), options_);
  ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
  EXPECT_EQ(shipped->warnings,
            std::vector<std::string>{"left out config: GPUlayer's own files, keys among them"});
  EXPECT_EQ(ShipSource(server_, root() + "/config", options_).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_TRUE(ShipSource(server_, root() + "/config/targets", options_).ok());
}

TEST_F(ShipTest, NoDataDirectoryShipsWhereverItLies) {
  Write(".gpulayerignore", "!*\n");
  Write("a", "");
  Write("x/state/server/lock", "");
  Write("x/state/server/server.db", "");
  Write("x/state/server/tls/ca.key", "secret");
  Write("box/worker/worker.lock", "");
  Write("box/worker/worker.json", "{}");
  Write("mine/server/main.py", "");  // of a like name
  Write("mine/worker/worker.json", "");
  const Result<Shipped> shipped = ShipSource(server_, root(), options_);
  ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
  EXPECT_EQ(shipped->warnings,
            (std::vector<std::string>{"left out box: GPUlayer's own files, keys among them",
                                      "left out x/state: GPUlayer's own files, keys among them"}));
  EXPECT_EQ(server_.blobs.count(std::string(Hash::Of("secret").bytes())), 0U);
  EXPECT_EQ(server_.blobs.count(std::string(Hash::Of("{}").bytes())), 0U);
  EXPECT_EQ(ShipSource(server_, root() + "/box", options_).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(ShipTest, OverTheLimitNothingIsAskedOrSent) {
  Write("big/x", std::string(2 << 20, 'x'));
  const Status status = ShipSource(server_, root(), options_).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("big"), std::string::npos) << status.message();
  EXPECT_EQ(server_.calls[Method::kMissing], 0);
  EXPECT_EQ(server_.uploads, 0);
}

TEST_F(ShipTest, ALostConnectionOrAChangedFileIsTriedAgain) {
  Write("a.txt", "alpha");
  for (const StatusCode code : {StatusCode::kUnavailable, StatusCode::kDataLoss}) {
    server_.blobs.clear();
    server_.upload_status = Status(code, "cut");
    const Result<Shipped> shipped = ShipSource(server_, root(), options_);
    EXPECT_TRUE(shipped.ok()) << shipped.status().ToString();
    EXPECT_EQ(server_.blobs.size(), 2u);
  }
}

TEST_F(ShipTest, AFileAsStandardInput) {
  Write("in", "line\n");
  const Result<Shipped> shipped = ShipFile(server_, root() + "/in", options_);
  ASSERT_TRUE(shipped.ok());
  EXPECT_EQ(server_.blobs[std::string(Hash::Of("line\n").bytes())], "line\n");
  EXPECT_EQ(ShipFile(server_, root(), options_).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ShipFile(server_, root() + "/no", options_).status().code(), StatusCode::kNotFound);
}

class ShipFilesTest : public ShipTest {
 protected:
  ShipFilesTest() {
    options_.source.limit_bytes = 64 << 20;
    server_.drop = dir_.path() + "/drop";
    EXPECT_TRUE(MakePrivateDir(server_.drop).ok());
    EXPECT_TRUE(WriteFileAtomic(server_.drop + "/proof", "").ok());
    Write("a.txt", "alpha");
    Write("big", big_);
    Write("z.txt", "omega");
  }
  // Whether all of it is on the server and nothing is left in the drop folder.
  void Ship(int handed_over, int uploads) {
    const Result<Shipped> shipped = ShipSource(server_, root(), options_);
    ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
    EXPECT_EQ(server_.blobs.size(), 4u);
    EXPECT_EQ(Hash::Of(server_.blobs[std::string(Hash::Of(big_).bytes())]), Hash::Of(big_));
    EXPECT_EQ(server_.received.back(), shipped->tree.bytes());
    EXPECT_EQ(server_.handed_over, handed_over);
    EXPECT_EQ(server_.uploads, uploads);
    EXPECT_EQ(*ListDir(server_.drop), std::vector<std::string>{"proof"});
  }
  const std::string big_ = std::string(20'000'001, 'b');
};

TEST_F(ShipFilesTest, ABigOneIsHandedOverAsACopyToAServerHere) {
  Ship(1, 1);
  EXPECT_EQ(*ReadFile(root() + "/big"), big_);
}

TEST_F(ShipFilesTest, ARefusalMeansBytesAndLeavesNothing) {
  server_.refuse_dropped = true;
  Ship(0, 2);
}

TEST_F(ShipFilesTest, AServerThatIsNotHereGetsBytes) {
  ASSERT_EQ(::unlink((server_.drop + "/proof").c_str()), 0);
  ASSERT_TRUE(ShipSource(server_, root(), options_).ok());
  EXPECT_EQ(server_.blobs.size(), 4u);
  EXPECT_EQ(server_.handed_over, 0);
  EXPECT_TRUE(ListDir(server_.drop)->empty());
}

TEST_F(ShipFilesTest, AFileThatChangedSinceItWasHashedIsShippedAsItIsNow) {
  int asked = 0;
  server_.answers[Method::kMissing] = [&](const auto& request, auto* reply) {
    if (++asked == 2) Write("big", std::string(big_.size(), 'c'));  // after the hashing
    return server_.Missing(static_cast<const v1::MissingRequest&>(request),
                           static_cast<v1::MissingReply*>(reply));
  };
  const Result<Shipped> shipped = ShipSource(server_, root(), options_);
  ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
  const Result<Tree> tree = wire::ParseTree(server_.blobs[std::string(shipped->tree.bytes())]);
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->entries[1].hash, Hash::Of(std::string(big_.size(), 'c')));
  EXPECT_EQ(server_.blobs.count(std::string(Hash::Of(big_).bytes())), 0u);
  EXPECT_EQ(*ListDir(server_.drop), std::vector<std::string>{"proof"});
}

std::string Read(const UniqueFd& fd) {
  char buffer[4096];
  const ssize_t n = ::pread(fd.get(), buffer, sizeof buffer, 0);
  return n < 0 ? "?" : std::string(buffer, static_cast<std::size_t>(n));
}

class FetchTest : public ::testing::Test {
 protected:
  Hash Put(const std::string& data) {
    server_.blobs[std::string(Hash::Of(data).bytes())] = data;
    return Hash::Of(data);
  }
  BlobFetcher Fetch(std::vector<Hash> hashes) {
    return BlobFetcher(server_, std::move(hashes),
                       {dir_.path(), std::chrono::seconds(60), nullptr});
  }
  testing::TempDir dir_;
  FakeTransport server_;
};

TEST_F(FetchTest, OneStreamInOrderWithRepeatsAndEmptyOnes) {
  const Hash a = Put("alpha beta");
  const Hash empty = Put("");
  const Hash c = Put("gamma");
  BlobFetcher fetcher = Fetch({a, empty, a, c});
  EXPECT_EQ(Read(*fetcher.Open(a)), "alpha beta");
  EXPECT_EQ(Read(*fetcher.Open(empty)), "");
  EXPECT_EQ(Read(*fetcher.Open(a)), "alpha beta");
  EXPECT_EQ(Read(*fetcher.Open(c)), "gamma");
  EXPECT_EQ(server_.downloads, 1);
  EXPECT_FALSE(fetcher.Open(c).ok());
}

TEST_F(FetchTest, OutOfOrderIsKept) {
  const Hash a = Put("alpha");
  const Hash b = Put("beta");
  BlobFetcher fetcher = Fetch({a, b});
  EXPECT_EQ(Read(*fetcher.Open(b)), "beta");
  EXPECT_EQ(Read(*fetcher.Open(a)), "alpha");
}

TEST_F(FetchTest, ABrokenStreamGoesOnWithTheBlobItBrokeIn) {
  const Hash a = Put("alpha");
  const Hash b = Put("a longer one of several parts");
  server_.break_after = 4;
  BlobFetcher fetcher = Fetch({a, b});
  EXPECT_EQ(Read(*fetcher.Open(a)), "alpha");
  const Result<UniqueFd> fd = fetcher.Open(b);
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  EXPECT_EQ(Read(*fd), "a longer one of several parts");
  EXPECT_EQ(server_.downloads, 2);
}

TEST_F(FetchTest, DamagedBytesAreRefused) {
  const Hash a = Put("alpha");
  server_.blobs[std::string(a.bytes())] = "alphA";
  BlobFetcher fetcher = Fetch({a});
  EXPECT_EQ(fetcher.Open(a).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(server_.downloads, 2);
  EXPECT_EQ(server_.suspect, std::string(a.bytes()));  // the server is made to look
}

class FetchFilesTest : public FetchTest {
 protected:
  FetchFilesTest() {
    server_.part_bytes = 1 << 20;
    server_.store = dir_.path() + "/store";
  }
  Hash Store(const std::string& data) {
    const Hash hash = Put(data);
    EXPECT_TRUE(MakeDirs(DirName(FileOf(hash))).ok());
    EXPECT_TRUE(WriteFileAtomic(FileOf(hash), data, 0600, Durability::kNone).ok());
    return hash;
  }
  std::string FileOf(const Hash& hash) const { return JoinPath(server_.store, BlobFileName(hash)); }
  static Hash HashOf(const Result<UniqueFd>& fd) {
    if (!fd.ok() || ::lseek(fd->get(), 0, SEEK_SET) != 0) return Hash();
    const Result<std::string> data = ReadAll(fd->get(), std::size_t{64} << 20);
    return data.ok() ? Hash::Of(*data) : Hash();
  }
  const std::string big_ = std::string(20'000'001, 'b');
};

TEST_F(FetchFilesTest, ABigOneIsCopiedFromTheStoreAndIsAFileOfItsOwn) {
  const Hash a = Put("alpha");
  const Hash big = Store(big_);
  const Hash c = Put("gamma");
  BlobFetcher fetcher = Fetch({a, big, c});
  EXPECT_EQ(Read(*fetcher.Open(a)), "alpha");
  server_.blobs[std::string(big.bytes())] = "no bytes are asked for";
  const Result<UniqueFd> fd = fetcher.Open(big);
  ASSERT_EQ(HashOf(fd), big);
  ASSERT_EQ(::pwrite(fd->get(), "!", 1, 0), 1);
  EXPECT_EQ(Hash::Of(*ReadFile(FileOf(big))), big);
  EXPECT_EQ(Read(*fetcher.Open(c)), "gamma");
  EXPECT_EQ(server_.downloads, 1);
}

TEST_F(FetchFilesTest, WhatCannotBeReadOrIsDamagedComesByBytes) {
  const std::vector<std::function<void(const std::string& file)>> harms = {
      [](const std::string& file) { ::unlink(file.c_str()); },
      [](const std::string& file) { EXPECT_EQ(::truncate(file.c_str(), 10'000'000), 0); },
      [&](const std::string& file) {
        EXPECT_TRUE(WriteFileAtomic(file, std::string(big_.size(), 'x')).ok());
      },
      [](const std::string& file) {
        ::unlink(file.c_str());
        EXPECT_EQ(::mkfifo(file.c_str(), 0600), 0);
      },
      [&](const std::string& file) {
        EXPECT_TRUE(WriteFileAtomic(dir_.path() + "/elsewhere", big_).ok());
        ::unlink(file.c_str());
        EXPECT_EQ(::symlink((dir_.path() + "/elsewhere").c_str(), file.c_str()), 0);
      },
      [&](const std::string&) { server_.store = dir_.path() + "/another machine's"; },
  };
  const Hash big = Store(big_);
  const Hash other = Store(std::string(9'000'000, 'o'));
  const Hash last = Put("last");
  for (const auto& harm : harms) {
    server_.downloads = 0;
    Store(big_);
    harm(FileOf(big));
    BlobFetcher fetcher = Fetch({big, other, last});
    EXPECT_EQ(HashOf(fetcher.Open(big)), big);
    EXPECT_EQ(HashOf(fetcher.Open(other)), other);
    EXPECT_EQ(Read(*fetcher.Open(last)), "last");
    EXPECT_EQ(server_.downloads, 2);
    ::unlink(FileOf(big).c_str());
  }
}

}  // namespace
}  // namespace gpulayer::client
