#include "server/server.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/fs.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/log.h"
#include "server/blob/blob_store.h"
#include "server/blob/log_store.h"
#include "server/engine.h"
#include "server/rpc/rpc_server.h"
#include "server/security/secret_store.h"
#include "server/security/tls.h"
#include "server/security/tokens.h"

namespace gpulayer {
namespace {

constexpr std::size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;  // 107, the kernel's

// Who owns the socket: the account that this server runs as.
UserName AccountName() {
  passwd entry{};
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr) {
    return UserName(found->pw_name);
  }
  return UserName("uid-" + std::to_string(geteuid()));
}

Status CheckWritable(const std::string& dir) {
  if (access(dir.c_str(), W_OK | X_OK) == 0) return OkStatus();
  return ErrnoStatus("write to data directory " + dir, errno);
}

// Where the socket of a data directory lies: in it, or, over the kernel's limit for such paths, in
// a folder of its own.
Result<std::string> SocketPath(const std::string& data_dir) {
  const std::string usual = JoinPath(data_dir, "server.sock");
  if (usual.size() <= kMaxSocketPath) return usual;
  const std::string name = Hash::Of(data_dir).hex().substr(0, 12);
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string dir =
      runtime != nullptr && *runtime == '/' ? JoinPath(runtime, "gpulayer-" + name) : "";
  if (dir.empty() || dir.size() + 20 > kMaxSocketPath || access(runtime, W_OK | X_OK) != 0) {
    dir = "/tmp/gpulayer-" + std::to_string(geteuid()) + "-" + name;
  }
  GPULAYER_RETURN_IF_ERROR(MakePrivateDir(dir));
  return JoinPath(dir, "server.sock");
}

Status Hinted(const Status& status) {
  if (status.ok()) return status;
  return {status.code(), "data directory: " + status.message() +
                             ". Choose another with --data-dir, or let this account write there."};
}

Result<FileLock> LockDataDir(const std::string& data_dir, const std::string& server_dir) {
  std::string pid;
  Result<FileLock> lock = FileLock::AcquireWithPid(JoinPath(server_dir, "lock"), &pid);
  if (lock.status().code() == StatusCode::kFailedPrecondition) {
    return FailedPrecondition(
        "data directory " + data_dir + " is in use by pid " + (pid.empty() ? "(unknown)" : pid) +
        ". Stop that server with `gpulayer down`, or choose another --data-dir.");
  }
  return lock;
}

}  // namespace

// Members are built from the top down and torn down from the bottom up.
class Server::Impl {
 public:
  explicit Impl(ServerOptions opts) : options(std::move(opts)) {}
  ~Impl() { Stop(); }

  Status Start() {
    GPULAYER_ASSIGN_OR_RETURN(options.data_dir, DataDir(options.data_dir));
    const std::string& data_dir = options.data_dir;
    server_dir = JoinPath(data_dir, "server");
    GPULAYER_RETURN_IF_ERROR(Hinted(MakeDirs(data_dir, 0700)));
    GPULAYER_RETURN_IF_ERROR(Hinted(CheckWritable(data_dir)));
    GPULAYER_RETURN_IF_ERROR(Hinted(CloseToWriters(data_dir)));
    GPULAYER_RETURN_IF_ERROR(Hinted(MakePrivateDir(server_dir)));
    GPULAYER_ASSIGN_OR_RETURN(FileLock held, LockDataDir(data_dir, server_dir));
    lock.emplace(std::move(held));
    if (options.on_locked) options.on_locked();
    // Before anything is made: what cannot be served leaves nothing behind.
    GPULAYER_RETURN_IF_ERROR(rpc::CheckListen(options.listen));
    IgnoreError(RemoveTree(JoinPath(server_dir, "endpoint.json")),
                "of a server that died; written again below");

    const Durability durability = options.durable ? Durability::kSync : Durability::kNone;
    Clock& clock = Clock::System();
    GPULAYER_ASSIGN_OR_RETURN(
        tls, security::LoadOrMakeTls(JoinPath(server_dir, "tls"), clock.Now().wall, durability));
    GPULAYER_ASSIGN_OR_RETURN(store,
                              Store::Open({JoinPath(server_dir, "server.db"), options.durable}));
    GPULAYER_ASSIGN_OR_RETURN(blobs,
                              BlobStore::Open({JoinPath(server_dir, "blobs"), options.durable}));
    GPULAYER_ASSIGN_OR_RETURN(logs, LogStore::Open(JoinPath(server_dir, "logs"), options.durable));
    GPULAYER_ASSIGN_OR_RETURN(tokens,
                              security::TokenAuthority::Open(*store, clock, tls.ca_fingerprint));
    GPULAYER_ASSIGN_OR_RETURN(
        secrets, security::SecretStore::Open(JoinPath(server_dir, "secrets/v1"),
                                             JoinPath(server_dir, "tls/secrets.key"), durability));
    GPULAYER_ASSIGN_OR_RETURN(
        engine, Engine::Start({options.core,
                               [this](const std::set<std::string>& references) {
                                 secrets->KeepOnly(references);
                               },
                               [this](const std::string& reference) { secrets->Erase(reference); }},
                              *store, clock));

    GPULAYER_ASSIGN_OR_RETURN(const std::string socket, SocketPath(data_dir));
    // Bound in a folder that nobody else can enter, then moved: it is never open to others, not for
    // a moment.
    if (DirName(socket) != data_dir) moved_dir = DirName(socket);
    const std::string private_socket = JoinPath(moved_dir.empty() ? server_dir : moved_dir, "s");
    IgnoreError(RemoveTree(private_socket), "of a start that was killed");
    auto started = rpc::RpcServer::Start({private_socket, options.listen, tls, AccountName(),
                                          data_dir, options.core, options.exec_deadline, *engine,
                                          *store, *blobs, *logs, *tokens, *secrets, clock});
    Status bound = started.status();
    if (started.ok()) rpc = *std::move(started);
    if (bound.ok() && rename(private_socket.c_str(), socket.c_str()) != 0) {
      bound = ErrnoStatus("make " + socket, errno);
    }
    if (!bound.ok()) unlink(private_socket.c_str());
    GPULAYER_RETURN_IF_ERROR(bound);
    socket_path = socket;
    return WriteEndpoint(durability);
  }

  void Stop() {
    if (rpc) {
      rpc->Stop([this] { engine->Stop(); });
      rpc.reset();
    }
    if (engine) engine->Stop();
    if (!socket_path.empty()) {
      IgnoreError(RemoveTree(JoinPath(server_dir, "endpoint.json")),
                  "it is made anew at the next start");
      unlink(socket_path.c_str());
      socket_path.clear();
    }
    if (!moved_dir.empty()) rmdir(moved_dir.c_str());
    engine.reset();
    secrets.reset();
    tokens.reset();
    logs.reset();
    blobs.reset();
    store.reset();
    lock.reset();
  }

  // What the tools of this machine look for; written last, so whoever sees it can connect.
  Status WriteEndpoint(Durability durability) const {
    // Of this directory and none that it is copied to.
    struct stat held{};
    if (fstat(lock->fd().get(), &held) != 0) return ErrnoStatus("look at the lock", errno);
    const nlohmann::json endpoint = {{"pid", getpid()},
                                     {"lock_inode", std::uint64_t{held.st_ino}},
                                     {"socket", socket_path},
                                     {"port", rpc->port()},
                                     {"addresses", rpc->addresses()},
                                     {"server", store->identity().uuid}};
    return WriteFileAtomic(
        JoinPath(server_dir, "endpoint.json"),
        endpoint.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", 0600,
        durability);
  }

  ServerOptions options;
  std::string server_dir;
  std::string socket_path;  // empty until it is there
  std::string moved_dir;    // the socket's own folder; empty: it lies in the data directory
  std::optional<FileLock> lock;
  security::TlsIdentity tls;
  std::unique_ptr<Store> store;
  std::unique_ptr<BlobStore> blobs;
  std::unique_ptr<LogStore> logs;
  std::unique_ptr<security::TokenAuthority> tokens;
  std::unique_ptr<security::SecretStore> secrets;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<rpc::RpcServer> rpc;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { Stop(); }

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  GPULAYER_RETURN_IF_ERROR(impl->Start());
  LogInfo("serving " + impl->options.data_dir + " on " + impl->socket_path +
          (impl->rpc->port() > 0 ? " and port " + std::to_string(impl->rpc->port()) : ""));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

int Server::port() const { return impl_->rpc ? impl_->rpc->port() : 0; }

std::string Server::socket_path() const { return impl_->socket_path; }

std::vector<std::string> Server::addresses() const {
  return impl_->rpc ? impl_->rpc->addresses() : std::vector<std::string>();
}

std::string Server::ca_pem() const { return impl_->tls.ca_pem; }

Result<std::string> Server::CreateToken(Role role, UserName user, std::optional<Duration> life) {
  if (!impl_->tokens) return Unavailable("make a token: the server is stopped");
  GPULAYER_ASSIGN_OR_RETURN(security::TokenAuthority::Made made,
                            impl_->tokens->Create(role, std::move(user), life));
  return std::move(made.text);
}

void Server::Stop() { impl_->Stop(); }

}  // namespace gpulayer
