#include "server/rpc/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "model/limits.h"
#include "model/names.h"
#include "model/variables.h"
#include "server/rpc/guard.h"
#include "server/rpc/respond.h"
#include "server/rpc/trees.h"
#include "wire/convert.h"
#include "wire/version.h"

namespace gpulayer::rpc {
namespace {

using std::chrono::steady_clock;

// What may wait for a worker to read it; over that it is not reading and is let go.
constexpr std::size_t kMaxOutgoingBytes = std::size_t{64} << 20;
// What may wait for the disk; over that the worker's stream is not read on, so that the worker
// waits too.
constexpr std::size_t kMaxBacklogBytes = std::size_t{4} << 20;
constexpr auto kHelloPatience = std::chrono::seconds(10);
constexpr auto kDiskRetry = std::chrono::seconds(1);
constexpr auto kHeardEvery = std::chrono::seconds(1);

bool IsWorkerId(const std::string& id) {
  return id.size() == 32 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<core::WorkerConnected> ToConnected(const v1::Hello& in) {
  core::WorkerConnected out;
  WorkerProfile& profile = out.profile;
  if (!IsWorkerId(in.worker_id())) return InvalidArgument("hello: worker id: not 32 hex digits");
  GPULAYER_RETURN_IF_ERROR(CheckName("hello: boot id", in.boot_id(), 0));
  GPULAYER_RETURN_IF_ERROR(CheckName("hello: version", in.version().program(), 0));
  profile.id = WorkerId(in.worker_id());
  profile.name = in.name();
  profile.zone = in.zone();
  profile.region = in.region();
  profile.labels = wire::LabelsFromProto(in.labels());
  GPULAYER_RETURN_IF_ERROR(CheckNames(profile).Prefixed("hello"));
  GPULAYER_ASSIGN_OR_RETURN(profile.resources, wire::FromProto(in.resources()));
  profile.version = in.version().program();
  profile.takes_secrets = wire::HasFeature(in.version(), wire::kSecretsFeature);
  out.boot_id = in.boot_id();
  for (const v1::Hello::Held& held : in.held()) {
    GPULAYER_ASSIGN_OR_RETURN(AttemptKey key, wire::FromProto(held.key()));
    if (held.state() < static_cast<std::int32_t>(AttemptState::kPreparing) ||
        held.state() > static_cast<std::int32_t>(AttemptState::kEnded)) {
      return InvalidArgument("hello: held attempt: state " + std::to_string(held.state()) +
                             " is not known here");
    }
    out.held.push_back({std::move(key), static_cast<AttemptState>(held.state())});
  }
  return out;
}

// Nonsense is as good as nothing said.
std::optional<Duration> ToAgo(bool said, std::int64_t us) {
  constexpr std::int64_t kYear = std::int64_t{366} * 24 * 3600 * 1'000'000;
  if (!said || us < 0 || us > kYear) return std::nullopt;
  return std::chrono::microseconds(us);
}

// Whether waiting cannot help: the outputs are not here, make no sense or are damaged. Anything else
// (no descriptors, no memory) passes, and is no reason to throw away what a job has made.
bool OutputsAreBad(const Status& status) {
  return status.code() == StatusCode::kFailedPrecondition ||
         status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kDataLoss;
}

// A session as three flows: what is read is put into inbox_ (heartbeats go to the engine at once),
// a strand on the I/O pool works the inbox off in order, and outbox_ is written one message after
// the other. Lifetime: held by self_ until OnDone, by the engine as a sink until CloseSession, and
// by jobs in flight.
class Session final : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>,
                      public OpenStream,
                      public SessionSink,
                      public ExecLine,
                      public std::enable_shared_from_this<Session> {
 public:
  Session(Parts& parts, grpc::CallbackServerContext* context, Principal caller)
      : parts_(parts), context_(context), caller_(std::move(caller)) {}

  static Session* Launch(std::shared_ptr<Session> session) {
    Session* raw = session.get();
    raw->self_ = session;
    raw->parts_.streams.Add(session, raw->caller_.token_id);
    raw->parts_.timer.After(kHelloPatience, [weak = raw->weak_from_this()] {
      if (const auto self = weak.lock()) self->CheckHello();
    });
    raw->ReadNext();
    return raw;
  }

  // --- reactions of gRPC
  // -------------------------------------------------------------------------------------

  void OnReadDone(bool ok) override {
    if (!ok) return End(OkStatus());  // the worker has closed its side
    bool read_on = true;
    if (!greeted_) {
      const Status greeted = Greet(read_);
      if (!greeted.ok()) return End(greeted);
      greeted_.store(true);
    } else if (read_.has_heartbeat()) {
      OnHeartbeat(read_.heartbeat());
    } else {
      read_on = Enqueue();
    }
    if (read_on) ReadNext();
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      outgoing_bytes_ -= outbox_.front().second;
      outbox_.pop_front();
      writing_ = false;
    }
    if (!ok) return End(Unavailable("session: the worker is gone"));
    WriteNext();
  }

  void OnCancel() override { End(Cancelled("session: the worker is gone")); }

  void OnDone() override {
    parts_.streams.Remove(this);
    if (id_.value() != 0) {
      parts_.execs.RemoveLine(id_);
      parts_.engine.CloseSession(id_);
    }
    self_.reset();  // may be the end of this object
  }

  // --- OpenStream
  // --------------------------------------------------------------------------------------------

  void End(const Status& why) override {
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      finished_ = true;
      inbox_.clear();
      if (starting_ > 0) {  // a read or write is being started: nothing may be started after Finish
        late_finish_ = why;
        return;
      }
    }
    Finish(ToGrpc(why));
  }

  // --- SessionSink: on the engine's thread
  // -------------------------------------------------------------------

  void Deliver(const core::Effect& effect) override {
    v1::ServerMessage message;
    if (const auto* welcome = std::get_if<core::SendWelcome>(&effect)) {
      FillWelcome(*welcome, message.mutable_welcome());
    } else if (const auto* assign = std::get_if<core::SendAssign>(&effect)) {
      if (!AddSecrets(*assign, message.mutable_assign())) return;
      {
        MutexLock lock(mutex_);
        current_[assign->key.id] = {assign->key, assign->spec->log_limit_bytes};
      }
      v1::Assign* out = message.mutable_assign();
      wire::ToProto(assign->key, out->mutable_key());
      out->set_user(assign->user.value());
      wire::ToProto(*assign->spec, out->mutable_spec(), wire::Only::kWithout);
      wire::ToProto(assign->allocation, out->mutable_allocation());
    } else if (const auto* stop = std::get_if<core::SendStop>(&effect)) {
      v1::Stop* out = message.mutable_stop();
      wire::ToProto(stop->key, out->mutable_key());
      wire::ToProto(stop->cause, out->mutable_cause());
      out->set_grace_ms(std::chrono::duration_cast<std::chrono::milliseconds>(stop->grace).count());
    } else if (const auto* ack = std::get_if<core::SendEndAck>(&effect)) {
      {
        MutexLock lock(mutex_);
        current_.erase(ack->key.id);
      }
      wire::ToProto(ack->key, message.mutable_end_ack()->mutable_key());
      message.mutable_end_ack()->set_current(ack->current);
    } else if (const auto* close = std::get_if<core::CloseSession>(&effect)) {
      return End(close->reason);
    } else {
      return;
    }
    Send(std::move(message));
  }

  // --- ExecLine
  // -------------------------------------------------------------------------------------

  bool knows_exec() const override { return knows_exec_; }

  void OpenExec(const AttemptKey& key, const std::string& ticket) override {
    v1::ServerMessage message;
    wire::ToProto(key, message.mutable_exec()->mutable_key());
    message.mutable_exec()->set_ticket(ticket);
    Send(std::move(message));
  }

 private:
  void CheckHello() {
    if (!greeted_.load()) End(DeadlineExceeded("session: no hello came"));
  }

  // --- what comes in
  // -----------------------------------------------------------------------------------------

  Status Greet(const v1::WorkerMessage& message) {
    if (!message.has_hello()) return InvalidArgument("session: it must begin with a hello");
    const v1::Hello& hello = message.hello();
    GPULAYER_RETURN_IF_ERROR(wire::CheckPeerVersion(hello.version(), "the worker"));
    if (!caller_.admin() && caller_.subject != hello.worker_id()) {
      return PermissionDenied(caller_.credential ? "this credential belongs to another worker. "
                                                   "Join this machine with a token of its own."
                                                 : "a token does not open a session: exchange it "
                                                   "for a credential first (`gpulayer join`)");
    }
    GPULAYER_ASSIGN_OR_RETURN(core::WorkerConnected event, ToConnected(hello));
    id_ = parts_.engine.OpenSession(shared_from_this());
    knows_exec_ = wire::HasFeature(hello.version(), wire::kExecFeature);
    parts_.execs.AddLine(id_, shared_from_this());
    event.session = id_;
    const Status posted = parts_.engine.Post(core::Event(std::move(event)));
    return posted.ok() ? posted : Busy(posted);
  }

  void OnHeartbeat(const v1::Heartbeat& heartbeat) {
    core::WorkerHeard event{id_, std::nullopt};
    if (heartbeat.has_resources()) {
      Result<Resources> resources = wire::FromProto(heartbeat.resources());
      if (!resources.ok()) return End(resources.status());
      event.resources = *std::move(resources);
    }
    PostEvent(core::Event(std::move(event)));
  }

  struct Current {
    AttemptKey key;
    std::int64_t log_limit = 0;
  };
  using Incoming = std::pair<v1::WorkerMessage, std::size_t>;  // with its bytes

  // False: the disk is behind; the strand reads on when there is room.
  bool Enqueue() {
    const std::size_t bytes = read_.ByteSizeLong();
    bool start = false;
    bool read_on = false;
    {
      MutexLock lock(mutex_);
      if (finished_) return false;
      inbox_.emplace_back(std::move(read_), bytes);
      inbox_bytes_ += bytes;
      start = !std::exchange(strand_runs_, true);
      read_on = inbox_bytes_ <= kMaxBacklogBytes;
      paused_ = !read_on;
      read_.Clear();  // under the lock: once paused, the strand may start the next read at any time
    }
    if (start) RunStrand();
    return read_on;
  }

  void Again(Incoming message) {
    bool start = false;
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      inbox_.push_back(std::move(message));
      start = !std::exchange(strand_runs_, true);
    }
    if (start) RunStrand();
  }

  // REQUIRES: strand_runs_ was set by the caller.
  void RunStrand() {
    const Status posted = parts_.io.Post([self = shared_from_this()] { self->Strand(); });
    if (!posted.ok()) End(Busy(posted));
  }

  void Strand() {
    for (;;) {
      const v1::WorkerMessage* message = nullptr;
      {
        MutexLock lock(mutex_);
        if (finished_ || inbox_.empty()) {
          strand_runs_ = false;
          return;
        }
        working_ = std::move(inbox_.front());
        message = &working_.first;
      }
      if (Handle(*message) == Handled::kLater) {
        // Without losing it, and without holding up what other attempts have to say.
        parts_.timer.After(kDiskRetry, [weak = weak_from_this(), again = std::move(working_)] {
          if (const auto self = weak.lock()) self->Again(again);
        });
        Heard();
        MutexLock lock(mutex_);
        if (!finished_) inbox_.pop_front();  // counted on: it comes back
        continue;
      }
      bool read_on = false;
      {
        MutexLock lock(mutex_);
        if (finished_) {
          strand_runs_ = false;
          return;
        }
        inbox_bytes_ -= inbox_.front().second;
        inbox_.pop_front();
        if (paused_ && inbox_bytes_ <= kMaxBacklogBytes / 2) {
          paused_ = false;
          read_on = true;
        }
      }
      if (read_on) ReadNext();
    }
  }

  static constexpr std::size_t kMaxPathBytes = 4096;  // PATH_MAX
  enum class Handled { kDone, kLater };

  Handled Handle(const v1::WorkerMessage& message) {
    switch (message.kind_case()) {
      case v1::WorkerMessage::kProgress: OnProgress(message.progress()); return Handled::kDone;
      case v1::WorkerMessage::kLog: OnLog(message.log()); return Handled::kDone;
      case v1::WorkerMessage::kEnded: return OnEnded(message.ended());
      case v1::WorkerMessage::kHello:
        End(InvalidArgument("session: a second hello"));
        return Handled::kDone;
      default: return Handled::kDone;  // of a newer worker: nothing that this server could miss
    }
  }

  void OnProgress(const v1::Progress& in) {
    Result<AttemptKey> key = wire::FromProto(in.key());
    if (!key.ok()) return End(key.status());
    if (in.state() != static_cast<std::int32_t>(AttemptState::kRunning) &&
        in.state() != static_cast<std::int32_t>(AttemptState::kFinishing)) {
      return End(InvalidArgument("progress: state " + std::to_string(in.state())));
    }
    PostEvent(core::Event(core::AttemptProgress{
        id_, *std::move(key), static_cast<AttemptState>(in.state()), wire::FromProto(in.outcome()),
        ToAgo(in.has_started_us_ago(), in.started_us_ago())}));
  }

  void OnLog(const v1::LogAppend& in) {
    Result<AttemptKey> key = wire::FromProto(in.key());
    if (!key.ok() || in.offset() < 0) {
      return End(key.ok() ? InvalidArgument("log: a negative offset") : key.status());
    }
    v1::ServerMessage reply;
    v1::LogAck* ack = reply.mutable_log_ack();
    *ack->mutable_key() = in.key();
    if (const std::optional<std::int64_t> most = MostOfLog(*key)) {
      const std::string_view all = in.data();
      const std::string_view data =
          all.substr(0, static_cast<std::size_t>(std::max<std::int64_t>(*most - in.offset(), 0)));
      // A chatty job must not take the room that the database needs to store how it ended.
      const Status room = parts_.blobs.CheckRoom();
      Result<std::int64_t> size =
          room.ok() ? parts_.logs.Append(key->ref, std::min(in.offset(), *most), data) : room;
      if (!size.ok()) {
        // Full, a gap, or this one file's fault, which is no other job's: its worker sends again from
        // here.
        if (room.ok()) SayLogFault(*key, size.status());
        size = parts_.logs.Size(key->ref);
      }
      if (*size >= *most) {
        size = std::max(*size, in.offset() + static_cast<std::int64_t>(all.size()));
      }
      ack->set_current(true);
      ack->set_size(*size);
      parts_.hub.Appended(key->ref.task);
    }
    Send(std::move(reply));
    HeardNowAndThen();
  }

  Handled OnEnded(const v1::Ended& in) {
    Result<AttemptKey> key = wire::FromProto(in.key());
    Result<OutputResult> outputs = wire::FromProto(in.outputs());
    if (!key.ok() || !outputs.ok()) {
      End(key.ok() ? outputs.status() : key.status());
      return Handled::kDone;
    }
    v1::ServerMessage reply;
    v1::EndAck* ack = reply.mutable_end_ack();
    *ack->mutable_key() = in.key();
    const std::optional<std::int64_t> most = MostOfLog(*key);
    if (!most) {
      Send(std::move(reply));
      return Handled::kDone;
    }
    core::AttemptEnded event{id_,
                             *key,
                             in.started(),
                             wire::FromProto(in.outcome()),
                             *std::move(outputs),
                             parts_.logs.Size(key->ref),
                             ToAgo(in.has_started_us_ago(), in.started_us_ago()),
                             ToAgo(in.has_ended_us_ago(), in.ended_us_ago()),
                             in.kept_folder().substr(0, kMaxPathBytes)};
    // The final state may stand only behind the last log byte.
    if (event.log_bytes < std::min(in.log_bytes(), *most)) {
      ack->set_current(true);
      ack->set_resend_log_from(event.log_bytes);
      Send(std::move(reply));
      return Handled::kDone;
    }
    if (const Status sealed = parts_.logs.Seal(key->ref, event.log_bytes); !sealed.ok()) {
      SayLogFault(*key, sealed);
      return Handled::kLater;
    }
    if (!event.outputs.tree.empty()) {
      if (const Status here = parts_.trees.CheckIsHere(event.outputs.tree); !here.ok()) {
        LogWarning("outputs of " + ToString(key->ref) + ": " + here.ToString());
        if (!OutputsAreBad(here)) return Handled::kLater;
        event.outputs = OutputResult();
        if (event.outcome.cause.kind == CauseKind::kProgram && event.outcome.exit_code == 0) {
          event.outcome.cause = {CauseKind::kOutputsNotStored, "outputs: " + here.message()};
        }
      }
    }
    said_log_faults_.erase(key->id);
    PostEvent(core::Event(std::move(event)));  // acknowledged by the engine, once it is stored
    return Handled::kDone;
  }

  // Once of each attempt: what is tried again fails again.
  void SayLogFault(const AttemptKey& key, const Status& fault) {
    if (fault.code() == StatusCode::kResourceExhausted || fault.code() == StatusCode::kOutOfRange) {
      return;
    }
    if (!said_log_faults_.insert(key.id).second) return;
    LogError("log of " + ToString(key.ref) + ": " + fault.ToString());
  }

  // How many bytes of this attempt's log are stored at most; none: it is not current. A worker keeps
  // its limit itself; of one that does not, or is older than limits, the rest is taken for stored.
  std::optional<std::int64_t> MostOfLog(const AttemptKey& key) {
    constexpr std::int64_t kNotes = 64 << 10;
    MutexLock lock(mutex_);
    const auto it = current_.find(key.id);
    if (it == current_.end() || it->second.key != key) return std::nullopt;
    return std::min(it->second.log_limit, limits::kMaxLogLimitBytes) + kNotes;
  }

  // --- to the engine
  // -----------------------------------------------------------------------------------------

  static Status Busy(const Status& refused) {
    if (refused.code() == StatusCode::kCancelled) return StoppingStatus();
    return Unavailable("session: the server is overloaded (" + refused.message() +
                       "). Connect again.");
  }

  void PostEvent(core::Event event) {
    // A report must not be lost: the worker repeats it all on its next session.
    if (const Status posted = parts_.engine.Post(std::move(event)); !posted.ok()) End(Busy(posted));
  }

  void Heard() { PostEvent(core::Event(core::WorkerHeard{id_, std::nullopt})); }

  // A worker with much to say is alive too, but the engine need not hear it a thousand times a
  // second.
  void HeardNowAndThen() {
    const auto now = steady_clock::now();
    if (now < next_heard_) return;
    next_heard_ = now + kHeardEvery;
    Heard();
  }

  // --- what goes out
  // -----------------------------------------------------------------------------------------

  // Read here, on the engine's thread: one small file, and the order of messages stays. False: they
  // are lost, which ends the task; never is it started without them.
  bool AddSecrets(const core::SendAssign& assign, v1::Assign* out) {
    if (assign.spec->secrets.empty()) return true;
    Result<std::vector<EnvVar>> values = parts_.secrets.Get(assign.spec->secrets_ref);
    Status status = values.status();
    if (values.ok()) status = CheckSecrets(*assign.spec, *values);
    if (status.ok()) {
      wire::ToProto(*values, out->mutable_secrets());
      return true;
    }
    LogError("job " + ToString(assign.key.ref.task.job) + ": " + status.message());
    core::AttemptEnded event;
    event.session = id_;
    event.key = assign.key;
    // Else it is this machine's trouble, which may pass.
    const bool lost =
        status.code() == StatusCode::kNotFound || status.code() == StatusCode::kDataLoss;
    event.outcome.cause = {
        lost ? CauseKind::kPreparation : CauseKind::kSpawnFailed,
        "the server cannot read its secrets; its log says why. Submit the job again with them"};
    PostEvent(core::Event(std::move(event)));
    return false;
  }

  void FillWelcome(const core::SendWelcome& in, v1::Welcome* out) {
    *out->mutable_version() = wire::OwnVersion();
    wire::ToProto(parts_.identity, out->mutable_server());
    out->set_worker_epoch(in.epoch.value());
    using std::chrono::milliseconds;
    out->set_heartbeat_ms(
        std::chrono::duration_cast<milliseconds>(Duration(limits::kHeartbeat)).count());
    out->set_lost_after_ms(
        std::chrono::duration_cast<milliseconds>(parts_.core.lost_after).count());
    if (IsOnThisMachine(*context_)) {
      const BlobStore::DropFolder& drop = parts_.blobs.drop_folder();
      out->mutable_drop()->set_dir(drop.dir);
      out->mutable_drop()->set_proof(drop.proof);
    }
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < in.keep.size(); ++i) {
      wire::ToProto(in.keep[i], out->add_keep());
      current_[in.keep[i].id] = {in.keep[i], in.log_limits[i]};
    }
    for (const AttemptKey& key : in.kill) wire::ToProto(key, out->add_kill());
  }

  void Send(v1::ServerMessage message) {
    const std::size_t bytes = message.ByteSizeLong();
    bool overrun = false;
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      overrun = !outbox_.empty() && outgoing_bytes_ + bytes > kMaxOutgoingBytes;
      if (!overrun) {
        outgoing_bytes_ += bytes;
        if (message.has_welcome() && !welcomed_) {
          welcomed_ =
              true;  // nothing is written before it: without its epoch nothing else means anything
          outbox_.emplace_front(std::move(message), bytes);
        } else {
          outbox_.emplace_back(std::move(message), bytes);
        }
      }
    }
    if (overrun) {
      LogWarning("worker session " + std::to_string(id_.value()) +
                 ": the worker does not read, let go");
      context_->TryCancel();  // a status would wait behind what it does not read
      return End(ResourceExhausted("session: the worker does not read what it is sent"));
    }
    WriteNext();
  }

  void WriteNext() {
    const v1::ServerMessage* next = nullptr;
    {
      MutexLock lock(mutex_);
      if (finished_ || writing_ || !welcomed_ || outbox_.empty()) return;
      writing_ = true;
      ++starting_;
      next = &outbox_.front().first;
    }
    StartWrite(next);
    Started();
  }

  void ReadNext() {
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      ++starting_;
    }
    StartRead(&read_);
    Started();
  }

  // REQUIRES: starting_ was raised.
  void Started() {
    std::optional<Status> finish;
    {
      MutexLock lock(mutex_);
      if (--starting_ == 0) finish = std::exchange(late_finish_, std::nullopt);
    }
    if (finish) Finish(ToGrpc(*finish));
  }

  Parts& parts_;
  grpc::CallbackServerContext* const context_;
  const Principal caller_;
  std::shared_ptr<Session> self_;

  // Of the reading reactions.
  v1::WorkerMessage read_;
  std::atomic<bool> greeted_{false};
  SessionId id_;
  bool knows_exec_ = false;  // constant once it is a line

  // Of the strand.
  Incoming working_;
  steady_clock::time_point next_heard_{};
  std::set<AttemptId> said_log_faults_;

  Mutex mutex_;
  bool finished_ GPULAYER_GUARDED_BY(mutex_) = false;
  int starting_ GPULAYER_GUARDED_BY(mutex_) = 0;  // threads within StartRead or StartWrite
  std::optional<Status> late_finish_ GPULAYER_GUARDED_BY(mutex_);
  bool welcomed_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::map<AttemptId, Current> current_ GPULAYER_GUARDED_BY(mutex_);
  std::deque<Incoming> inbox_ GPULAYER_GUARDED_BY(mutex_);
  std::size_t inbox_bytes_ GPULAYER_GUARDED_BY(mutex_) = 0;
  bool strand_runs_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool paused_ GPULAYER_GUARDED_BY(mutex_) = false;  // no read is outstanding
  std::deque<std::pair<v1::ServerMessage, std::size_t>> outbox_ GPULAYER_GUARDED_BY(mutex_);
  std::size_t outgoing_bytes_ GPULAYER_GUARDED_BY(mutex_) = 0;
  bool writing_ GPULAYER_GUARDED_BY(mutex_) = false;  // the front of outbox_ is with gRPC
};

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>* StartSession(
    Parts& parts, grpc::CallbackServerContext* context, const Principal& caller) {
  return Session::Launch(std::make_shared<Session>(parts, context, caller));
}

}  // namespace gpulayer::rpc
