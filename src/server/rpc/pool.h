// Threads for what must not run on gRPC's few threads: files, and reads of the database.
//
// Threads:   Post from any thread; never waits.
// Ownership: a job that was taken is run once. Stop() runs what is queued, then joins; a Post after
//            it is refused.
// Errors:    RESOURCE_EXHAUSTED when the queue is full, CANCELLED after Stop().
#ifndef GPULAYER_SERVER_RPC_POOL_H_
#define GPULAYER_SERVER_RPC_POOL_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "base/status.h"
#include "server/store/store.h"

namespace gpulayer::rpc {

// Each stream has at most one job here and each unary call one, so this bounds calls, not work.
inline constexpr std::size_t kPoolQueue = 65'536;

class Pool {
 public:
  using Job = std::function<void()>;
  Pool(const std::string& name, int threads);
  ~Pool();  // Stop()

  Status Post(Job job);
  void Stop();

 private:
  BoundedQueue<Job> queue_;
  std::vector<std::thread> threads_;
};

// The same with a database reader per thread.
class ReaderPool {
 public:
  using Job = std::function<void(StoreReader&)>;
  static Result<std::unique_ptr<ReaderPool>> Open(Store& store, int threads);
  ~ReaderPool();  // Stop()

  Status Post(Job job);
  void Stop();

 private:
  ReaderPool() : queue_(kPoolQueue) {}
  BoundedQueue<Job> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_POOL_H_
