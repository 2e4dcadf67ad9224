#include "server/rpc/rpc_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "model/limits.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/addresses.h"
#include "server/rpc/respond.h"
#include "server/rpc/services.h"

namespace gpulayer::rpc {
namespace {

// Writes to a disk are few and long, reads of rows many and short: they do not wait for each other.
constexpr int kIoThreads = 4;
constexpr int kReaderThreads = 3;
// Of messages in memory; with it a flood of large requests is slowed down before it is read.
constexpr std::size_t kGrpcMemory = std::size_t{512} << 20;
constexpr auto kHandshakePatience = std::chrono::seconds(10);
constexpr auto kIdleConnection = std::chrono::minutes(2);  // without a call
constexpr auto kCallsMayEnd = std::chrono::seconds(2);

using Door = grpc::experimental::ExternalConnectionAcceptor;

std::unique_ptr<Door> AddDoor(grpc::ServerBuilder& builder,
                              const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  return builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
}

int Millis(Duration d) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
}

}  // namespace

struct RpcServer::Impl {
  Impl(Options options, std::unique_ptr<ReaderPool> reader_pool)
      : guard(options.tokens, options.local_user),
        trees(options.blobs),
        io("gl-io", kIoThreads),
        readers(std::move(reader_pool)),
        parts{options.engine,
              options.blobs,
              options.logs,
              options.tokens,
              options.secrets,
              options.clock,
              guard,
              io,
              *readers,
              timer,
              hub,
              streams,
              execs,
              trees,
              items,
              options.store.identity(),
              options.data_dir,
              options.core,
              options.exec_deadline,
              options.clock.Now().wall,
              {}} {}

  Guard guard;
  StreamRegistry streams;
  ExecSwitch execs;
  LogHub hub;
  Timer timer;
  Trees trees;
  LineFiles items{8};
  Pool io;
  std::unique_ptr<ReaderPool> readers;
  Parts parts;
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<Door> local;
  std::unique_ptr<Door> tls;  // null: there is no such listener
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Acceptor> acceptor;
  int port = 0;
};

Status CheckListen(const std::string& listen) {
  if (listen.empty()) return OkStatus();
  GPULAYER_ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(listen));
  return OpenListeners(where).status();
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RpcServer::~RpcServer() {
  Stop([] {});
}

Result<std::unique_ptr<RpcServer>> RpcServer::Start(Options options) {
  HostPort where;
  std::vector<UniqueFd> listeners;
  if (!options.listen.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(where, ParseHostPort(options.listen));
    GPULAYER_ASSIGN_OR_RETURN(listeners, OpenListeners(where));
  }
  GPULAYER_ASSIGN_OR_RETURN(std::unique_ptr<ReaderPool> readers,
                            ReaderPool::Open(options.store, kReaderThreads));
  auto impl = std::make_unique<Impl>(options, std::move(readers));
  Parts& parts = impl->parts;

  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxMessageBytes));
  builder.SetMaxSendMessageSize(static_cast<int>(limits::kMaxMessageBytes));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(limits::kKeepalive));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(limits::kKeepalive));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Half of what peers send their pings at: one that is a little early is not "too many".
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Millis(limits::kKeepalive) / 2);
  // Connections that say nothing take descriptors from those that do.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Millis(kHandshakePatience));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Millis(kIdleConnection));
  grpc::ResourceQuota quota("gpulayer-server");
  quota.Resize(kGrpcMemory);
  builder.SetResourceQuota(quota);

  impl->local = AddDoor(builder, grpc::InsecureServerCredentials());
  if (!options.listen.empty()) {
    grpc::SslServerCredentialsOptions ssl(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
    ssl.pem_key_cert_pairs.push_back({options.tls.key_pem, options.tls.chain_pem});
    impl->port = PortOf(listeners.front().get());
    impl->tls = AddDoor(builder, grpc::SslServerCredentials(ssl));
  }
  for (auto* make : {MakeJobsService, MakeLogsService, MakeArtifactsService, MakeWorkersService,
                     MakeExecService, MakeAdminService}) {
    impl->services.push_back(make(parts));
    builder.RegisterService(impl->services.back().get());
  }
  if (where.port > 0) parts.addresses = ReachableAddresses(where.host, where.port);
  impl->server = builder.BuildAndStart();
  if (!impl->server) return Unavailable("start the server: gRPC refused, the log says why");
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd socket, OpenUnixListener(options.socket_path));
  const int local_listener = socket.get();
  listeners.insert(listeners.begin(), std::move(socket));
  GPULAYER_ASSIGN_OR_RETURN(
      impl->acceptor, Acceptor::Start(std::move(listeners), [parts = impl.get(), local_listener](
                                                                int listener, int fd) {
        Door::NewConnectionParameters taken;
        taken.listener_fd = listener;
        taken.fd = fd;
        (listener == local_listener ? parts->local : parts->tls)->HandleNewConnection(&taken);
      }));
  std::unique_ptr<RpcServer> server(new RpcServer(std::move(impl)));
  // A port drawn by the kernel is known to nobody yet, so nobody reads this meanwhile.
  if (where.port == 0 && server->impl_->port > 0) {
    parts.addresses = ReachableAddresses(where.host, server->impl_->port);
  }
  return server;
}

int RpcServer::port() const { return impl_->port; }

const std::vector<std::string>& RpcServer::addresses() const { return impl_->parts.addresses; }

void RpcServer::Stop(const std::function<void()>& drain) {
  if (!impl_->server) return;
  impl_->guard.RefuseAll();
  impl_->streams.EndAll(StoppingStatus());
  drain();
  if (impl_->acceptor) impl_->acceptor->Stop();
  impl_->server->Shutdown(std::chrono::system_clock::now() + kCallsMayEnd);
  impl_->timer.Stop();
  impl_->io.Stop();
  impl_->readers->Stop();
  impl_->acceptor.reset();
  impl_->server.reset();
}

}  // namespace gpulayer::rpc
