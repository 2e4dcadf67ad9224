// Every open stream of the server, so that a stop or a revoked token ends them at once.
//
// Threads: every method from any thread. End() of a stream is called without a lock held, perhaps
// more than once, and must not wait. A stream that registers after EndAll(), or after the EndOf() of
// its token, is ended at once.
#ifndef GPULAYER_SERVER_RPC_STREAMS_H_
#define GPULAYER_SERVER_RPC_STREAMS_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace gpulayer::rpc {

class OpenStream {
 public:
  virtual ~OpenStream() = default;
  virtual void End(const Status& why) = 0;
};

class StreamRegistry {
 public:
  // `token_id` is that of the caller; empty for the unix socket.
  void Add(const std::shared_ptr<OpenStream>& stream, const std::string& token_id);
  void Remove(const OpenStream* stream);
  void EndAll(const Status& why);
  // Also those that were let in just before and register only now. Remembered for the latest thousand
  // tokens: the guard lets no revoked one in again.
  void EndOf(const std::string& token_id, const Status& why);
  std::size_t size();

 private:
  struct Entry {
    std::weak_ptr<OpenStream> stream;
    std::string token_id;
  };
  void EndWhere(const std::function<bool(const Entry&)>& which, const Status& why);

  Mutex mutex_;
  std::unordered_map<const OpenStream*, Entry> streams_ GPULAYER_GUARDED_BY(mutex_);
  std::optional<Status> ended_ GPULAYER_GUARDED_BY(mutex_);
  std::deque<std::pair<std::string, Status>> ended_tokens_ GPULAYER_GUARDED_BY(mutex_);  // by id
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_STREAMS_H_
