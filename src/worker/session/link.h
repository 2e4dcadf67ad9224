// The way to one server: a channel that connects by itself, and the credential of every call.
//
// Threads:   values; any thread may call on the channel.
#ifndef GPULAYER_WORKER_SESSION_LINK_H_
#define GPULAYER_WORKER_SESSION_LINK_H_

#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace grpc {
class Channel;
class ClientContext;
class Status;
}  // namespace grpc

namespace gpulayer::worker {

struct ServerAddress {
  std::string server;      // "unix:/path" or "host:port"
  std::string ca_pem;      // empty on unix
  std::string credential;  // empty on unix
};

// Where the server takes files by a link, if it is on this machine: what its last Welcome said.
class DropFolder {
 public:
  struct Place {
    std::string dir;    // empty: there is none
    std::string proof;  // a file that is in it if it is the server's folder indeed
  };
  void Set(Place place) {
    MutexLock lock(mutex_);
    place_ = std::move(place);
  }
  Place Get() {
    MutexLock lock(mutex_);
    return place_;
  }

 private:
  Mutex mutex_;
  Place place_ GPULAYER_GUARDED_BY(mutex_);
};

struct ServerLink {
  std::string server;
  std::string credential;
  std::shared_ptr<grpc::Channel> channel;
  std::shared_ptr<DropFolder> drop;
};

// Connects later, on first use. INVALID_ARGUMENT: no address, or TCP without the server's CA.
Result<ServerLink> OpenLink(const ServerAddress& address);

// For every call on the link.
void Authorise(const ServerLink& link, grpc::ClientContext& context);
Status FromGrpc(const grpc::Status& status);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_LINK_H_
