// A server as a worker sees it, without a queue: the test itself assigns and stops, the fake
// welcomes, keeps logs and blobs, and acknowledges.
//
// Threads:   every method from any thread; gRPC's synchronous server has threads of its own.
#ifndef GPULAYER_TESTS_WORKER_FAKE_SERVER_H_
#define GPULAYER_TESTS_WORKER_FAKE_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/text.h"
#include "gpulayer/v1/artifacts.grpc.pb.h"
#include "gpulayer/v1/exec.grpc.pb.h"
#include "gpulayer/v1/workers.grpc.pb.h"
#include "model/job.h"
#include "model/limits.h"
#include "model/log_frame.h"
#include "model/tree.h"
#include "wire/convert.h"
#include "wire/tree.h"
#include "wire/version.h"

namespace gpulayer::testing {

class FakeServer {
 public:
  explicit FakeServer(std::string socket_path) : address_("unix:" + std::move(socket_path)) {
    Start();
  }
  ~FakeServer() { Stop(); }

  const std::string& address() const { return address_; }

  void Start() {
    {
      MutexLock lock(mutex_);
      stopping_ = false;
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxMessageBytes));
    builder.RegisterService(&workers_);
    builder.RegisterService(&artifacts_);
    builder.RegisterService(&exec_);
    server_ = builder.BuildAndStart();
  }

  // What a worker that is connected sees as the link's end.
  void Stop() {
    if (!server_) return;
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    server_.reset();
  }

  // ---- Orders. ----
  AttemptKey Assign(int job, JobSpec spec) {
    if (spec.request_id.value().empty()) spec.request_id = RequestId("r" + std::to_string(job));
    MutexLock lock(mutex_);
    AttemptKey key;
    key.server = {"0123456789abcdef0123456789abcdef", 1};
    key.ref = {{JobId(job), TaskIndex(0)}, AttemptNo(1)};
    key.id = AttemptId(attempt_prefix + std::to_string(job));
    key.epoch = WorkerEpoch(epoch_);
    v1::ServerMessage message;
    wire::ToProto(key, message.mutable_assign()->mutable_key());
    message.mutable_assign()->set_user("ann");
    wire::ToProto(spec, message.mutable_assign()->mutable_spec());
    message.mutable_assign()->mutable_allocation()->set_slots(spec.requirements.slots);
    if (stream_ != nullptr) stream_->Write(message);
    return key;
  }
  void StopAttempt(AttemptKey key, Duration grace) {
    MutexLock lock(mutex_);
    key.epoch = WorkerEpoch(epoch_);
    v1::ServerMessage message;
    wire::ToProto(key, message.mutable_stop()->mutable_key());
    wire::ToProto(Cause{CauseKind::kCancelled, "cancelled by ann"},
                  message.mutable_stop()->mutable_cause());
    message.mutable_stop()->set_grace_ms(
        std::chrono::duration_cast<std::chrono::milliseconds>(grace).count());
    if (stream_ != nullptr) stream_->Write(message);
  }
  void OpenExec(const AttemptKey& key, const std::string& ticket) {
    MutexLock lock(mutex_);
    v1::ServerMessage message;
    wire::ToProto(key, message.mutable_exec()->mutable_key());
    message.mutable_exec()->set_ticket(ticket);
    if (stream_ != nullptr) stream_->Write(message);
  }
  void PutBlob(const std::string& bytes) {
    MutexLock lock(mutex_);
    blobs_[Hash::Of(bytes)] = bytes;
  }
  // Stores the tree and its files; returns its hash.
  Hash PutSource(const std::map<std::string, std::string>& files) {
    Tree tree;
    for (const auto& [path, content] : files) {
      PutBlob(content);
      TreeEntry entry;
      entry.path = path;
      entry.size = static_cast<std::int64_t>(content.size());
      entry.hash = Hash::Of(content);
      tree.entries.push_back(std::move(entry));
    }
    const std::string manifest = wire::SerializeTree(tree);
    PutBlob(manifest);
    return Hash::Of(manifest);
  }

  // ---- Settings. ----
  std::string attempt_prefix = "t";
  bool refuse_dropped = false;       // set before the worker starts
  std::function<void()> on_missing;  // the same; called between the hashes and the bytes of outputs
  // What the server does with each call of a worker that has a command to run: the whole of it,
  // after the ticket. Set before the worker starts.
  using ExecStream = grpc::ServerReaderWriter<v1::ExecInput, v1::ExecOutput>;
  std::function<grpc::Status(const std::string& ticket, ExecStream&)> on_exec;
  void set_kill_all(bool kill) {
    MutexLock lock(mutex_);
    kill_all_ = kill;
  }
  void set_hold_downloads(bool hold) {
    MutexLock lock(mutex_);
    hold_downloads_ = hold;
    changed_.NotifyAll();
  }
  // Takes files by a link in `dir`, whose proof is `proof`; empty: it is a server elsewhere. Known to
  // a worker with its next Welcome.
  void set_drop(const std::string& dir, const std::string& proof) {
    MutexLock lock(mutex_);
    drop_dir_ = dir;
    drop_proof_ = proof;
  }
  void set_hold_end_acks(bool hold) {
    MutexLock lock(mutex_);
    hold_end_acks_ = hold;
  }
  void set_refuse(grpc::Status status) {
    MutexLock lock(mutex_);
    refuse_ = std::move(status);
  }

  // ---- What the worker said. ----
  int handed_over() {
    MutexLock lock(mutex_);
    return handed_over_;
  }
  bool connected() {
    MutexLock lock(mutex_);
    return stream_ != nullptr;
  }
  int hellos() {
    MutexLock lock(mutex_);
    return hellos_;
  }
  v1::Hello last_hello() {
    MutexLock lock(mutex_);
    return last_hello_;
  }
  int heartbeats() {
    MutexLock lock(mutex_);
    return heartbeats_;
  }
  std::optional<v1::Ended> ended(const AttemptKey& key) {
    MutexLock lock(mutex_);
    const auto it = ended_.find(key.id.value());
    return it == ended_.end() ? std::nullopt : std::optional(it->second);
  }
  int ends(const AttemptKey& key) {
    MutexLock lock(mutex_);
    return ends_[key.id.value()];
  }
  bool progressed(const AttemptKey& key, AttemptState state) {
    MutexLock lock(mutex_);
    return progress_.contains({key.id.value(), static_cast<int>(state)});
  }
  bool downloading() {
    MutexLock lock(mutex_);
    return downloads_waiting_ > 0;
  }
  // Bytes of one stream of the log, as they came.
  std::string Output(const AttemptKey& key, LogStream stream = LogStream::kOut) {
    MutexLock lock(mutex_);
    std::string out;
    const auto frames = ParseFrames(logs_[key.id.value()]);
    if (!frames.ok()) return "damaged log";
    for (const FrameView& frame : *frames) {
      if (frame.stream == stream) out += frame.data;
    }
    return out;
  }
  std::int64_t log_bytes(const AttemptKey& key) {
    MutexLock lock(mutex_);
    return static_cast<std::int64_t>(logs_[key.id.value()].size());
  }
  // Path -> content of what came home; empty if nothing did.
  std::map<std::string, std::string> Outputs(const AttemptKey& key) {
    std::map<std::string, std::string> out;
    const std::optional<v1::Ended> end = ended(key);
    if (!end || end->outputs().tree().empty()) return out;
    MutexLock lock(mutex_);
    const auto tree = wire::ParseTree(blobs_[*Hash::FromBytes(end->outputs().tree())]);
    if (!tree.ok()) return {{"damaged manifest", ""}};
    for (const TreeEntry& entry : tree->entries) {
      if (entry.type == EntryType::kFile) out[entry.path] = blobs_[entry.hash];
    }
    return out;
  }

 private:
  using Stream = grpc::ServerReaderWriter<v1::ServerMessage, v1::WorkerMessage>;

  class WorkersImpl : public v1::Workers::Service {
   public:
    explicit WorkersImpl(FakeServer& server) : server_(server) {}
    grpc::Status Session(grpc::ServerContext* context, Stream* stream) override {
      return server_.Serve(context, stream);
    }

   private:
    FakeServer& server_;
  };

  class ArtifactsImpl : public v1::Artifacts::Service {
   public:
    explicit ArtifactsImpl(FakeServer& server) : server_(server) {}
    grpc::Status Missing(grpc::ServerContext* /*context*/, const v1::MissingRequest* request,
                         v1::MissingReply* reply) override {
      if (server_.on_missing) server_.on_missing();
      MutexLock lock(server_.mutex_);
      for (const std::string& bytes : request->hashes()) {
        if (!server_.blobs_.contains(*Hash::FromBytes(bytes))) reply->add_hashes(bytes);
      }
      return grpc::Status::OK;
    }
    grpc::Status Upload(grpc::ServerContext* /*context*/,
                        grpc::ServerReader<v1::UploadChunk>* reader,
                        v1::UploadReply* reply) override {
      v1::UploadChunk chunk;
      Hash hash;
      std::string bytes;
      std::int64_t left = 0;
      while (reader->Read(&chunk)) {
        for (const v1::BlobPart& part : chunk.parts()) {
          if (!part.dropped().empty()) {
            const grpc::Status taken = server_.TakeDropped(part, reply);
            if (!taken.ok()) return taken;
            continue;
          }
          if (!part.hash().empty()) {
            hash = *Hash::FromBytes(part.hash());
            left = part.size();
            bytes.clear();
          }
          bytes += part.data();
          left -= static_cast<std::int64_t>(part.data().size());
          if (left != 0) continue;
          if (Hash::Of(bytes) != hash) return {grpc::StatusCode::DATA_LOSS, "bad content"};
          MutexLock lock(server_.mutex_);
          server_.blobs_[hash] = bytes;
        }
      }
      return grpc::Status::OK;
    }
    grpc::Status Download(grpc::ServerContext* context, const v1::DownloadRequest* request,
                          grpc::ServerWriter<v1::DownloadChunk>* writer) override {
      {
        MutexLock lock(server_.mutex_);
        ++server_.downloads_waiting_;
        while (server_.hold_downloads_ && !server_.stopping_ && !context->IsCancelled()) {
          server_.changed_.WaitFor(server_.mutex_, std::chrono::milliseconds(5));
        }
        --server_.downloads_waiting_;
      }
      for (const std::string& bytes : request->hashes()) {
        v1::DownloadChunk chunk;
        v1::BlobPart* part = chunk.add_parts();
        {
          MutexLock lock(server_.mutex_);
          const auto it = server_.blobs_.find(*Hash::FromBytes(bytes));
          if (it == server_.blobs_.end()) return {grpc::StatusCode::NOT_FOUND, "no such blob"};
          part->set_data(it->second);
        }
        part->set_hash(bytes);
        part->set_size(static_cast<std::int64_t>(part->data().size()));
        writer->Write(chunk);
      }
      return grpc::Status::OK;
    }

   private:
    FakeServer& server_;
  };

  class ExecImpl : public v1::Exec::Service {
   public:
    explicit ExecImpl(FakeServer& server) : server_(server) {}
    grpc::Status Serve(grpc::ServerContext* /*context*/, ExecStream* stream) override {
      v1::ExecOutput first;
      if (!stream->Read(&first) || !first.has_ticket() || !server_.on_exec) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "no ticket"};
      }
      return server_.on_exec(first.ticket(), *stream);
    }

   private:
    FakeServer& server_;
  };

  grpc::Status TakeDropped(const v1::BlobPart& part, v1::UploadReply* reply) {
    MutexLock lock(mutex_);
    const std::string path = JoinPath(drop_dir_, part.dropped());
    const Result<std::string> content = ReadFile(path);
    if (!content.ok() || static_cast<std::int64_t>(content->size()) != part.size()) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "no such file"};
    }
    if (refuse_dropped) return {grpc::StatusCode::FAILED_PRECONDITION, "not taken"};
    ++handed_over_;
    unlink(path.c_str());
    blobs_[Hash::Of(*content)] = *content;
    reply->add_adopted(std::string(Hash::Of(*content).bytes()));
    return grpc::Status::OK;
  }

  grpc::Status Serve(grpc::ServerContext* context, Stream* stream) {
    v1::WorkerMessage message;
    if (!stream->Read(&message) || !message.has_hello()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "no Hello"};
    }
    {
      MutexLock lock(mutex_);
      if (!refuse_.ok()) return refuse_;
      ++hellos_;
      ++epoch_;
      last_hello_ = message.hello();
      v1::ServerMessage answer;
      v1::Welcome& welcome = *answer.mutable_welcome();
      *welcome.mutable_version() = wire::OwnVersion();
      welcome.mutable_server()->set_uuid("0123456789abcdef0123456789abcdef");
      welcome.mutable_server()->set_incarnation(1);
      welcome.set_worker_epoch(epoch_);
      welcome.set_heartbeat_ms(50);
      if (!drop_dir_.empty()) {
        welcome.mutable_drop()->set_dir(drop_dir_);
        welcome.mutable_drop()->set_proof(drop_proof_);
      }
      for (const v1::Hello::Held& held : message.hello().held()) {
        v1::AttemptKey& key = kill_all_ ? *welcome.add_kill() : *welcome.add_keep();
        key = held.key();
        key.set_worker_epoch(epoch_);
      }
      stream->Write(answer);
      stream_ = stream;
      context_ = context;
    }
    while (stream->Read(&message)) Take(stream, message);
    MutexLock lock(mutex_);
    if (stream_ == stream) {
      stream_ = nullptr;
      context_ = nullptr;
    }
    return {grpc::StatusCode::UNAVAILABLE, "server is stopping"};
  }

  void Take(Stream* stream, const v1::WorkerMessage& message) {
    MutexLock lock(mutex_);
    if (message.has_heartbeat()) ++heartbeats_;
    if (message.has_progress()) {
      progress_.insert({message.progress().key().id(), message.progress().state()});
    }
    if (message.has_log()) {
      std::string& log = logs_[message.log().key().id()];
      const auto at = static_cast<std::size_t>(message.log().offset());
      if (at <= log.size()) {
        log.resize(at);
        log += message.log().data();
      }
      v1::ServerMessage answer;
      *answer.mutable_log_ack()->mutable_key() = message.log().key();
      answer.mutable_log_ack()->set_size(static_cast<std::int64_t>(log.size()));
      answer.mutable_log_ack()->set_current(true);
      stream->Write(answer);
    }
    if (message.has_ended()) {
      ended_[message.ended().key().id()] = message.ended();
      ++ends_[message.ended().key().id()];
      if (hold_end_acks_) return;
      v1::ServerMessage answer;
      *answer.mutable_end_ack()->mutable_key() = message.ended().key();
      answer.mutable_end_ack()->set_current(true);
      stream->Write(answer);
    }
  }

  const std::string address_;
  WorkersImpl workers_{*this};
  ArtifactsImpl artifacts_{*this};
  ExecImpl exec_{*this};
  std::unique_ptr<grpc::Server> server_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ = false;
  bool kill_all_ = false;
  bool hold_downloads_ = false;
  bool hold_end_acks_ = false;
  grpc::Status refuse_;
  Stream* stream_ = nullptr;
  grpc::ServerContext* context_ = nullptr;
  std::int64_t epoch_ = 0;
  std::string drop_dir_, drop_proof_;
  int handed_over_ = 0;
  int hellos_ = 0;
  int heartbeats_ = 0;
  int downloads_waiting_ = 0;
  v1::Hello last_hello_;
  std::map<std::string, v1::Ended> ended_;
  std::map<std::string, int> ends_;
  std::set<std::pair<std::string, int>> progress_;
  std::map<std::string, std::string> logs_;
  std::map<Hash, std::string> blobs_;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_WORKER_FAKE_SERVER_H_
