#include "worker/session/session.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "gpulayer/v1/workers.grpc.pb.h"
#include "model/limits.h"
#include "model/variables.h"
#include "wire/convert.h"
#include "wire/version.h"

namespace gpulayer::worker {
namespace {

namespace pb = ::gpulayer::v1;
using std::chrono::steady_clock;

// Between a stream's begin and the server's Welcome: the connection, and the answer to Hello.
constexpr auto kWelcomePatience = limits::kAnswerDeadline + std::chrono::seconds(5);

Result<SessionEvent> ToEvent(const pb::ServerMessage& message) {
  switch (message.kind_case()) {
    case pb::ServerMessage::kWelcome: {
      const pb::Welcome& in = message.welcome();
      GPULAYER_RETURN_IF_ERROR(wire::CheckPeerVersion(in.version(), "the server"));
      Connected e{wire::FromProto(in.server()), WorkerEpoch(in.worker_epoch()), {}, {}};
      for (const pb::AttemptKey& key : in.keep()) {
        GPULAYER_ASSIGN_OR_RETURN(AttemptKey k, wire::FromProto(key));
        e.keep.push_back(std::move(k));
      }
      for (const pb::AttemptKey& key : in.kill()) {
        GPULAYER_ASSIGN_OR_RETURN(AttemptKey k, wire::FromProto(key));
        e.kill.push_back(std::move(k));
      }
      return SessionEvent(Event(std::move(e)));
    }
    case pb::ServerMessage::kAssign: {
      const pb::Assign& in = message.assign();
      GPULAYER_ASSIGN_OR_RETURN(AttemptKey key, wire::FromProto(in.key()));
      GPULAYER_ASSIGN_OR_RETURN(JobSpec spec, wire::FromProto(in.spec()));
      std::shared_ptr<const std::vector<EnvVar>> secrets;
      if (!spec.secrets.empty()) {
        std::vector<EnvVar> values = wire::FromProto(in.secrets());
        GPULAYER_RETURN_IF_ERROR(CheckSecrets(spec, values));
        secrets = std::make_shared<const std::vector<EnvVar>>(std::move(values));
      }
      return SessionEvent(Event(Assigned{{std::move(key), UserName(in.user()),
                                          std::make_shared<const JobSpec>(std::move(spec)),
                                          wire::FromProto(in.allocation()), std::move(secrets)}}));
    }
    case pb::ServerMessage::kStop: {
      const pb::Stop& in = message.stop();
      GPULAYER_ASSIGN_OR_RETURN(AttemptKey key, wire::FromProto(in.key()));
      return SessionEvent(Event(StopOrdered{
          std::move(key), wire::FromProto(in.cause()),
          std::max(Duration::zero(), Duration(std::chrono::milliseconds(in.grace_ms())))}));
    }
    case pb::ServerMessage::kLogAck: {
      const pb::LogAck& in = message.log_ack();
      GPULAYER_ASSIGN_OR_RETURN(AttemptKey key, wire::FromProto(in.key()));
      if (in.size() < 0) return InvalidArgument("log ack: negative size");
      return SessionEvent(Event(LogAcked{std::move(key), in.size(), in.current()}));
    }
    case pb::ServerMessage::kEndAck: {
      const pb::EndAck& in = message.end_ack();
      GPULAYER_ASSIGN_OR_RETURN(AttemptKey key, wire::FromProto(in.key()));
      EndAcked e{std::move(key), in.current(), {}};
      if (in.has_resend_log_from()) e.resend_log_from = in.resend_log_from();
      return SessionEvent(Event(std::move(e)));
    }
    case pb::ServerMessage::kExec: {
      GPULAYER_ASSIGN_OR_RETURN(AttemptKey key, wire::FromProto(message.exec().key()));
      return SessionEvent(ExecWanted{std::move(key), message.exec().ticket()});
    }
    default: return Unimplemented("a message of a kind that this version does not know");
  }
}

// The server answered, and the answer will be the same next time.
bool IsRefusal(const Status& status) {
  return status.code() == StatusCode::kUnauthenticated ||
         status.code() == StatusCode::kPermissionDenied ||
         status.code() == StatusCode::kFailedPrecondition ||
         status.code() == StatusCode::kInvalidArgument;
}

// One stream. gRPC's reactions and our own calls meet under mutex_; nothing of gRPC is called with
// it held. Lives until its OnDone.
class Stream : public grpc::ClientBidiReactor<pb::WorkerMessage, pb::ServerMessage>,
               public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::int64_t number, const ServerLink& link, std::function<void(SessionEvent)> sink,
         std::function<void(Status)> done)
      : number_(number),
        stub_(pb::Workers::NewStub(link.channel)),
        drop_(link.drop),
        sink_(std::move(sink)),
        done_(std::move(done)) {
    Authorise(link, context_);
  }

  void Open() {
    self_ = shared_from_this();
    stub_->async()->Session(&context_, this);
    AddHold();  // until the read side has ended: other threads may begin operations before
    bool aborted = false;
    {
      MutexLock lock(mutex_);
      opened_ = true;
      aborted = ended_;
    }
    StartCall();
    if (aborted) RemoveHold();
  }

  // Breaks the stream off; its end comes soon.
  void Abort() {
    context_.TryCancel();
    bool reading = false;
    {
      MutexLock lock(mutex_);
      aborted_ = true;
      reading = reading_;
    }
    if (!reading) End();  // else the read under way ends it, whether it fails or just succeeded
  }

  void Write(pb::WorkerMessage message) {
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      queue_.push_back(std::move(message));
    }
    WriteNext();
  }

  // Before all that waits; of several that wait the last one that says something is enough.
  void WriteHeartbeat(pb::WorkerMessage message) {
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      if (queue_.empty() || !queue_.front().has_heartbeat()) {
        queue_.push_front(std::move(message));
      } else if (message.heartbeat().has_resources()) {
        queue_.front() = std::move(message);
      }
    }
    WriteNext();
  }

  // No effect while a read is under way, nor before Open(): whoever has taken what an earlier
  // stream brought asks for more and may meet this one.
  void Read() {
    {
      MutexLock lock(mutex_);
      if (!opened_ || ended_ || reading_) return;
      reading_ = true;
      AddHold();
    }
    StartRead(&incoming_);
    RemoveHold();
  }

  std::int64_t number() const { return number_; }
  bool hello_said() const { return hello_said_.load(); }
  void SetHelloSaid() { hello_said_.store(true); }
  bool welcomed() const { return welcomed_.load(); }
  std::chrono::milliseconds heartbeat() const {
    return std::chrono::milliseconds(heartbeat_ms_.load());
  }

 private:
  void OnReadInitialMetadataDone(bool /*ok*/) override {}

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) queue_.clear();
    }
    if (ok) WriteNext();
  }

  void OnReadDone(bool ok) override {
    Result<SessionEvent> event = Cancelled("the session ended");
    if (ok) event = ToEvent(incoming_);
    if (event.ok() && incoming_.has_welcome()) {
      heartbeat_ms_.store(std::clamp<std::int64_t>(incoming_.welcome().heartbeat_ms(), 50, 60'000));
      drop_->Set({incoming_.welcome().drop().dir(), incoming_.welcome().drop().proof()});
      welcomed_.store(true);
    } else if (event.ok() && !welcomed_.load()) {
      event = Internal("the server spoke before its Welcome");
    }
    bool over = !ok;
    {
      MutexLock lock(mutex_);
      reading_ = false;  // from here on another read may fill incoming_
      over = over || aborted_;
    }
    if (over) return End();
    if (!event.ok() && event.status().code() == StatusCode::kUnimplemented) return Read();
    if (!event.ok()) {
      broken_ = event.status();
      return Abort();
    }
    sink_(*std::move(event));
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Stream> self = std::move(self_);
    done_(broken_.ok() ? FromGrpc(status) : broken_);
  }

  // No operation begins after this.
  void End() {
    {
      MutexLock lock(mutex_);
      if (std::exchange(ended_, true)) return;
      queue_.clear();
      if (!opened_) return;  // Open() lets go
    }
    RemoveHold();
  }

  void WriteNext() {
    {
      MutexLock lock(mutex_);
      if (ended_ || writing_ || queue_.empty()) return;
      writing_ = true;
      outgoing_ = std::move(queue_.front());
      queue_.pop_front();
      AddHold();
    }
    StartWrite(&outgoing_);
    RemoveHold();
  }

  const std::int64_t number_;
  grpc::ClientContext context_;
  const std::unique_ptr<pb::Workers::Stub> stub_;
  const std::shared_ptr<DropFolder> drop_;
  const std::function<void(SessionEvent)> sink_;
  const std::function<void(Status)> done_;
  std::shared_ptr<Stream> self_;  // while gRPC uses it
  pb::ServerMessage incoming_;    // of the read under way
  pb::WorkerMessage outgoing_;    // of the write under way
  Status broken_;                 // what we broke it off for; of the read side
  std::atomic<bool> hello_said_{false};
  std::atomic<bool> welcomed_{false};
  std::atomic<std::int64_t> heartbeat_ms_{
      std::chrono::duration_cast<std::chrono::milliseconds>(limits::kHeartbeat).count()};

  Mutex mutex_;
  std::deque<pb::WorkerMessage> queue_ GPULAYER_GUARDED_BY(mutex_);
  bool writing_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool reading_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool opened_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool aborted_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool ended_ GPULAYER_GUARDED_BY(mutex_) = false;
};

}  // namespace

class Session::Impl {
 public:
  Impl(ServerLink link, SessionOptions options, Sink sink)
      : link_(std::move(link)), options_(options), sink_(std::move(sink)) {
    thread_ = std::thread([this] { Run(); });
  }

  ~Impl() {
    std::shared_ptr<Stream> stream;
    {
      MutexLock lock(mutex_);
      closing_ = true;
      stream = stream_;
    }
    if (stream) stream->Abort();
    changed_.NotifyAll();
    thread_.join();
  }

  void SayHello(const Opened& opened, const Hello& hello) {
    const std::shared_ptr<Stream> stream = Current();
    if (!stream || stream->number() != opened.stream) return;  // it has ended meanwhile
    pb::WorkerMessage message;
    pb::Hello& out = *message.mutable_hello();
    *out.mutable_version() = wire::OwnVersion();
    out.set_worker_id(hello.profile.id.value());
    out.set_name(hello.profile.name);
    out.set_boot_id(hello.boot_id);
    out.set_zone(hello.profile.zone);
    out.set_region(hello.profile.region);
    wire::LabelsToProto(hello.profile.labels, out.mutable_labels());
    wire::ToProto(hello.profile.resources, out.mutable_resources());
    for (const Agent::Held& held : hello.held) {
      pb::Hello::Held& h = *out.add_held();
      wire::ToProto(held.key, h.mutable_key());
      h.set_state(static_cast<std::int32_t>(held.state));
    }
    stream->SetHelloSaid();
    stream->Write(std::move(message));
    stream->Read();
  }

  void Next() {
    if (const std::shared_ptr<Stream> stream = Current()) stream->Read();
  }

  void Send(pb::WorkerMessage message) {
    const std::shared_ptr<Stream> stream = Current();
    if (stream && stream->hello_said()) stream->Write(std::move(message));
  }

  void SetResources(const Resources& resources) {
    MutexLock lock(mutex_);
    resources_ = resources;
  }

  bool connected() {
    MutexLock lock(mutex_);
    return stream_ != nullptr && !stream_end_ && stream_->welcomed();
  }

 private:
  std::shared_ptr<Stream> Current() {
    MutexLock lock(mutex_);
    return stream_end_ ? nullptr : stream_;
  }

  void Run() {
    Duration delay = options_.first_retry;
    bool let_in = false;  // once
    for (std::int64_t number = 1;; ++number) {
      const steady_clock::time_point began = steady_clock::now();
      auto stream = std::make_shared<Stream>(
          number, link_, sink_, [this](Status status) { OnStreamDone(std::move(status)); });
      {
        MutexLock lock(mutex_);
        if (closing_) return;
        stream_ = stream;
        stream_end_.reset();
      }
      stream->Open();
      sink_(SessionEvent(Opened{number}));
      const Status end = Keep(*stream);
      const bool was_welcomed = stream->welcomed();
      stream.reset();
      {
        MutexLock lock(mutex_);
        stream_.reset();
        if (closing_) return;
      }
      sink_(SessionEvent(Event(Disconnected{})));
      let_in = let_in || was_welcomed;
      // Of a session that stood only the credential is ever taken back.
      if (end.code() == StatusCode::kUnauthenticated || (IsRefusal(end) && !was_welcomed)) {
        return Refuse(end, let_in);
      }
      Report(end, was_welcomed);
      if (was_welcomed && steady_clock::now() - began > options_.last_retry) {
        delay = options_.first_retry;
      }
      if (!Pause(Jitter(delay))) return;
      delay = std::min(delay * 2, options_.last_retry);
    }
  }

  // Heartbeats until the stream has ended; how it did.
  Status Keep(Stream& stream) {
    const steady_clock::time_point welcome_by = steady_clock::now() + kWelcomePatience;
    steady_clock::time_point next = steady_clock::now();
    bool greeted = false;
    bool given_up = false;
    for (;;) {
      std::optional<Resources> resources;
      {
        MutexLock lock(mutex_);
        if (stream_end_) return *stream_end_;
        const steady_clock::time_point now = steady_clock::now();
        const bool welcomed = stream.welcomed();
        if (!welcomed && now < welcome_by) {
          // Welcome is noticed at the latest with the first heartbeat's time.
          changed_.WaitFor(mutex_, std::min<Duration>(limits::kHeartbeat / 2, welcome_by - now));
          next = steady_clock::now();
          continue;
        }
        if (welcomed && now < next) {
          changed_.WaitFor(mutex_, next - now);
          continue;
        }
        if (given_up) {  // only the end is awaited
          changed_.WaitFor(mutex_, std::chrono::seconds(1));
          continue;
        }
        if (welcomed) resources = std::exchange(resources_, std::nullopt);
      }
      if (!stream.welcomed()) {
        given_up = true;
        stream.Abort();
        continue;
      }
      if (!greeted) {
        greeted = true;
        last_report_.clear();
        LogInfo("connected to server " + link_.server);
      }
      pb::WorkerMessage beat;
      beat.mutable_heartbeat()->set_wall_us(ToMicros(Clock::System().Now().wall));
      if (resources) wire::ToProto(*resources, beat.mutable_heartbeat()->mutable_resources());
      stream.WriteHeartbeat(std::move(beat));
      next = steady_clock::now() + stream.heartbeat();
    }
  }

  void OnStreamDone(Status status) {
    MutexLock lock(mutex_);
    stream_end_ = status.ok() ? Unavailable("the server closed the session") : std::move(status);
    changed_.NotifyAll();  // with the lock held: the waiter may destroy this object next
  }

  void Refuse(const Status& why, bool let_in) {
    const std::string server = "server " + link_.server;
    if (why.code() == StatusCode::kFailedPrecondition ||
        why.code() == StatusCode::kInvalidArgument) {
      return Refuse(server + " refused this worker: " + why.message(), why.code(), false);
    }
    std::string text = server + " refused this worker's credential: " + why.message();
    if (text.back() != '.') text += '.';
    text += " Join again with a new token: `gpulayer join ADDRESS --token TOKEN`.";
    Refuse(text, why.code(), let_in);
  }
  void Refuse(const std::string& text, StatusCode code, bool revoked) {
    LogError(text);
    sink_(SessionEvent(Refused{{code, text}, revoked}));
  }

  // Once per kind of trouble, not once per attempt.
  void Report(const Status& end, bool was_welcomed) {
    const std::string line = was_welcomed
                                 ? "lost the link to server " + link_.server + ": " + end.message()
                                 : "cannot reach server " + link_.server + ": " + end.message();
    if (line == last_report_) return;
    last_report_ = line;
    std::string_view said = line;  // which may be a sentence
    while (said.ends_with('.')) said.remove_suffix(1);
    LogWarning(std::string(said) + ". Running jobs go on; trying again");
  }

  Duration Jitter(Duration d) {
    std::uniform_real_distribution<double> factor(0.5, 1.0);
    return Duration(static_cast<Duration::rep>(static_cast<double>(d.count()) * factor(random_)));
  }

  bool Pause(Duration d) {
    const steady_clock::time_point until = steady_clock::now() + d;
    MutexLock lock(mutex_);
    while (!closing_) {
      const auto left = until - steady_clock::now();
      if (left <= Duration::zero()) return true;
      changed_.WaitFor(mutex_, left);
    }
    return false;
  }

  const ServerLink link_;
  const SessionOptions options_;
  const Sink sink_;
  // Of the thread.
  std::string last_report_;
  std::minstd_rand random_{std::random_device{}()};

  Mutex mutex_;
  CondVar changed_;
  bool closing_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Stream> stream_ GPULAYER_GUARDED_BY(mutex_);
  std::optional<Status> stream_end_ GPULAYER_GUARDED_BY(mutex_);
  std::optional<Resources> resources_ GPULAYER_GUARDED_BY(mutex_);
  std::thread thread_;
};

namespace {

std::int64_t Micros(Duration d) {
  return std::chrono::duration_cast<std::chrono::microseconds>(d).count();
}

}  // namespace

Session::Session(ServerLink link, SessionOptions options, Sink sink)
    : impl_(std::make_unique<Impl>(std::move(link), options, std::move(sink))) {}
Session::~Session() = default;
void Session::SayHello(const Opened& opened, const Hello& hello) { impl_->SayHello(opened, hello); }
void Session::Next() { impl_->Next(); }
void Session::Send(const SendProgress& message) {
  pb::WorkerMessage out;
  wire::ToProto(message.key, out.mutable_progress()->mutable_key());
  out.mutable_progress()->set_state(static_cast<std::int32_t>(message.state));
  wire::ToProto(message.outcome, out.mutable_progress()->mutable_outcome());
  if (message.started_ago) {
    out.mutable_progress()->set_started_us_ago(Micros(*message.started_ago));
  }
  impl_->Send(std::move(out));
}
void Session::Send(SendLog message) {
  pb::WorkerMessage out;
  wire::ToProto(message.key, out.mutable_log()->mutable_key());
  out.mutable_log()->set_offset(message.offset);
  out.mutable_log()->set_data(std::move(message.data));
  impl_->Send(std::move(out));
}
void Session::Send(const SendEnded& message) {
  pb::WorkerMessage out;
  pb::Ended& ended = *out.mutable_ended();
  wire::ToProto(message.key, ended.mutable_key());
  ended.set_started(message.started);
  wire::ToProto(message.outcome, ended.mutable_outcome());
  wire::ToProto(message.outputs, ended.mutable_outputs());
  ended.set_log_bytes(message.log_bytes);
  if (message.started_ago) ended.set_started_us_ago(Micros(*message.started_ago));
  if (message.ended_ago) ended.set_ended_us_ago(Micros(*message.ended_ago));
  ended.set_kept_folder(message.kept_folder);
  impl_->Send(std::move(out));
}
void Session::SetResources(const Resources& resources) { impl_->SetResources(resources); }
bool Session::connected() const { return impl_->connected(); }

}  // namespace gpulayer::worker
