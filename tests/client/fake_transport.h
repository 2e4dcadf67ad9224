// A server that does what the test says: answers in a row, streams in pieces, failures in between.
#ifndef GPULAYER_TESTS_CLIENT_FAKE_TRANSPORT_H_
#define GPULAYER_TESTS_CLIENT_FAKE_TRANSPORT_H_

#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/hash.h"
#include "client/transport.h"
#include "model/limits.h"

namespace gpulayer::client {

template <typename T>
class FakeStream : public ReadStream<T> {
 public:
  FakeStream(std::vector<T> messages, Status end)
      : messages_(messages.begin(), messages.end()), end_(std::move(end)) {}
  Result<std::optional<T>> Read() override {
    if (messages_.empty()) {
      if (!end_.ok()) return end_;
      return std::optional<T>();
    }
    T message = std::move(messages_.front());
    messages_.pop_front();
    return std::optional<T>(std::move(message));
  }
  void Break() override {}  // no Read of this one waits

 private:
  std::deque<T> messages_;
  const Status end_;
};

// Keeps blobs by hash, as the real one does.
class FakeTransport : public Transport {
 public:
  using Answer =
      std::function<Status(const google::protobuf::MessageLite&, google::protobuf::MessageLite*)>;

  Status Call(Method method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite* reply, const CallOptions&) override {
    ++calls[method];
    if (!failures[method].empty()) {
      const Status status = failures[method].front();
      failures[method].pop_front();
      return status;
    }
    if (answers.count(method) > 0) return answers[method](request, reply);
    if (method == Method::kMissing) {
      return Missing(static_cast<const v1::MissingRequest&>(request),
                     static_cast<v1::MissingReply*>(reply));
    }
    return OkStatus();
  }
  std::unique_ptr<ReadStream<v1::LogChunk>> ReadLogs(const v1::ReadLogsRequest&,
                                                     InterruptPtr) override {
    return nullptr;
  }
  std::unique_ptr<ReadStream<v1::GetJobReply>> Watch(const v1::WatchRequest&,
                                                     InterruptPtr) override {
    return nullptr;
  }
  // One part a message, `part_bytes` long; a big blob as a file in `store` if there is one and the
  // caller would have it so. Ends early with `download_break` after so many parts, once.
  std::unique_ptr<ReadStream<v1::DownloadChunk>> Download(const v1::DownloadRequest& request,
                                                          InterruptPtr) override {
    ++downloads;
    suspect = request.suspect();
    std::vector<v1::DownloadChunk> chunks;
    for (const std::string& hash : request.hashes()) {
      const std::string& data = blobs[hash];
      std::size_t at = 0;
      do {
        v1::DownloadChunk chunk;
        v1::BlobPart* part = chunk.add_parts();
        if (at == 0) {
          part->set_hash(hash);
          part->set_size(static_cast<std::int64_t>(data.size()));
        }
        if (request.files() && !store.empty() && part->size() >= limits::kHandOverBytes) {
          part->set_stored_in(store);
          at = data.size();
        } else {
          part->set_data(data.substr(at, part_bytes));
          at += part_bytes;
        }
        if (break_after > 0 && static_cast<int>(chunks.size()) == break_after) {
          break_after = 0;
          return std::make_unique<FakeStream<v1::DownloadChunk>>(
              std::move(chunks), Status(StatusCode::kUnavailable, "cut"));
        }
        chunks.push_back(std::move(chunk));
      } while (at < data.size());
    }
    return std::make_unique<FakeStream<v1::DownloadChunk>>(std::move(chunks), OkStatus());
  }
  std::unique_ptr<UploadStream> Upload(InterruptPtr) override {
    ++uploads;
    return std::make_unique<FakeUpload>(this);
  }

  std::unique_ptr<ExecStream> Exec(InterruptPtr) override { return std::move(exec); }

  Status Missing(const v1::MissingRequest& request, v1::MissingReply* reply) {
    if (!drop.empty()) {
      reply->mutable_drop()->set_dir(drop);
      reply->mutable_drop()->set_proof("proof");
    }
    if (!request.tree().empty()) reply->set_tree_complete(blobs.count(request.tree()) > 0);
    for (const std::string& hash : request.hashes()) {
      if (blobs.count(hash) == 0) reply->add_hashes(hash);
    }
    return OkStatus();
  }

  std::map<Method, Answer> answers;
  std::map<Method, std::deque<Status>> failures;  // come first, one a call
  std::map<Method, int> calls;
  std::map<std::string, std::string> blobs;
  std::vector<std::string> received;  // hashes in order
  Status upload_status;
  int uploads = 0;
  std::string suspect;  // of the last download
  int downloads = 0;
  int break_after = 0;
  std::size_t part_bytes = 4;
  std::string store;
  std::string drop;  // a drop folder with the file "proof"; empty: none
  bool refuse_dropped = false;
  int handed_over = 0;
  std::unique_ptr<ExecStream> exec;  // of the next Exec

 private:
  class FakeUpload : public UploadStream {
   public:
    explicit FakeUpload(FakeTransport* owner) : owner_(owner) {}
    bool Write(const v1::UploadChunk& chunk) override {
      for (const v1::BlobPart& part : chunk.parts()) {
        if (!part.hash().empty()) {
          hash_ = part.hash();
          order_.push_back(hash_);
        }
        if (!part.dropped().empty()) {
          const std::string path = JoinPath(owner_->drop, part.dropped());
          const Result<std::string> file = ReadFile(path);
          if (owner_->refuse_dropped || !file.ok() || Hash::Of(*file).bytes() != part.hash()) {
            owner_->upload_status =
                owner_->refuse_dropped ? FailedPrecondition("no leases") : DataLoss("it changed");
            return false;
          }
          content_[hash_] = *file;
          ::unlink(path.c_str());
          ++owner_->handed_over;
          continue;
        }
        content_[hash_] += part.data();
      }
      return true;
    }
    Result<v1::UploadReply> Finish() override {
      if (!owner_->upload_status.ok()) return std::exchange(owner_->upload_status, OkStatus());
      for (const auto& [hash, data] : content_) owner_->blobs[hash] = data;
      owner_->received.insert(owner_->received.end(), order_.begin(), order_.end());
      return v1::UploadReply();
    }

   private:
    FakeTransport* const owner_;
    std::string hash_;
    std::map<std::string, std::string> content_;
    std::vector<std::string> order_;
  };
};

}  // namespace gpulayer::client

#endif  // GPULAYER_TESTS_CLIENT_FAKE_TRANSPORT_H_
