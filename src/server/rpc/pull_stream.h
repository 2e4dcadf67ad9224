// A stream to a client as a loop that makes the next message when there is room for it: one message
// in memory, one write outstanding, however slowly the client reads.
//
// A subclass says how to make a message (Produce, on a pool thread, may block on files) and where
// that runs (Schedule); whatever may make Produce find more calls Wake(). A wake that comes while
// Produce runs or a write is outstanding is not lost: Produce runs once more.
//
// Threads:   Wake() and End() from any thread; Produce never runs twice at once, nor after the
//            stream is finished.
// Ownership: owns itself until gRPC says OnDone; others hold weak pointers.
#ifndef GPULAYER_SERVER_RPC_PULL_STREAM_H_
#define GPULAYER_SERVER_RPC_PULL_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "server/rpc/respond.h"
#include "server/rpc/streams.h"

namespace gpulayer::rpc {

// What Produce() came to.
struct Step {
  enum class Kind { kWrite, kAgain, kIdle, kFinish } kind = Kind::kIdle;
  Status status;
  static Step Write() { return {Kind::kWrite, {}}; }  // the message is to be sent
  static Step Again() { return {Kind::kAgain, {}}; }  // no message yet, but more to do
  static Step Idle() { return {Kind::kIdle, {}}; }    // nothing until the next Wake()
  static Step Finish(Status status) { return {Kind::kFinish, std::move(status)}; }
};

template <typename Response>
class PullStream : public grpc::ServerWriteReactor<Response>,
                   public OpenStream,
                   public std::enable_shared_from_this<PullStream<Response>> {
 public:
  // Call once after construction; returns what the handler returns.
  static grpc::ServerWriteReactor<Response>* Launch(std::shared_ptr<PullStream> stream,
                                                    StreamRegistry& registry,
                                                    const std::string& token_id) {
    PullStream* raw = stream.get();
    raw->registry_ = &registry;
    raw->self_ = stream;
    {
      MutexLock lock(raw->mutex_);
      // A wake before it has subscribed to everything must not begin the first turn.
      raw->busy_ = true;
    }
    registry.Add(stream, token_id);
    raw->OnLaunch();
    raw->Run();
    return raw;
  }

  void Wake() {
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      if (busy_) {
        woken_ = true;
        return;
      }
      busy_ = true;
    }
    Run();
  }

  void End(const Status& why) final {
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      if (!end_) end_ = why;
      if (busy_) return;  // Produce's return, or the write's end, sees it
      finished_ = true;
    }
    this->Finish(ToGrpc(why));
  }

  void OnWriteDone(bool ok) final {
    if (!ok) return Conclude(Cancelled("the caller is gone"));
    {
      MutexLock lock(mutex_);
      woken_ = true;  // there may be more: look again
    }
    Settle();
  }

  void OnCancel() final { End(Cancelled("the caller is gone")); }

  void OnDone() final {
    registry_->Remove(this);
    OnGone();
    self_.reset();  // may be the end of this object
  }

 protected:
  virtual Step Produce(Response* out) = 0;
  // Makes `job` run on a pool thread.
  virtual Status Schedule(std::function<void()> job) = 0;
  virtual void OnLaunch() {}  // subscribe
  virtual void OnGone() {}    // unsubscribe; nothing of this stream runs any more

 private:
  // REQUIRES: busy_ was set by the caller.
  void Run() {
    const Status posted = Schedule([self = this->shared_from_this()] { self->Turn(); });
    if (!posted.ok()) Conclude(Refusal(posted));
  }

  void Turn() {
    std::optional<Status> end;
    {
      MutexLock lock(mutex_);
      woken_ = false;
      end = end_;
    }
    if (end) return Conclude(*end);
    message_.Clear();
    const Step step = Produce(&message_);
    switch (step.kind) {
      case Step::Kind::kWrite: return this->StartWrite(&message_);  // stays busy until OnWriteDone
      case Step::Kind::kFinish: return Conclude(step.status);
      case Step::Kind::kAgain: {
        MutexLock lock(mutex_);
        woken_ = true;
        break;
      }
      case Step::Kind::kIdle: break;
    }
    Settle();
  }

  // The busy part is over: go on if there is a reason to, else rest.
  void Settle() {
    std::optional<Status> end;
    {
      MutexLock lock(mutex_);
      if (end_) {
        end = end_;
        finished_ = true;
      }
      if (end_ || !woken_) busy_ = false;
      if (!end && !woken_) return;
    }
    if (end) return this->Finish(ToGrpc(*end));
    Run();
  }

  void Conclude(const Status& status) {
    std::optional<Status> end;
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      finished_ = true;
      busy_ = false;
      end = end_;
    }
    this->Finish(ToGrpc(end ? *end : status));
  }

  StreamRegistry* registry_ = nullptr;
  std::shared_ptr<PullStream> self_;
  Response message_;  // of Produce, then of the write: never both

  Mutex mutex_;
  bool busy_ GPULAYER_GUARDED_BY(mutex_) =
      false;  // Produce is scheduled or runs, or a write is outstanding
  bool woken_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool finished_ GPULAYER_GUARDED_BY(mutex_) = false;  // Finish was or is being called
  std::optional<Status> end_ GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_PULL_STREAM_H_
