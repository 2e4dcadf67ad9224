// A worker by script: says what a test tells it to say and shows what the server sent.
#ifndef GPULAYER_TESTS_RPC_FAKE_WORKER_H_
#define GPULAYER_TESTS_RPC_FAKE_WORKER_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "gpulayer/v1/workers.grpc.pb.h"
#include "model/log_frame.h"

namespace gpulayer::testing {

class FakeWorker {
 public:
  static constexpr char kId[] = "0123456789abcdef0123456789abcdef";

  FakeWorker(const std::shared_ptr<grpc::Channel>& channel, const std::string& bearer)
      : stub_(v1::Workers::NewStub(channel)) {
    if (!bearer.empty()) context_.AddMetadata("authorization", "Bearer " + bearer);
    stream_ = stub_->Session(&context_);
    reader_ = std::thread([this] {
      v1::ServerMessage message;
      while (stream_->Read(&message)) {
        MutexLock lock(mutex_);
        inbox_.push_back(message);
        cv_.NotifyAll();
      }
      MutexLock lock(mutex_);
      over_ = true;
      cv_.NotifyAll();
    });
  }
  ~FakeWorker() {
    context_.TryCancel();
    reader_.join();
    if (!finished_) stream_->Finish();
  }

  static v1::WorkerMessage HelloMessage(int slots = 2) {
    v1::WorkerMessage message;
    v1::Hello* hello = message.mutable_hello();
    hello->mutable_version()->set_major(1);
    hello->mutable_version()->set_program("test");
    hello->set_worker_id(kId);
    hello->set_name("w1");
    hello->set_boot_id("boot");
    hello->mutable_resources()->set_slots(slots);
    hello->mutable_resources()->set_memory_bytes(std::int64_t{1} << 30);
    return message;
  }

  bool Send(const v1::WorkerMessage& message) { return stream_->Write(message); }

  // Hello and its welcome.
  bool Greet(int slots = 2) {
    if (!Send(HelloMessage(slots))) return false;
    const auto message = Next();
    if (!message || !message->has_welcome()) return false;
    welcome_ = message->welcome();
    return true;
  }
  const v1::Welcome& welcome() const { return welcome_; }

  // The next message of the server, if one comes in time.
  std::optional<v1::ServerMessage> Next(
      std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    MutexLock lock(mutex_);
    while (inbox_.empty() && !over_) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left.count() <= 0) return std::nullopt;
      cv_.WaitFor(mutex_, left);
    }
    if (inbox_.empty()) return std::nullopt;
    v1::ServerMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    return message;
  }
  std::optional<v1::Assign> NextAssign() {
    const auto message = Next();
    if (!message || !message->has_assign()) return std::nullopt;
    return message->assign();
  }

  // How the session ended; waits for the end.
  grpc::Status Finish() {
    {
      MutexLock lock(mutex_);
      while (!over_) cv_.Wait(mutex_);
    }
    finished_ = true;
    return stream_->Finish();
  }

  bool SendProgress(const v1::AttemptKey& key, int state, std::optional<int> exit_code = {}) {
    v1::WorkerMessage message;
    *message.mutable_progress()->mutable_key() = key;
    message.mutable_progress()->set_state(state);
    if (exit_code) FillOutcome(*exit_code, message.mutable_progress()->mutable_outcome());
    return Send(message);
  }
  bool SendLog(const v1::AttemptKey& key, std::int64_t offset, const std::string& frames) {
    v1::WorkerMessage message;
    *message.mutable_log()->mutable_key() = key;
    message.mutable_log()->set_offset(offset);
    message.mutable_log()->set_data(frames);
    return Send(message);
  }
  bool SendEnded(const v1::AttemptKey& key, int exit_code, std::int64_t log_bytes,
                 const std::string& tree = "") {
    v1::WorkerMessage message;
    v1::Ended* ended = message.mutable_ended();
    *ended->mutable_key() = key;
    ended->set_started(true);
    FillOutcome(exit_code, ended->mutable_outcome());
    ended->set_log_bytes(log_bytes);
    ended->mutable_outputs()->set_tree(tree);
    return Send(message);
  }

  static void FillOutcome(int exit_code, v1::Outcome* out) {
    out->set_exit_code(exit_code);
    out->mutable_cause()->set_kind(1);  // program
  }

  static std::string Frame(LogStream stream, const std::string& data) {
    std::string out;
    AppendFrame(out, stream, 1'000'000, data);
    return out;
  }

 private:
  std::unique_ptr<v1::Workers::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::ServerMessage>> stream_;
  v1::Welcome welcome_;
  bool finished_ = false;
  Mutex mutex_;
  CondVar cv_;
  std::deque<v1::ServerMessage> inbox_ GPULAYER_GUARDED_BY(mutex_);
  bool over_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::thread reader_;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_RPC_FAKE_WORKER_H_
