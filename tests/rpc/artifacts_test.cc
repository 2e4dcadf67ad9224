#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/random.h"
#include "model/blob_file.h"
#include "model/tree.h"
#include "rpc/fake_worker.h"
#include "rpc/fixture.h"
#include "wire/tree.h"

namespace gpulayer::testing {
namespace {

using ::testing::HasSubstr;

class ArtifactsTest : public BothTransports {
 protected:
  static std::string Bytes(const Hash& hash) { return std::string(hash.bytes()); }

  static void AddWhole(const std::string& data, v1::UploadChunk* chunk,
                       const std::string& name = "") {
    v1::BlobPart* part = chunk->add_parts();
    part->set_hash(name.empty() ? Bytes(Hash::Of(data)) : name);
    part->set_size(static_cast<std::int64_t>(data.size()));
    part->set_data(data);
  }

  grpc::Status Upload(const std::vector<v1::UploadChunk>& chunks, v1::UploadReply* reply) {
    Call call(client_);
    auto stream = artifacts_->Upload(&call, reply);
    for (const v1::UploadChunk& chunk : chunks) {
      if (!stream->Write(chunk)) break;
    }
    stream->WritesDone();
    return stream->Finish();
  }

  v1::MissingReply Missing(const v1::MissingRequest& request) {
    v1::MissingReply reply;
    Call call(client_);
    const grpc::Status status = artifacts_->Missing(&call, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }
};
GPULAYER_BOTH_TRANSPORTS(ArtifactsTest);

TEST_P(ArtifactsTest, ManyBlobsUpAndDown) {
  std::vector<std::string> blobs = {"", "small", std::string(700'000, 'b'),
                                    std::string(256 << 10, 'c')};
  std::vector<v1::UploadChunk> chunks(1);
  for (const std::string& blob : blobs) {
    std::size_t at = 0;
    do {
      const std::string piece = blob.substr(at, 200'000);
      v1::BlobPart* part = chunks.back().add_parts();
      if (at == 0) {
        part->set_hash(Bytes(Hash::Of(blob)));
        part->set_size(static_cast<std::int64_t>(blob.size()));
      }
      part->set_data(piece);
      at += piece.size();
      chunks.emplace_back();
    } while (at < blob.size());
  }
  v1::UploadReply reply;
  ASSERT_TRUE(Upload(chunks, &reply).ok());
  EXPECT_EQ(reply.blobs(), 4);
  v1::MissingRequest missing;
  v1::DownloadRequest download;
  for (const std::string& blob : blobs) {
    missing.add_hashes(Bytes(Hash::Of(blob)));
    download.add_hashes(Bytes(Hash::Of(blob)));
  }
  EXPECT_EQ(Missing(missing).hashes_size(), 0);

  Call call(client_);
  auto stream = artifacts_->Download(&call, download);
  std::vector<std::string> got;
  v1::DownloadChunk chunk;
  while (stream->Read(&chunk)) {
    for (const v1::BlobPart& part : chunk.parts()) {
      if (!part.hash().empty()) got.emplace_back();
      got.back() += part.data();
    }
  }
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_EQ(got, blobs);
}

TEST_P(ArtifactsTest, WhoIsHereMayBeToldWhereABigBlobLies) {
  const std::string big = RandomBytes(9'000'000);
  std::vector<v1::UploadChunk> chunks;
  for (std::size_t at = 0; at < big.size(); at += 3'000'000) {
    v1::BlobPart* part = chunks.emplace_back().add_parts();
    if (at == 0) part->set_hash(Bytes(Hash::Of(big)));
    if (at == 0) part->set_size(static_cast<std::int64_t>(big.size()));
    part->set_data(big.substr(at, 3'000'000));
  }
  AddWhole("small", &chunks.emplace_back());
  v1::UploadReply stored;
  ASSERT_TRUE(Upload(chunks, &stored).ok());
  v1::DownloadRequest request;
  request.add_hashes(Bytes(Hash::Of(big)));
  request.add_hashes(Bytes(Hash::Of("small")));
  for (const bool files : {false, true}) {
    request.set_files(files);
    Call call(client_);
    auto stream = artifacts_->Download(&call, request);
    std::vector<v1::BlobPart> parts;
    v1::DownloadChunk chunk;
    while (stream->Read(&chunk))
      parts.insert(parts.end(), chunk.parts().begin(), chunk.parts().end());
    ASSERT_TRUE(stream->Finish().ok());
    ASSERT_EQ(parts.back().data(), "small");
    EXPECT_EQ(parts[0].size(), 9'000'000);
    if (files) {
      ASSERT_EQ(parts.size(), 2u);
      EXPECT_EQ(parts[0].data(), "");
      EXPECT_EQ(*ReadFile(JoinPath(parts[0].stored_in(), BlobFileName(Hash::Of(big)))), big);
    } else {
      EXPECT_GT(parts.size(), 2u);
    }
  }
}

TEST_P(ArtifactsTest, ADamagedBlobIsFoundByWhoGotItAndMendedByWhoSendsItAgain) {
  const std::string data = RandomBytes(9'000'000);
  const auto send = [&] {
    std::vector<v1::UploadChunk> chunks;
    for (std::size_t at = 0; at < data.size(); at += 3'000'000) {
      v1::BlobPart* part = chunks.emplace_back().add_parts();
      if (at == 0) part->set_hash(Bytes(Hash::Of(data)));
      if (at == 0) part->set_size(static_cast<std::int64_t>(data.size()));
      part->set_data(data.substr(at, 3'000'000));
    }
    v1::UploadReply stored;
    return Upload(chunks, &stored);
  };
  ASSERT_TRUE(send().ok());
  v1::DownloadRequest request;
  request.add_hashes(Bytes(Hash::Of(data)));
  request.set_files(true);
  std::string store;
  const auto fetch = [&] {
    Call call(client_);
    auto stream = artifacts_->Download(&call, request);
    v1::DownloadChunk chunk;
    while (stream->Read(&chunk)) store = chunk.parts(0).stored_in();
    return stream->Finish();
  };
  ASSERT_TRUE(fetch().ok());
  request.set_suspect(Bytes(Hash::Of(data)));
  ASSERT_TRUE(fetch().ok());  // nothing is wrong with it
  {
    const Result<UniqueFd> file = OpenFile(JoinPath(store, BlobFileName(Hash::Of(data))), O_WRONLY);
    ASSERT_TRUE(file.ok() && WriteAll(file->get(), "poison").ok());
  }
  v1::MissingRequest missing;
  missing.add_hashes(Bytes(Hash::Of(data)));
  EXPECT_EQ(Missing(missing).hashes_size(), 0);
  const grpc::Status damaged = fetch();
  EXPECT_EQ(damaged.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(damaged.error_message(), HasSubstr("the server's copy of it is damaged"));
  request.clear_suspect();
  EXPECT_EQ(fetch().error_code(), grpc::StatusCode::DATA_LOSS);  // and stays so
  EXPECT_EQ(Missing(missing).hashes_size(), 1);
  ASSERT_TRUE(send().ok());
  EXPECT_TRUE(fetch().ok());
}

TEST_P(ArtifactsTest, ContentThatDiffersFromItsNameIsNotTaken) {
  v1::UploadChunk chunk;
  AddWhole("the wrong content", &chunk, Bytes(Hash::Of("the right one")));
  v1::UploadReply reply;
  EXPECT_EQ(Upload({chunk}, &reply).error_code(), grpc::StatusCode::DATA_LOSS);
  v1::MissingRequest missing;
  missing.add_hashes(Bytes(Hash::Of("the right one")));
  EXPECT_EQ(Missing(missing).hashes_size(), 1);
}

TEST_P(ArtifactsTest, BrokenStreamsAreRefused) {
  v1::UploadReply reply;
  v1::UploadChunk half;
  half.add_parts()->set_hash(Bytes(Hash::Of("abcdef")));
  half.mutable_parts(0)->set_size(6);
  half.mutable_parts(0)->set_data("abc");
  EXPECT_EQ(Upload({half}, &reply).error_code(), grpc::StatusCode::DATA_LOSS);
  v1::UploadChunk nameless;
  nameless.add_parts()->set_data("abc");
  EXPECT_EQ(Upload({nameless}, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  half.mutable_parts(0)->set_data("abcdefgh");
  EXPECT_EQ(Upload({half}, &reply).error_code(), grpc::StatusCode::DATA_LOSS);
  half.mutable_parts(0)->set_hash("short");
  EXPECT_EQ(Upload({half}, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(Upload({}, &reply).ok());
}

TEST_P(ArtifactsTest, ATreeIsCompleteOnlyWithAllItsFiles) {
  Tree tree;
  tree.entries.push_back({"a.txt", EntryType::kFile, 0644, 5, Hash::Of("hello"), ""});
  const std::string manifest = wire::SerializeTree(tree);
  v1::MissingRequest request;
  request.set_tree(Bytes(Hash::Of(manifest)));
  EXPECT_FALSE(Missing(request).tree_complete());
  v1::UploadReply reply;
  v1::UploadChunk first;
  AddWhole(manifest, &first);
  ASSERT_TRUE(Upload({first}, &reply).ok());
  EXPECT_FALSE(Missing(request).tree_complete());
  v1::JobSpec spec = Spec({"true"}, "t");
  spec.set_source_tree(Bytes(Hash::Of(manifest)));
  v1::SubmitReply submitted;
  const grpc::Status refused = TrySubmit(spec, &submitted);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr(Hash::Of("hello").hex()));
  v1::UploadChunk second;
  AddWhole("hello", &second);
  ASSERT_TRUE(Upload({second}, &reply).ok());
  EXPECT_TRUE(Missing(request).tree_complete());
  EXPECT_TRUE(TrySubmit(spec, &submitted).ok());
}

TEST_P(ArtifactsTest, ATreeWithAPathThatEscapesIsRefused) {
  Tree tree;
  tree.entries.push_back({"../evil", EntryType::kFile, 0644, 0, Hash::Of(""), ""});
  const std::string manifest = wire::SerializeTree(tree);
  v1::UploadChunk chunk;
  AddWhole(manifest, &chunk);
  AddWhole("", &chunk);
  v1::UploadReply reply;
  ASSERT_TRUE(Upload({chunk}, &reply).ok());
  v1::JobSpec spec = Spec({"true"}, "evil");
  spec.set_source_tree(Bytes(Hash::Of(manifest)));
  v1::SubmitReply submitted;
  EXPECT_EQ(TrySubmit(spec, &submitted).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_P(ArtifactsTest, WhoIsHereHandsFilesOver) {
  const std::string worker_bearer =
      GetParam() == Transport::kTls ? Credential(Role::kWorker, FakeWorker::kId) : "";
  FakeWorker worker(channel_, worker_bearer);
  ASSERT_TRUE(worker.Greet());
  const std::string drop = worker.welcome().drop().dir();
  const v1::DropFolder for_clients = Missing({}).drop();
  EXPECT_EQ(for_clients.dir(), drop);
  EXPECT_EQ(for_clients.proof(), worker.welcome().drop().proof());
  ASSERT_TRUE(PathExists(JoinPath(drop, for_clients.proof())));
  for (const std::string& bearer : {worker_bearer, client_}) {
    const std::string content = RandomBytes(20'000'000);
    const std::string name = RandomHex(16);
    v1::UploadChunk chunk;
    AddWhole("before", &chunk);
    v1::BlobPart* part = chunk.add_parts();
    part->set_dropped(name);
    part->set_size(20'000'000);
    AddWhole("after", &chunk);
    v1::UploadReply reply;
    const auto upload = [&] {
      Call call(bearer);
      auto stream = artifacts_->Upload(&call, &reply);
      stream->Write(chunk);
      stream->WritesDone();
      return stream->Finish();
    };
    const auto lay = [&] {
      return WriteFileAtomic(JoinPath(drop, name), content, 0600, Durability::kNone).ok();
    };
    v1::MissingRequest missing;
    for (const std::string& blob : {std::string("before"), content, std::string("after")}) {
      missing.add_hashes(Bytes(Hash::Of(blob)));
    }
    // Another content than was said does not become a blob, under whatever name.
    part->set_hash(Bytes(Hash::Of("another")));
    ASSERT_TRUE(lay());
    EXPECT_EQ(upload().error_code(), grpc::StatusCode::DATA_LOSS);
    EXPECT_FALSE(PathExists(JoinPath(drop, name)));
    EXPECT_GT(Missing(missing).hashes_size(), 0);
    part->clear_hash();
    ASSERT_TRUE(lay());
    const grpc::Status status = upload();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.blobs(), 3);
    ASSERT_EQ(reply.adopted_size(), 1);
    EXPECT_EQ(reply.adopted(0), Bytes(Hash::Of(content)));
    EXPECT_FALSE(PathExists(JoinPath(drop, name)));
    EXPECT_EQ(Missing(missing).hashes_size(), 0);
    EXPECT_EQ(upload().error_code(), grpc::StatusCode::NOT_FOUND);
    part->set_data("data");
    EXPECT_EQ(upload().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_P(ArtifactsTest, DownloadNamesTheFirstThatIsMissing) {
  v1::DownloadRequest request;
  request.add_hashes(Bytes(Hash::Of("nowhere")));
  Call call(client_);
  auto stream = artifacts_->Download(&call, request);
  v1::DownloadChunk chunk;
  EXPECT_FALSE(stream->Read(&chunk));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr(Hash::Of("nowhere").hex()));
}

}  // namespace
}  // namespace gpulayer::testing
