#include "worker/session/artifacts.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/behind.h"
#include "base/drop_folder.h"
#include "base/fs.h"
#include "base/random.h"
#include "gpulayer/v1/artifacts.grpc.pb.h"
#include "model/limits.h"
#include "tree/beneath.h"
#include "wire/convert.h"

namespace gpulayer::worker {
namespace {

namespace pb = ::gpulayer::v1;

constexpr std::size_t kPartOverhead = 64;  // hash, size, tags

Status CutOff(Cancel& cancel, const Status& status) {
  return cancel.requested() ? Cancelled("transfer broken off") : status;
}

// Takes the parts of a download in their order.
class Unpacker {
 public:
  explicit Unpacker(BlobCache::Sink& sink) : sink_(sink) {}

  Status Take(const pb::BlobPart& part) {
    if (left_ == 0 || !part.hash().empty()) {
      if (left_ != 0) return DataLoss("download: a blob ended early");
      GPULAYER_ASSIGN_OR_RETURN(const Hash hash, wire::HashFromBytes(part.hash(), "hash"));
      if (hash.empty() || part.size() < 0) return DataLoss("download: a part without a name");
      GPULAYER_RETURN_IF_ERROR(sink_.Begin(hash, part.size()));
      left_ = part.size();
      ++begun_;
      if (left_ == 0) return sink_.End();
    }
    const auto size = static_cast<std::int64_t>(part.data().size());
    if (size > left_) return DataLoss("download: a blob is longer than it was said to be");
    GPULAYER_RETURN_IF_ERROR(sink_.Append(part.data()));
    left_ -= size;
    return left_ == 0 && size > 0 ? sink_.End() : OkStatus();
  }

  std::size_t begun() const { return begun_; }

  Status Finish(std::size_t wanted) const {
    if (left_ != 0 || begun_ != wanted) return Unavailable("download: it ended early");
    return OkStatus();
  }

 private:
  BlobCache::Sink& sink_;
  std::int64_t left_ = 0;  // of the blob under way
  std::size_t begun_ = 0;
};

// `begun`: of how many a part came. `suspect`: the server looks at its copy of the first one.
Status DownloadSome(pb::Artifacts::Stub& stub, const ServerLink& link, const Hash* first,
                    std::size_t count, bool suspect, BlobCache::Sink& sink, Cancel& cancel,
                    std::size_t* begun) {
  grpc::ClientContext context;
  Authorise(link, context);
  const Cancel::Scope scope(cancel, [&] { context.TryCancel(); });
  pb::DownloadRequest request;
  for (std::size_t i = 0; i < count; ++i) request.add_hashes(wire::HashToBytes(first[i]));
  if (suspect) request.set_suspect(wire::HashToBytes(*first));
  const auto reader = stub.Download(&context, request);
  Unpacker unpacker(sink);
  Status bad;
  pb::DownloadChunk chunk;
  while (bad.ok() && reader->Read(&chunk)) {
    for (const pb::BlobPart& part : chunk.parts()) {
      bad = unpacker.Take(part);
      if (!bad.ok()) break;
    }
  }
  *begun = unpacker.begun();
  if (!bad.ok()) context.TryCancel();
  const Status end = FromGrpc(reader->Finish());
  if (!bad.ok()) return bad;
  if (!end.ok()) return CutOff(cancel, end.Prefixed("download"));
  return unpacker.Finish(count);
}

// Fills messages with parts, so that small files do not cost one each; what is full is sent while
// the next one is filled.
class Packer {
 public:
  explicit Packer(grpc::ClientWriter<pb::UploadChunk>& writer)
      : sender_([&writer](pb::UploadChunk& message) { return writer.Write(message); }) {}

  // UNAVAILABLE: the stream is broken; its own status says why.
  Status AddBytes(const Hash& hash, std::string_view data) {
    Begin(hash, static_cast<std::int64_t>(data.size()));
    if (data.empty()) return Added(0);
    while (!data.empty()) {
      const std::string_view piece = data.substr(0, limits::kBlobChunkBytes);
      Current()->mutable_data()->append(piece);
      data.remove_prefix(piece.size());
      GPULAYER_RETURN_IF_ERROR(Added(piece.size()));
    }
    return OkStatus();
  }

  Status AddFile(const tree::BlobFile& blob) {
    // Whatever has come there since it was hashed: no link, no FIFO to wait for.
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd,
                              OpenFile(blob.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    Begin(blob.hash, blob.size);
    if (blob.size == 0) return Added(0);
    std::int64_t left = blob.size;
    while (left > 0) {
      std::string& data = *Current()->mutable_data();
      const auto want =
          std::min<std::size_t>(limits::kBlobChunkBytes, static_cast<std::size_t>(left));
      data.resize(want);
      GPULAYER_ASSIGN_OR_RETURN(const std::size_t got, ReadSome(fd.get(), data.data(), want));
      if (got == 0) return DataLoss("upload " + blob.path + ": it became shorter");
      data.resize(got);
      left -= static_cast<std::int64_t>(got);
      GPULAYER_RETURN_IF_ERROR(Added(got));
    }
    return OkStatus();
  }

  // Waits until the transport has all of it.
  Status Finish() {
    GPULAYER_RETURN_IF_ERROR(Pass());
    return sender_.Flush() ? OkStatus() : Broken();
  }

 private:
  static Status Broken() { return Unavailable("upload: the stream broke"); }
  Status Pass() {
    part_ = nullptr;
    if (message_.parts_size() == 0) return OkStatus();
    const bool taken = sender_.Put(message_);
    message_.clear_parts();
    bytes_ = 0;
    return taken ? OkStatus() : Broken();
  }

  void Begin(const Hash& hash, std::int64_t size) {
    part_ = message_.add_parts();
    part_->set_hash(wire::HashToBytes(hash));
    part_->set_size(size);
    bytes_ += kPartOverhead;
  }
  // The part that takes the next bytes of the blob under way.
  pb::BlobPart* Current() {
    if (part_ == nullptr) {
      part_ = message_.add_parts();
      bytes_ += kPartOverhead;
    }
    return part_;
  }
  Status Added(std::size_t bytes) {
    part_ = nullptr;
    bytes_ += bytes;
    return bytes_ >= limits::kBlobChunkBytes ? Pass() : OkStatus();
  }

  Behind<pb::UploadChunk> sender_;
  pb::UploadChunk message_;
  pb::BlobPart* part_ = nullptr;
  std::size_t bytes_ = 0;
};

struct Missing {
  bool tree_complete = false;
  std::unordered_set<Hash> hashes;
};

Result<Missing> AskMissing(pb::Artifacts::Stub& stub, const ServerLink& link, const Hash& tree,
                           const std::vector<tree::BlobFile>& blobs, Cancel& cancel) {
  Missing missing;
  std::size_t at = 0;
  do {
    grpc::ClientContext context;
    Authorise(link, context);
    context.set_deadline(std::chrono::system_clock::now() + limits::kCallDeadline);
    const Cancel::Scope scope(cancel, [&] { context.TryCancel(); });
    pb::MissingRequest request;
    pb::MissingReply reply;
    if (at == 0) request.set_tree(wire::HashToBytes(tree));
    for (std::size_t n = 0; n < limits::kMaxHashesPerCall && at < blobs.size(); ++n, ++at) {
      request.add_hashes(wire::HashToBytes(blobs[at].hash));
    }
    const Status status = FromGrpc(stub.Missing(&context, request, &reply));
    if (!status.ok()) return CutOff(cancel, status.Prefixed("ask what the server lacks"));
    if (reply.tree_complete()) {
      missing.tree_complete = true;
      return missing;
    }
    for (const std::string& bytes : reply.hashes()) {
      GPULAYER_ASSIGN_OR_RETURN(const Hash hash, wire::HashFromBytes(bytes, "hashes"));
      missing.hashes.insert(hash);
    }
  } while (at < blobs.size());
  return missing;
}

// One stream: blobs if any, then the manifest if given.
Status UploadStream(pb::Artifacts::Stub& stub, const ServerLink& link,
                    const std::vector<const tree::BlobFile*>& blobs, const Hash& tree,
                    const std::string& manifest, Cancel& cancel) {
  grpc::ClientContext context;
  Authorise(link, context);
  const Cancel::Scope scope(cancel, [&] { context.TryCancel(); });
  pb::UploadReply reply;
  const auto writer = stub.Upload(&context, &reply);
  std::optional<Packer> packer;
  packer.emplace(*writer);
  Status bad;
  for (const tree::BlobFile* blob : blobs) {
    bad = packer->AddFile(*blob);
    if (!bad.ok()) break;
  }
  if (bad.ok()) bad = packer->AddBytes(tree, manifest);
  if (bad.ok()) bad = packer->Finish();
  const bool broken = bad.code() == StatusCode::kUnavailable;
  if (!bad.ok() && !broken) context.TryCancel();
  packer.reset();  // nothing is being written from here on
  if (bad.ok()) writer->WritesDone();
  const Status end = FromGrpc(writer->Finish());
  if (!bad.ok() && !broken) return bad;
  return end.ok() ? OkStatus() : CutOff(cancel, end.Prefixed("upload"));
}

Result<Hash> SendDropped(const ServerLink& link, const std::string& name, std::int64_t size,
                         Cancel& cancel) {
  const auto stub = pb::Artifacts::NewStub(link.channel);
  grpc::ClientContext context;
  Authorise(link, context);
  const Cancel::Scope scope(cancel, [&] { context.TryCancel(); });
  pb::UploadReply reply;
  const auto writer = stub->Upload(&context, &reply);
  pb::UploadChunk chunk;
  chunk.add_parts()->set_dropped(name);
  chunk.mutable_parts(0)->set_size(size);
  writer->Write(chunk);  // if the stream broke its end says so
  writer->WritesDone();
  const Status end = FromGrpc(writer->Finish());
  if (!end.ok() && cancel.requested()) return CutOff(cancel, end);
  // CANCELLED by the other side is no wish of ours: the bytes are sent then.
  if (!end.ok()) return Unavailable("hand over: " + end.message());
  if (reply.adopted_size() != 1) return Internal("hand over: the server did not say the hash");
  return wire::HashFromBytes(reply.adopted(0), "adopted");
}

}  // namespace

Status DownloadBlobs(const ServerLink& link, const std::vector<Hash>& hashes, BlobCache::Sink& sink,
                     Cancel& cancel) {
  const auto stub = pb::Artifacts::NewStub(link.channel);
  std::size_t suspect = hashes.size();
  for (std::size_t at = 0; at < hashes.size();) {
    const std::size_t count = std::min(limits::kMaxHashesPerCall, hashes.size() - at);
    std::size_t begun = 0;
    const Status done =
        DownloadSome(*stub, link, &hashes[at], count, at == suspect, sink, cancel, &begun);
    if (done.ok()) {
      at += count;
      continue;
    }
    // What came damaged is asked for once more, and the server looks at its own copy before.
    const std::size_t damaged = begun > 0 ? at + begun - 1 : at;
    if (done.code() != StatusCode::kDataLoss || damaged == suspect || begun == 0) return done;
    at = suspect = damaged;
  }
  return OkStatus();
}

Result<tree::HashedFile> HandOver(const ServerLink& link, int root, const std::string& path,
                                  Cancel& cancel) {
  const DropFolder::Place place = link.drop->Get();
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd drop, OpenDropFolder(place.dir, place.proof));
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd file, tree::OpenRegular(root, path));
  struct stat st = {};
  if (fstat(file.get(), &st) != 0) return ErrnoStatus("stat " + path, errno);
  // What the program linked elsewhere may be written to there.
  if (st.st_nlink != 1 || st.st_uid != geteuid()) {
    return FailedPrecondition("hand over " + path + ": it has names elsewhere");
  }
  const std::string name = RandomHex(16);
  GPULAYER_RETURN_IF_ERROR(LinkInto(file.get(), drop.get(), name));
  const Result<Hash> hash = SendDropped(link, name, st.st_size, cancel);
  if (!hash.ok()) {
    unlinkat(drop.get(), name.c_str(), 0);  // if the server did not take it
    return hash.status();
  }
  return tree::HashedFile{*hash, tree::StampOf(st)};
}

Status UploadTree(const ServerLink& link, const Hash& tree, const std::string& manifest,
                  const std::vector<tree::BlobFile>& blobs, Cancel& cancel) {
  const auto stub = pb::Artifacts::NewStub(link.channel);
  GPULAYER_ASSIGN_OR_RETURN(const Missing missing, AskMissing(*stub, link, tree, blobs, cancel));
  if (missing.tree_complete) return OkStatus();
  std::vector<const tree::BlobFile*> lacking;
  for (const tree::BlobFile& blob : blobs) {
    if (missing.hashes.contains(blob.hash)) lacking.push_back(&blob);
  }
  return UploadStream(*stub, link, lacking, tree, manifest, cancel);
}

}  // namespace gpulayer::worker
