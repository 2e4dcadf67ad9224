#include "client/grpc_transport.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <utility>

#include "base/text.h"
#include "base/thread.h"
#include "client/proto_text.h"
#include "client/tls_probe.h"
#include "gpulayer/v1/admin.grpc.pb.h"
#include "gpulayer/v1/artifacts.grpc.pb.h"
#include "gpulayer/v1/exec.grpc.pb.h"
#include "gpulayer/v1/jobs.grpc.pb.h"
#include "gpulayer/v1/logs.grpc.pb.h"
#include "gpulayer/v1/workers.grpc.pb.h"
#include "model/limits.h"
#include "model/token.h"
#include "wire/status_code.h"

namespace gpulayer::client {
namespace {

using google::protobuf::MessageLite;
using std::chrono::milliseconds;

// A server that is near has answered by then; of another one it is looked whether its address does.
constexpr milliseconds kNear{500};

std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint) {
  grpc::ChannelArguments args;
  const auto ms = [](auto d) {
    return static_cast<int>(std::chrono::duration_cast<milliseconds>(d).count());
  };
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxMessageBytes));
  args.SetMaxSendMessageSize(static_cast<int>(limits::kMaxMessageBytes));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ms(limits::kKeepalive));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms(limits::kKeepalive));
  // Also how long one attempt to connect may take.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, ms(limits::kAnswerDeadline));
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Clients of one process to one address are not to share a dead connection's back-off.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // ours, above, know what may be repeated
  if (!endpoint.socket.empty()) {
    return grpc::CreateCustomChannel("unix:" + endpoint.socket, grpc::InsecureChannelCredentials(),
                                     args);
  }
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = endpoint.ca_pem;
  args.SetSslTargetNameOverride(kTlsServerName);
  return grpc::CreateCustomChannel(endpoint.address, grpc::SslCredentials(ssl), args);
}

// Channel, metadata and the reading of failures: shared with streams, which may outlive a call.
class Link {
 public:
  explicit Link(Endpoint endpoint)
      : endpoint_(std::move(endpoint)), channel_(MakeChannel(endpoint_)) {}

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  void Prepare(grpc::ClientContext& context) const {
    if (!endpoint_.credential.empty()) {
      context.AddMetadata("authorization", "Bearer " + endpoint_.credential);
    }
  }

  // Waits for a connection, so that a failure can be told from a server's answer. An address that
  // takes no connection is given up first; one that does may be at the end of a slow link.
  Status Connect(const InterruptPtr& interrupt) {
    // gRPC does not survive a fork: a call of the child's would take answers of the parent's.
    if (::getpid() != owner_) {
      return FailedPrecondition(
          "this client belongs to the parent process. Connect anew in the child.");
    }
    const auto begin = std::chrono::system_clock::now();
    const Duration patience = Patience();
    const auto deadline = begin + std::chrono::duration_cast<milliseconds>(patience);
    bool diagnosed = false;
    bool reached = !endpoint_.socket.empty();  // the address takes connections
    std::future<Status> dialled;
    for (;;) {
      const grpc_connectivity_state state = channel_->GetState(true);
      if (state == GRPC_CHANNEL_READY) return OkStatus();
      if (Thrown(interrupt))
        return Cancelled("connect to " + ToString(endpoint_) + ": interrupted");
      const auto now = std::chrono::system_clock::now();
      if (now >= deadline) {
        if (!endpoint_.socket.empty()) GPULAYER_RETURN_IF_ERROR(Diagnose(interrupt));
        return Silent(ToString(endpoint_), patience);
      }
      if (!reached && !dialled.valid() && now - begin >= kNear) dialled = Dial();
      if (dialled.valid() && dialled.wait_for(milliseconds(0)) == std::future_status::ready) {
        GPULAYER_RETURN_IF_ERROR(dialled.get());
        reached = true;
      }
      // What failed before may be well by now: a server that came back. The channel stays in this
      // state until it is connected again, and only comes on while somebody waits for it.
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE && !std::exchange(diagnosed, true)) {
        const Status found = Diagnose(interrupt);
        if (!Thrown(interrupt)) GPULAYER_RETURN_IF_ERROR(found);
      }
      const auto slice = now + milliseconds(50);  // an interrupt is looked for this often
      channel_->WaitForStateChange(state, std::min<decltype(deadline)>(deadline, slice));
    }
  }

  Duration Patience() const {
    return endpoint_.socket.empty() ? limits::kAnswerDeadline : limits::kConnectDeadline;
  }

  // A connection of our own to the address, closed at once: whether it takes any. In a thread that
  // nobody has to wait for: it ends within kConnectDeadline, and holds copies alone. Not valid: there
  // is no thread to be had.
  std::future<Status> Dial() const {
    std::packaged_task<Status()> task([address = endpoint_.address]() -> Status {
      GPULAYER_ASSIGN_OR_RETURN(const HostPort host, ParseAddress(address));
      const SteadyTime end = std::chrono::steady_clock::now() + (limits::kConnectDeadline - kNear);
      GPULAYER_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(host, end));
      return ConnectAny(host, addresses, end).status();
    });
    std::future<Status> result = task.get_future();
    std::thread dialler = TryThread(std::move(task));
    if (!dialler.joinable()) return {};
    dialler.detach();
    return result;
  }

  // OK: nothing is in the way now.
  Status Diagnose(const InterruptPtr& interrupt) const {
    if (!endpoint_.socket.empty()) return DiagnoseSocket(endpoint_.socket);
    Result<HostPort> address = ParseAddress(endpoint_.address);
    if (!address.ok()) return address.status();
    return DiagnoseTls(*address, endpoint_.ca_pem,
                       {limits::kConnectDeadline, limits::kConnectDeadline, interrupt});
  }

  Status FromGrpc(const grpc::Status& status, const char* what,
                  const InterruptPtr& interrupt) const {
    if (status.ok()) return OkStatus();
    const std::string& text = status.error_message();
    const std::string server = "server " + ToString(endpoint_) + ": ";
    switch (status.error_code()) {
      case grpc::StatusCode::CANCELLED:
        if (Thrown(interrupt)) return Cancelled(std::string(what) + ": interrupted");
        return Unavailable(server + "the connection was lost. Try again.");
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return DeadlineExceeded(server + "no answer to \"" + what +
                                "\" in time. Try again, or look at its log.");
      case grpc::StatusCode::UNIMPLEMENTED:
        return Unimplemented(server + "it does not know \"" + what + "\". Upgrade it.");
      case grpc::StatusCode::UNAVAILABLE:
        if (IsTransportText(text))
          return Unavailable(server + "the connection was lost. Try again.");
        return Unavailable(text);
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        if (text.find("message larger than max") != std::string::npos) {
          return ResourceExhausted(std::string(what) + ": a message is over the limit of " +
                                   FormatSize(static_cast<std::int64_t>(limits::kMaxMessageBytes)) +
                                   ". Ask for less at once.");
        }
        return ResourceExhausted(text);
      case grpc::StatusCode::INTERNAL:
      case grpc::StatusCode::UNKNOWN:
        if (IsTransportText(text))
          return Unavailable(server + "the connection was lost. Try again.");
        [[fallthrough]];
      default: return {wire::FromWireCode(static_cast<int>(status.error_code())), text};
    }
  }

 private:
  // gRPC's own words for a link that broke; no server of ours says them.
  static bool IsTransportText(const std::string& text) {
    for (const char* part :
         {"failed to connect", "Connection reset", "Socket closed", "Broken pipe", "GOAWAY",
          "keepalive", "transport", "Endpoint", "recvmsg", "sendmsg", "RST_STREAM", "connections",
          "Received http2", "Stream removed", "DNS resolution", "EOF", "Handshake"}) {
      if (text.find(part) != std::string::npos) return true;
    }
    return text.empty();
  }

  const pid_t owner_ = ::getpid();
  const Endpoint endpoint_;
  const std::shared_ptr<grpc::Channel> channel_;
};

template <typename T>
class GrpcRead : public ReadStream<T> {
 public:
  // `open` starts the call on the context.
  template <typename Open>
  GrpcRead(std::shared_ptr<Link> link, const char* what, InterruptPtr interrupt, Open open)
      : link_(std::move(link)),
        what_(what),
        interrupt_(std::move(interrupt)),
        end_(link_->Connect(interrupt_)) {
    if (!end_.ok()) return;
    link_->Prepare(context_);
    wake_.emplace(interrupt_, [this] { context_.TryCancel(); });
    reader_ = open(&context_);
  }
  ~GrpcRead() override {
    if (!reader_) return;
    context_.TryCancel();
    T rest;
    while (reader_->Read(&rest)) {
    }
    reader_->Finish();
  }

  Result<std::optional<T>> Read() override {
    if (ended_) return std::optional<T>();
    if (!end_.ok()) return end_;
    T message;
    if (reader_->Read(&message)) return std::optional<T>(std::move(message));
    end_ = link_->FromGrpc(reader_->Finish(), what_, interrupt_);
    reader_.reset();
    ended_ = end_.ok();
    if (!end_.ok()) return end_;
    return std::optional<T>();
  }

  void Break() override { context_.TryCancel(); }

 private:
  const std::shared_ptr<Link> link_;
  const char* const what_;
  const InterruptPtr interrupt_;
  Status end_;
  bool ended_ = false;
  grpc::ClientContext context_;
  std::optional<WakeScope> wake_;  // after the context, so that it goes first
  std::unique_ptr<grpc::ClientReader<T>> reader_;
};

class GrpcUpload : public UploadStream {
 public:
  GrpcUpload(std::shared_ptr<Link> link, v1::Artifacts::Stub& stub, InterruptPtr interrupt)
      : link_(std::move(link)), interrupt_(std::move(interrupt)), end_(link_->Connect(interrupt_)) {
    if (!end_.ok()) return;
    link_->Prepare(context_);
    wake_.emplace(interrupt_, [this] { context_.TryCancel(); });
    writer_ = stub.Upload(&context_, &reply_);
  }
  ~GrpcUpload() override {
    if (!writer_) return;
    context_.TryCancel();
    writer_->Finish();
  }

  bool Write(const v1::UploadChunk& chunk) override { return writer_ && writer_->Write(chunk); }

  Result<v1::UploadReply> Finish() override {
    if (writer_) {
      writer_->WritesDone();
      end_ = link_->FromGrpc(writer_->Finish(), "upload", interrupt_);
      writer_.reset();
    }
    if (!end_.ok()) return end_;
    return reply_;
  }

 private:
  const std::shared_ptr<Link> link_;
  const InterruptPtr interrupt_;
  Status end_;
  grpc::ClientContext context_;
  v1::UploadReply reply_;
  std::optional<WakeScope> wake_;
  std::unique_ptr<grpc::ClientWriter<v1::UploadChunk>> writer_;
};

class GrpcExec : public ExecStream {
 public:
  GrpcExec(std::shared_ptr<Link> link, v1::Exec::Stub& stub, InterruptPtr interrupt)
      : link_(std::move(link)), interrupt_(std::move(interrupt)), end_(link_->Connect(interrupt_)) {
    if (!end_.ok()) return;
    link_->Prepare(context_);
    wake_.emplace(interrupt_, [this] { context_.TryCancel(); });
    stream_ = stub.Run(&context_);
  }
  ~GrpcExec() override {
    if (!stream_ || over_) return;
    context_.TryCancel();
    v1::ExecOutput rest;
    while (stream_->Read(&rest)) {
    }
    stream_->Finish();
  }

  bool Write(const v1::ExecInput& message) override {
    return stream_ && !over_ && stream_->Write(message);
  }

  // The stream stays until the end of this: a Write may be under way.
  Result<std::optional<v1::ExecOutput>> Read() override {
    if (stream_ && !over_) {
      v1::ExecOutput message;
      if (stream_->Read(&message)) return std::optional<v1::ExecOutput>(std::move(message));
      over_ = true;
      end_ = link_->FromGrpc(stream_->Finish(), "exec", interrupt_);
      if (!end_.ok() && broken_) end_ = Cancelled("exec: hung up");
    }
    if (!end_.ok()) return end_;
    return std::optional<v1::ExecOutput>();
  }

  void Break() override {
    broken_ = true;
    context_.TryCancel();
  }

 private:
  const std::shared_ptr<Link> link_;
  const InterruptPtr interrupt_;
  Status end_;
  std::atomic<bool> over_{false};
  std::atomic<bool> broken_{false};
  grpc::ClientContext context_;
  std::optional<WakeScope> wake_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecInput, v1::ExecOutput>> stream_;
};

class GrpcTransport : public Transport {
 public:
  explicit GrpcTransport(Endpoint endpoint)
      : link_(std::make_shared<Link>(std::move(endpoint))),
        jobs_(link_->channel()),
        logs_(link_->channel()),
        artifacts_(link_->channel()),
        workers_(link_->channel()),
        exec_(link_->channel()),
        admin_(link_->channel()) {}

  Status Call(Method method, const MessageLite& request, MessageLite* reply,
              const CallOptions& options) override {
    GPULAYER_RETURN_IF_ERROR(CheckText(request));
    GPULAYER_RETURN_IF_ERROR(link_->Connect(options.interrupt));
    grpc::ClientContext context;
    link_->Prepare(context);
    const auto left = options.deadline - std::chrono::steady_clock::now();
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::microseconds>(left));
    WakeScope wake(options.interrupt, [&context] { context.TryCancel(); });
    const grpc::Status status = Dispatch(method, &context, request, reply);
    return link_->FromGrpc(status, ToString(method), options.interrupt);
  }

  std::unique_ptr<ReadStream<v1::LogChunk>> ReadLogs(const v1::ReadLogsRequest& request,
                                                     InterruptPtr interrupt) override {
    return std::make_unique<GrpcRead<v1::LogChunk>>(
        link_, "read log", std::move(interrupt),
        [&](grpc::ClientContext* context) { return logs_.Read(context, request); });
  }
  std::unique_ptr<ReadStream<v1::GetJobReply>> Watch(const v1::WatchRequest& request,
                                                     InterruptPtr interrupt) override {
    return std::make_unique<GrpcRead<v1::GetJobReply>>(
        link_, "watch", std::move(interrupt),
        [&](grpc::ClientContext* context) { return jobs_.Watch(context, request); });
  }
  std::unique_ptr<ReadStream<v1::DownloadChunk>> Download(const v1::DownloadRequest& request,
                                                          InterruptPtr interrupt) override {
    return std::make_unique<GrpcRead<v1::DownloadChunk>>(
        link_, "download", std::move(interrupt),
        [&](grpc::ClientContext* context) { return artifacts_.Download(context, request); });
  }
  std::unique_ptr<UploadStream> Upload(InterruptPtr interrupt) override {
    return std::make_unique<GrpcUpload>(link_, artifacts_, std::move(interrupt));
  }
  std::unique_ptr<ExecStream> Exec(InterruptPtr interrupt) override {
    return std::make_unique<GrpcExec>(link_, exec_, std::move(interrupt));
  }

 private:
  template <typename Stub, typename Request, typename Reply>
  static grpc::Status Unary(
      Stub& stub, grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Reply*),
      grpc::ClientContext* context, const MessageLite& request, MessageLite* reply) {
    return (stub.*call)(context, static_cast<const Request&>(request), static_cast<Reply*>(reply));
  }

  grpc::Status Dispatch(Method method, grpc::ClientContext* context, const MessageLite& request,
                        MessageLite* reply) {
    using J = v1::Jobs::Stub;
    using A = v1::Admin::Stub;
    switch (method) {
      case Method::kSubmit: return Unary(jobs_, &J::Submit, context, request, reply);
      case Method::kCancel: return Unary(jobs_, &J::Cancel, context, request, reply);
      case Method::kListJobs: return Unary(jobs_, &J::List, context, request, reply);
      case Method::kGetJob: return Unary(jobs_, &J::Get, context, request, reply);
      case Method::kExplain: return Unary(jobs_, &J::Explain, context, request, reply);
      case Method::kMissing:
        return Unary(artifacts_, &v1::Artifacts::Stub::Missing, context, request, reply);
      case Method::kListWorkers:
        return Unary(workers_, &v1::Workers::Stub::List, context, request, reply);
      case Method::kExchange: return Unary(admin_, &A::Exchange, context, request, reply);
      case Method::kStatus: return Unary(admin_, &A::Status, context, request, reply);
      case Method::kCreateToken: return Unary(admin_, &A::CreateToken, context, request, reply);
      case Method::kListTokens: return Unary(admin_, &A::ListTokens, context, request, reply);
      case Method::kRevokeToken: return Unary(admin_, &A::RevokeToken, context, request, reply);
    }
    return {grpc::StatusCode::INTERNAL, "no such method"};
  }

  const std::shared_ptr<Link> link_;
  v1::Jobs::Stub jobs_;
  v1::Logs::Stub logs_;
  v1::Artifacts::Stub artifacts_;
  v1::Workers::Stub workers_;
  v1::Exec::Stub exec_;
  v1::Admin::Stub admin_;
};

}  // namespace

const char* ToString(Method method) {
  switch (method) {
    case Method::kSubmit: return "submit";
    case Method::kCancel: return "cancel";
    case Method::kListJobs: return "list jobs";
    case Method::kGetJob: return "show job";
    case Method::kExplain: return "explain job";
    case Method::kMissing: return "ask what is missing";
    case Method::kListWorkers: return "list workers";
    case Method::kExchange: return "exchange token";
    case Method::kStatus: return "status";
    case Method::kCreateToken: return "create token";
    case Method::kListTokens: return "list tokens";
    case Method::kRevokeToken: return "revoke token";
  }
  return "call";
}

bool IsIdempotent(Method method) {
  // A second exchange or token would be another credential that nobody knows of.
  return method != Method::kExchange && method != Method::kCreateToken;
}

std::string ToString(const Endpoint& endpoint) {
  return endpoint.socket.empty() ? endpoint.address : "at " + endpoint.socket;
}

std::unique_ptr<Transport> MakeGrpcTransport(Endpoint endpoint) {
  return std::make_unique<GrpcTransport>(std::move(endpoint));
}

}  // namespace gpulayer::client
