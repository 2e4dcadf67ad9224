// How handlers answer: exactly once, also when what should have answered was dropped on the way.
#ifndef GPULAYER_SERVER_RPC_RESPOND_H_
#define GPULAYER_SERVER_RPC_RESPOND_H_

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/fault_point.h"
#include "base/status.h"
#include "server/engine.h"
#include "wire/status_code.h"

namespace gpulayer::rpc {

inline grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(wire::ToWireCode(status.code())), status.message()};
}

inline Status StoppingStatus() { return Unavailable(kServerIsStopping); }

// Engine and pools refuse with CANCELLED once they are stopped.
inline Status Refusal(const Status& status) {
  return status.code() == StatusCode::kCancelled ? StoppingStatus() : status;
}

// What one reply of a list may hold: well below the limit of a message.
inline constexpr std::int64_t kPageItems = 1'000;
inline constexpr std::size_t kPageBytes = std::size_t{2} << 20;

inline std::int64_t PageSize(std::int64_t limit) {
  return limit == 0 ? kPageItems : std::min(limit, kPageItems);
}

// The right to finish one unary call. Shared by the callbacks that may do it; if all of them are
// dropped unused (a queue that was closed) the caller is told that the server is stopping. Threads:
// any; the first Finish() counts.
class Responder {
 public:
  explicit Responder(grpc::ServerUnaryReactor* reactor) : reactor_(reactor) {}
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;
  ~Responder() { Finish(StoppingStatus()); }

  void Finish(const Status& status) {
    if (done_.exchange(true)) return;
    FaultPoint("server.before_reply");
    reactor_->Finish(ToGrpc(status));
  }

 private:
  grpc::ServerUnaryReactor* const reactor_;
  std::atomic<bool> done_{false};
};
using ResponderPtr = std::shared_ptr<Responder>;

inline grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context,
                                           const Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// A stream that was refused.
template <typename Reactor>
class Refused final : public Reactor {
 public:
  explicit Refused(const Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_RESPOND_H_
