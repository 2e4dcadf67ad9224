// Commands inside running attempts: passes messages on between a client and a worker.
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "base/log.h"
#include "gpulayer/v1/exec.grpc.pb.h"
#include "model/limits.h"
#include "server/core/requests.h"
#include "server/rpc/exec_switch.h"
#include "server/rpc/respond.h"
#include "server/rpc/services.h"

namespace gpulayer::rpc {
namespace {

using grpc::CallbackServerContext;

// How long a peer may take for its first message.
constexpr auto kFirstPatience = std::chrono::seconds(10);
// And for the last one that it is sent.
constexpr auto kLastPatience = std::chrono::seconds(5);

Status OverLimit() {
  return InvalidArgument("exec: a piece over " + std::to_string(limits::kExecPieceBytes >> 10) +
                         "KiB (kExecPieceBytes)");
}

// Behind a message.
enum class Then { kGoOn, kEnd };

// One of the two streams. What it reads the other one writes; it reads on when that is written, so
// whoever does not read makes the far end wait, and nothing is kept here but that one message.
//
// The end of one is the end of the other. Lifetime: held by self_ until OnDone; each knows the other
// by a weak pointer.
template <typename In, typename Out>
class Leg : public grpc::ServerBidiReactor<In, Out>,
            public OpenStream,
            public std::enable_shared_from_this<Leg<In, Out>> {
 public:
  using Other = Leg<Out, In>;

  Leg(Parts& parts, CallbackServerContext* context, Principal caller)
      : parts_(parts), context_(context), caller_(std::move(caller)) {}

  static Leg* Launch(std::shared_ptr<Leg> leg) {
    Leg* raw = leg.get();
    raw->self_ = leg;
    raw->parts_.streams.Add(leg, raw->caller_.token_id);
    raw->parts_.timer.After(kFirstPatience, [weak = raw->weak_from_this()] {
      const auto self = weak.lock();
      if (self && !self->begun_.load()) self->End(DeadlineExceeded("exec: nothing came"));
    });
    raw->ReadNext();
    return raw;
  }

  void OnReadDone(bool ok) final {
    if (!ok) return OnHalfClosed();
    const bool first = !begun_.exchange(true);
    first ? Begin(std::move(read_)) : Take(std::move(read_));
  }

  void OnWriteDone(bool ok) final {
    std::optional<Status> finish;
    std::shared_ptr<Other> other;
    bool last = false;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      written_.Clear();
      finish = TakeFinish();
      other = other_.lock();
      last = last_;
    }
    if (finish) return this->Finish(ToGrpc(*finish));
    if (!ok) return OnCancel();
    if (last) return End(OkStatus());
    if (other) other->ReadNext();
  }

  void OnCancel() final { End(Gone()); }

  void OnDone() final {
    parts_.streams.Remove(this);
    OnGone();
    self_.reset();  // may be the end of this object
  }

  // The latter of two calls does nothing. One write that is under way is let out first.
  void End(const Status& why) final {
    const auto self = this->shared_from_this();
    std::optional<Status> finish;
    std::shared_ptr<Other> other;
    bool waits = false;
    {
      MutexLock lock(mutex_);
      if (end_) return;
      end_ = why;
      finish = TakeFinish();
      waits = writing_;
      other = other_.lock();
    }
    if (finish) this->Finish(ToGrpc(*finish));
    if (waits) {
      parts_.timer.After(kLastPatience, [weak = this->weak_from_this()] {
        if (const auto late = weak.lock()) late->BreakOff();
      });
    }
    if (other) other->End(why.ok() ? why : ToOther(why));
  }

  // False: it has ended.
  bool Join(const std::shared_ptr<Other>& other) {
    MutexLock lock(mutex_);
    if (!end_) other_ = other;
    return !end_;
  }

  void ReadNext() {
    {
      MutexLock lock(mutex_);
      if (end_) return;
      ++starting_;
    }
    this->StartRead(&read_);
    Started();
  }

  // REQUIRES: the last one is written.
  void Write(Out message, Then then = Then::kGoOn) {
    {
      MutexLock lock(mutex_);
      if (end_) return;
      written_ = std::move(message);
      writing_ = true;
      last_ = then == Then::kEnd;
      ++starting_;
    }
    this->StartWrite(&written_);
    Started();
  }

 protected:
  virtual void Begin(In message) = 0;
  virtual void Take(In message) = 0;
  virtual void OnHalfClosed() = 0;                      // nothing more comes
  virtual Status Gone() const = 0;                      // of this stream's peer
  virtual Status ToOther(const Status& why) const = 0;  // why the other stream ends
  virtual void OnGone() {}

  std::shared_ptr<Other> other() {
    MutexLock lock(mutex_);
    return other_.lock();
  }

  Parts& parts_;
  CallbackServerContext* const context_;
  const Principal caller_;

 private:
  // Nothing is started on a stream after its Finish.
  std::optional<Status> TakeFinish() GPULAYER_REQUIRES(mutex_) {
    if (!end_ || finished_ || writing_ || starting_ > 0) return std::nullopt;
    finished_ = true;
    return end_;
  }

  // REQUIRES: starting_ was raised.
  void Started() {
    std::optional<Status> finish;
    {
      MutexLock lock(mutex_);
      --starting_;
      finish = TakeFinish();
    }
    if (finish) this->Finish(ToGrpc(*finish));
  }

  // Its peer does not read, and a status would wait behind what it does not read.
  void BreakOff() {
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      ++starting_;
    }
    context_->TryCancel();
    Started();
  }

  std::shared_ptr<Leg> self_;
  In read_;
  std::atomic<bool> begun_{false};

  Mutex mutex_;
  Out written_;  // with gRPC while writing_
  bool writing_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool last_ GPULAYER_GUARDED_BY(mutex_) = false;
  int starting_ GPULAYER_GUARDED_BY(mutex_) = 0;  // threads within a call of gRPC's
  bool finished_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::optional<Status> end_ GPULAYER_GUARDED_BY(mutex_);
  std::weak_ptr<Other> other_ GPULAYER_GUARDED_BY(mutex_);
};

using ClientLeg = Leg<v1::ExecInput, v1::ExecOutput>;
using WorkerLeg = Leg<v1::ExecOutput, v1::ExecInput>;

Status CheckBegin(const v1::ExecInput& first) {
  if (!first.has_begin()) return InvalidArgument("exec: it must begin with what to run");
  const v1::ExecInput::Begin& begin = first.begin();
  if (begin.job() < 1 || (begin.has_task() && begin.task() < 0)) {
    return InvalidArgument("exec: not a job or task number");
  }
  if (begin.command().empty() || begin.command(0).empty()) {
    return InvalidArgument("exec: no command");
  }
  if (begin.ByteSizeLong() > limits::kMaxArgsAndEnvBytes) {
    return InvalidArgument("exec: the command is over the limit of " +
                           std::to_string(limits::kMaxArgsAndEnvBytes >> 20) + "MiB");
  }
  return OkStatus();
}

// Exec.Run.
class Run final : public ClientLeg {
 public:
  using ClientLeg::ClientLeg;

  // The worker has come. False: this has ended.
  bool Meet(const std::shared_ptr<WorkerLeg>& worker) {
    if (!Join(worker)) return false;
    LogInfo("exec: " + caller_.user.value() + " runs a command in " + ToString(place_.key.ref) +
            " on worker " + place_.worker_name);
    worker->Write(std::move(begin_));
    Write({});  // empty: the worker has answered
    return true;
  }
  const std::string& worker_name() const { return place_.worker_name; }

 private:
  void Begin(v1::ExecInput message) override {
    if (const Status good = CheckBegin(message); !good.ok()) return End(good);
    begin_ = std::move(message);
    const v1::ExecInput::Begin& begin = begin_.begin();
    std::optional<TaskIndex> task;
    if (begin.has_task()) task = TaskIndex(begin.task());
    const Status posted =
        parts_.engine.Query([self = shared_from_this(), this, job = JobId(begin.job()), task](
                                const core::Core& core, Instant) {
          Find(core.FindRunning(job, task, {caller_.user, caller_.admin()}), job);
        });
    if (!posted.ok()) End(Refusal(posted));
  }

  // On the engine's thread.
  void Find(Result<core::RunningPlace> place, JobId job) {
    if (place.status().code() == StatusCode::kNotFound) return AskStore(job, place.status());
    if (!place.ok()) return End(place.status());
    place_ = *std::move(place);
    Result<std::string> ticket = parts_.execs.Ring(place_, shared_from_this());
    if (!ticket.ok()) return End(ticket.status());
    parts_.timer.After(parts_.exec_deadline, [&parts = parts_, weak = weak_from_this(),
                                              ticket = *ticket, name = place_.worker_name] {
      if (!parts.execs.GiveUp(ticket)) return;
      if (const auto self = weak.lock()) {
        self->End(Unavailable("worker " + name +
                              " did not answer in time. Try again, or look at its log"));
      }
    });
  }

  // Whether it is one that the core has forgotten.
  void AskStore(JobId job, const Status& unknown) {
    const Status posted =
        parts_.readers.Post([self = shared_from_this(), job, unknown](StoreReader& reader) {
          const Result<JobRecord> record = reader.GetJob(job);
          const bool over = record.ok() && IsTerminal(record->state);
          self->End(over ? core::NothingRunsAnyMore("job " + ToString(job)) : unknown);
        });
    if (!posted.ok()) End(Refusal(posted));
  }

  void Take(v1::ExecInput message) override {
    if (message.has_begin()) return End(InvalidArgument("exec: a second beginning"));
    if (message.data().size() > limits::kExecPieceBytes) return End(OverLimit());
    if (const auto worker = other()) worker->Write(std::move(message));
  }

  void OnHalfClosed() override {}  // it may read on; when it is gone OnCancel comes

  Status Gone() const override { return Cancelled("exec: the client is gone"); }
  Status ToOther(const Status&) const override { return Gone(); }
  void OnGone() override { parts_.execs.Leave(); }

  // Written before the ticket is given out, read by who comes with it.
  v1::ExecInput begin_;
  core::RunningPlace place_;
};

// Exec.Serve.
class Serve final : public WorkerLeg {
 public:
  using WorkerLeg::WorkerLeg;

 private:
  void Begin(v1::ExecOutput message) override {
    if (message.kind_case() != v1::ExecOutput::kTicket) {
      return End(InvalidArgument("exec: it must begin with a ticket"));
    }
    Result<std::shared_ptr<OpenStream>> found = parts_.execs.Answer(message.ticket(), caller_);
    if (!found.ok()) return End(found.status());
    const auto run = std::static_pointer_cast<Run>(*std::move(found));  // nobody else waits there
    name_ = run->worker_name();
    if (!Join(run)) return;
    if (!run->Meet(shared_from_this())) End(NotFound("exec: nobody waits for this any more"));
  }

  void Take(v1::ExecOutput message) override {
    const auto client = other();
    if (!client) return;  // has ended this one too
    switch (message.kind_case()) {
      case v1::ExecOutput::kTicket: return End(InvalidArgument("exec: a second ticket"));
      case v1::ExecOutput::kOut:
      case v1::ExecOutput::kErr:
        if (message.out().size() + message.err().size() > limits::kExecPieceBytes) {
          return End(OverLimit());
        }
        return client->Write(std::move(message));
      case v1::ExecOutput::kEnded: return client->Write(std::move(message), Then::kEnd);
      case v1::ExecOutput::KIND_NOT_SET: return ReadNext();  // of a newer worker
    }
  }

  void OnHalfClosed() override { End(Gone()); }

  Status Gone() const override {
    return Unavailable("worker " + name_ + " broke the command off, or its connection was lost");
  }
  // What is wrong with the worker's token or messages is not the client's to mend.
  Status ToOther(const Status& why) const override {
    return why.code() == StatusCode::kUnavailable ? why : Gone();
  }

  std::string name_;
};

class ExecService final : public v1::Exec::CallbackService {
 public:
  explicit ExecService(Parts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<v1::ExecInput, v1::ExecOutput>* Run(
      CallbackServerContext* context) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Exec.Run");
    if (caller.ok()) {
      if (Status full = parts_.execs.Enter(); !full.ok()) caller = std::move(full);
    }
    if (!caller.ok()) {
      return new Refused<grpc::ServerBidiReactor<v1::ExecInput, v1::ExecOutput>>(caller.status());
    }
    return ClientLeg::Launch(std::make_shared<rpc::Run>(parts_, context, *std::move(caller)));
  }

  grpc::ServerBidiReactor<v1::ExecOutput, v1::ExecInput>* Serve(
      CallbackServerContext* context) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Exec.Serve");
    if (!caller.ok()) {
      return new Refused<grpc::ServerBidiReactor<v1::ExecOutput, v1::ExecInput>>(caller.status());
    }
    return WorkerLeg::Launch(std::make_shared<rpc::Serve>(parts_, context, *std::move(caller)));
  }

 private:
  Parts& parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeExecService(Parts& parts) {
  return std::make_unique<ExecService>(parts);
}

}  // namespace gpulayer::rpc
