#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "gpulayer/v1/artifacts.grpc.pb.h"
#include "model/limits.h"
#include "server/rpc/pull_stream.h"
#include "server/rpc/respond.h"
#include "server/rpc/services.h"
#include "server/rpc/trees.h"
#include "wire/convert.h"

namespace gpulayer::rpc {
namespace {

namespace pb = ::gpulayer::v1;
using grpc::CallbackServerContext;

template <typename Hashes>
Result<std::vector<Hash>> ToHashes(const Hashes& in, const char* what) {
  if (static_cast<std::size_t>(in.size()) > limits::kMaxHashesPerCall) {
    return InvalidArgument(std::string(what) + ": " + std::to_string(in.size()) +
                           " hashes; a call takes at most " +
                           std::to_string(limits::kMaxHashesPerCall));
  }
  std::vector<Hash> out;
  out.reserve(static_cast<std::size_t>(in.size()));
  for (const std::string& bytes : in) {
    Result<Hash> hash = Hash::FromBytes(bytes);
    if (!hash.ok()) return hash.status().Prefixed(what);
    out.push_back(*hash);
  }
  return out;
}

// Takes blobs from a caller. The next message is read only once the last one is on its way to the
// disk, so memory stays at two messages whatever the sender does.
class UploadStream final : public grpc::ServerReadReactor<pb::UploadChunk>,
                           public OpenStream,
                           public std::enable_shared_from_this<UploadStream> {
 public:
  UploadStream(Parts& parts, pb::UploadReply* reply) : parts_(parts), reply_(reply) {}

  static grpc::ServerReadReactor<pb::UploadChunk>* Launch(std::shared_ptr<UploadStream> stream,
                                                          const std::string& token_id) {
    UploadStream* raw = stream.get();
    raw->self_ = stream;
    raw->StartRead(&raw->read_);  // first: once it is known to others it may be ended
    raw->parts_.streams.Add(stream, token_id);
    return raw;
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        MutexLock lock(mutex_);
        no_more_ = true;
        if (finished_ || working_) return;  // the work's end sees it
        working_ = true;
      }
      return PostWork();
    }
    {
      MutexLock lock(mutex_);
      if (finished_ || end_) return;
      if (full_) {  // the disk has the other one still: this waits in read_
        waiting_ = true;
        return;
      }
      written_.Swap(&read_);
      full_ = true;
      working_ = true;  // at once, so that End() does not finish before the read below is started
    }
    StartRead(&read_);
    PostWork();
  }

  void OnCancel() override { End(Cancelled("the caller is gone")); }

  void End(const Status& why) override {
    {
      MutexLock lock(mutex_);
      if (!end_) end_ = why;
      if (finished_ || working_) return;  // the work's end sees it
      finished_ = true;
    }
    Finish(ToGrpc(why));
  }

  void OnDone() override {
    parts_.streams.Remove(this);
    self_.reset();
  }

 private:
  // REQUIRES: working_ was set by the caller.
  void PostWork() {
    const Status posted = parts_.io.Post([self = shared_from_this()] { self->Work(); });
    if (!posted.ok()) Conclude(Refusal(posted));
  }

  void Work() {
    for (;;) {
      bool full = false;
      std::optional<Status> end;
      {
        MutexLock lock(mutex_);
        full = full_;
        end = end_;
      }
      if (end) return Conclude(*end);
      if (!full) return Conclude(Commit());  // only reached when there is no more
      const Status taken = Take(written_);
      if (!taken.ok()) return Conclude(taken);
      if (adopting_) return PostWork();  // it may take long: others have their turn between
      bool read_on = false;
      bool rest = false;
      {
        MutexLock lock(mutex_);
        full_ = waiting_;
        if (waiting_) {
          written_.Swap(&read_);
          waiting_ = false;
          read_on = true;
        }
        if (end_) continue;
        rest = !full_ && !no_more_;
        if (rest) working_ = false;
      }
      if (read_on) StartRead(&read_);
      if (rest) return;
    }
  }

  Status Take(const pb::UploadChunk& chunk) {
    if (!writer_) writer_ = parts_.blobs.NewWriter();
    for (; part_ < chunk.parts_size(); ++part_) {
      const pb::BlobPart& part = chunk.parts(part_);
      if (!part.dropped().empty()) {
        GPULAYER_RETURN_IF_ERROR(Adopt(part));
        if (adopting_) return OkStatus();  // goes on here
        continue;
      }
      if (!part.hash().empty()) {
        if (left_ > 0)
          return DataLoss("upload: a blob began before the one ahead of it was complete");
        GPULAYER_ASSIGN_OR_RETURN(const Hash hash,
                                  wire::HashFromBytes(part.hash(), "upload: hash"));
        if (part.size() < 0) return InvalidArgument("upload: a negative size");
        left_ = part.size();
        open_ = true;
        GPULAYER_RETURN_IF_ERROR(writer_->Begin(hash, left_));
      } else if (!open_) {
        return InvalidArgument("upload: the first part of a blob must name it");
      }
      if (static_cast<std::int64_t>(part.data().size()) > left_) {
        return DataLoss("upload: more bytes than the blob was said to have");
      }
      if (!part.data().empty()) GPULAYER_RETURN_IF_ERROR(writer_->Append(part.data()));
      left_ -= static_cast<std::int64_t>(part.data().size());
      bytes_ += static_cast<std::int64_t>(part.data().size());
      if (left_ == 0) {
        GPULAYER_RETURN_IF_ERROR(writer_->End());
        ++blobs_;
        open_ = false;
      }
    }
    part_ = 0;
    return OkStatus();
  }

  // A piece of it; `adopting_` says whether that was all.
  Status Adopt(const pb::BlobPart& part) {
    if (!adopting_) {
      if (open_) return DataLoss("upload: a blob began before the one ahead of it was complete");
      if (!part.data().empty()) {
        return InvalidArgument("upload: a file that is handed over comes without data");
      }
      GPULAYER_RETURN_IF_ERROR(writer_->Adopt(part.dropped(), part.size()));
      adopting_ = true;
    }
    GPULAYER_ASSIGN_OR_RETURN(const Hash hash, writer_->AdoptMore());
    if (hash.empty()) return OkStatus();
    adopting_ = false;
    if (!part.hash().empty() && part.hash() != hash.bytes()) {
      return DataLoss("upload: the file that was handed over has the hash " + hash.hex());
    }
    ++blobs_;
    reply_->add_adopted(std::string(hash.bytes()));
    return OkStatus();
  }

  Status Commit() {
    if (open_) return DataLoss("upload: it ended within a blob");
    if (writer_) GPULAYER_RETURN_IF_ERROR(writer_->Commit());
    parts_.blobs_received += blobs_;
    parts_.blob_bytes_received += bytes_;
    reply_->set_blobs(blobs_);
    reply_->set_bytes(bytes_);
    return OkStatus();
  }

  void Conclude(const Status& status) {
    writer_.reset();
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      finished_ = true;
    }
    Finish(ToGrpc(status));
  }

  Parts& parts_;
  pb::UploadReply* const reply_;
  std::shared_ptr<UploadStream> self_;
  pb::UploadChunk read_;  // gRPC's, or waiting

  // The work's alone.
  pb::UploadChunk written_;
  std::unique_ptr<BlobStore::Writer> writer_;
  int part_ = 0;  // of written_: the next one
  bool adopting_ = false;
  bool open_ = false;
  std::int64_t left_ = 0;
  std::int64_t blobs_ = 0;
  std::int64_t bytes_ = 0;

  Mutex mutex_;
  bool full_ GPULAYER_GUARDED_BY(mutex_) = false;     // written_ is to be taken
  bool waiting_ GPULAYER_GUARDED_BY(mutex_) = false;  // read_ is full and no read is outstanding
  bool no_more_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool working_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool finished_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::optional<Status> end_ GPULAYER_GUARDED_BY(mutex_);
};

class DownloadStream final : public PullStream<pb::DownloadChunk> {
 public:
  // `files`: of big blobs the caller is told where they lie.
  // `suspect`: looked at first.
  DownloadStream(Parts& parts, std::vector<Hash> hashes, bool files, const Hash& suspect)
      : parts_(parts), hashes_(std::move(hashes)), files_(files) {
    if (!suspect.empty()) checker_ = parts_.blobs.NewChecker(suspect);
  }

 protected:
  Status Schedule(std::function<void()> job) override { return parts_.io.Post(std::move(job)); }

  Step Produce(pb::DownloadChunk* out) override {
    if (!checked_) {
      if (checker_) {
        const Result<bool> good = checker_->CheckMore();
        if (good.status().code() == StatusCode::kDataLoss) {
          parts_.trees.Forget();
          return Step::Finish(good.status().Prefixed("download"));
        }
        if (good.ok() && !*good) return Step::Again();
        checker_.reset();
      }
      const std::vector<Hash> missing = parts_.blobs.Missing(hashes_);
      if (!missing.empty()) {
        const Status lacking = parts_.blobs.Open(missing.front()).status();
        if (lacking.code() == StatusCode::kDataLoss) {
          return Step::Finish(lacking.Prefixed("download"));
        }
        return Step::Finish(
            NotFound("download: blob " + missing.front().hex() + " is not on the server"));
      }
      checked_ = true;
    }
    std::size_t room = limits::kBlobChunkBytes;
    while (room > 0 && out->parts_size() < kMaxParts && (blob_ || next_ < hashes_.size())) {
      if (const Status added = AddPart(out, &room); !added.ok())
        return Step::Finish(added.Prefixed("download"));
    }
    return out->parts_size() > 0 ? Step::Write() : Step::Finish(OkStatus());
  }

 private:
  static constexpr int kMaxParts = 1024;  // of empty files

  Status AddPart(pb::DownloadChunk* out, std::size_t* room) {
    pb::BlobPart* part = out->add_parts();
    if (!blob_) {
      const Hash& hash = hashes_[next_++];
      GPULAYER_ASSIGN_OR_RETURN(blob_, parts_.blobs.Open(hash));
      left_ = blob_->size;
      part->set_hash(std::string(hash.bytes()));
      part->set_size(left_);
      if (files_ && left_ >= limits::kHandOverBytes) {
        part->set_stored_in(parts_.blobs.folder());
        blob_.reset();
        return OkStatus();
      }
    }
    const auto size =
        static_cast<std::size_t>(std::min<std::int64_t>(left_, static_cast<std::int64_t>(*room)));
    std::string* data = part->mutable_data();
    data->resize(size);
    std::size_t filled = 0;
    while (filled < size) {
      GPULAYER_ASSIGN_OR_RETURN(const std::size_t n,
                                ReadSome(blob_->fd.get(), data->data() + filled, size - filled));
      if (n == 0) return DataLoss("a blob is shorter on disk than it was");
      filled += n;
    }
    left_ -= static_cast<std::int64_t>(size);
    *room -= size;
    if (left_ == 0) blob_.reset();
    return OkStatus();
  }

  Parts& parts_;
  const std::vector<Hash> hashes_;
  const bool files_;
  std::unique_ptr<BlobStore::Checker> checker_;  // of the suspect; null: that is done
  bool checked_ = false;
  std::size_t next_ = 0;
  std::optional<BlobStore::OpenBlob> blob_;
  std::int64_t left_ = 0;
};

class ArtifactsService final : public pb::Artifacts::CallbackService {
 public:
  explicit ArtifactsService(Parts& parts) : parts_(parts) {}

  grpc::ServerUnaryReactor* Missing(CallbackServerContext* context,
                                    const pb::MissingRequest* request,
                                    pb::MissingReply* reply) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Artifacts.Missing");
    if (!caller.ok()) return FinishNow(context, caller.status());
    Result<std::vector<Hash>> hashes = ToHashes(request->hashes(), "missing");
    if (!hashes.ok()) return FinishNow(context, hashes.status());
    Result<Hash> tree = wire::HashFromBytes(request->tree(), "missing: tree");
    if (!tree.ok()) return FinishNow(context, tree.status());
    if (IsOnThisMachine(*context)) {
      reply->mutable_drop()->set_dir(parts_.blobs.drop_folder().dir);
      reply->mutable_drop()->set_proof(parts_.blobs.drop_folder().proof);
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    auto responder = std::make_shared<Responder>(reactor);
    const Status posted =
        parts_.io.Post([this, tree = *tree, hashes = *std::move(hashes), reply, responder] {
          if (!tree.empty()) {
            const Status here = parts_.trees.CheckIsHere(tree);
            if (!here.ok() && here.code() != StatusCode::kFailedPrecondition)
              return responder->Finish(here);
            reply->set_tree_complete(here.ok());
          }
          for (const Hash& hash : parts_.blobs.Missing(hashes))
            reply->add_hashes(std::string(hash.bytes()));
          responder->Finish(OkStatus());
        });
    if (!posted.ok()) responder->Finish(Refusal(posted));
    return reactor;
  }

  grpc::ServerReadReactor<pb::UploadChunk>* Upload(CallbackServerContext* context,
                                                   pb::UploadReply* reply) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Artifacts.Upload");
    if (!caller.ok()) return new Refused<grpc::ServerReadReactor<pb::UploadChunk>>(caller.status());
    return UploadStream::Launch(std::make_shared<UploadStream>(parts_, reply), caller->token_id);
  }

  grpc::ServerWriteReactor<pb::DownloadChunk>* Download(
      CallbackServerContext* context, const pb::DownloadRequest* request) override {
    using Reactor = grpc::ServerWriteReactor<pb::DownloadChunk>;
    Result<Principal> caller = parts_.guard.Admit(*context, "Artifacts.Download");
    if (!caller.ok()) return new Refused<Reactor>(caller.status());
    Result<std::vector<Hash>> hashes = ToHashes(request->hashes(), "download");
    if (!hashes.ok()) return new Refused<Reactor>(hashes.status());
    Result<Hash> suspect = wire::HashFromBytes(request->suspect(), "download: suspect");
    if (!suspect.ok()) return new Refused<Reactor>(suspect.status());
    const bool files = request->files() && IsOnThisMachine(*context);
    return DownloadStream::Launch(
        std::make_shared<DownloadStream>(parts_, *std::move(hashes), files, *suspect),
        parts_.streams, caller->token_id);
  }

 private:
  Parts& parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeArtifactsService(Parts& parts) {
  return std::make_unique<ArtifactsService>(parts);
}

}  // namespace gpulayer::rpc
