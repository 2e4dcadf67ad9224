#include "server/rpc/pool.h"

#include <pthread.h>

#include <utility>

namespace gpulayer::rpc {
namespace {

constexpr auto kForEver =
    std::chrono::hours(1);  // a wake an hour costs nothing; Close() ends the wait at once

void NameThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

template <typename Job, typename Run>
void Serve(BoundedQueue<Job>& queue, Run run) {
  for (;;) {
    std::vector<Job> jobs = queue.TakeUpTo(1, kForEver);
    if (jobs.empty()) {
      if (queue.closed()) return;
      continue;
    }
    run(jobs.front());
  }
}

}  // namespace

Pool::Pool(const std::string& name, int threads) : queue_(kPoolQueue) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name] {
      NameThread(name);
      Serve(queue_, [](Job& job) { job(); });
    });
  }
}

Pool::~Pool() { Stop(); }

Status Pool::Post(Job job) { return queue_.TryPush(std::move(job)); }

void Pool::Stop() {
  queue_.Close();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

Result<std::unique_ptr<ReaderPool>> ReaderPool::Open(Store& store, int threads) {
  std::unique_ptr<ReaderPool> pool(new ReaderPool());
  for (int i = 0; i < threads; ++i) {
    GPULAYER_ASSIGN_OR_RETURN(std::unique_ptr<StoreReader> reader, store.OpenReader());
    pool->threads_.emplace_back([self = pool.get(), own = std::move(reader)] {
      NameThread("gl-read");
      Serve(self->queue_, [&own](Job& job) { job(*own); });
    });
  }
  return pool;
}

ReaderPool::~ReaderPool() { Stop(); }

Status ReaderPool::Post(Job job) { return queue_.TryPush(std::move(job)); }

void ReaderPool::Stop() {
  queue_.Close();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace gpulayer::rpc
