#include "client/ship.h"

#include <gtest/gtest.h>

#include "base/fs.h"
#include "client/fake_transport.h"
#include "client/fetch.h"
#include "support/temp_dir.h"
#include "wire/tree.h"

namespace gpulayer::client {
namespace {

class ShipTest : public ::testing::Test {
 protected:
  ShipTest() {
    EXPECT_TRUE(MakeDirs(root()).ok());
    options_.limits = {1 << 20, 100};
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
}

}  // namespace
}  // namespace gpulayer::client
