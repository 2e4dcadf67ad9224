// A stream that is read by a thread of its own, a few messages ahead of who uses it: receiving (and
// decrypting) goes on while the message before is hashed and written.
#ifndef GPULAYER_CLIENT_READ_AHEAD_H_
#define GPULAYER_CLIENT_READ_AHEAD_H_

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"
#include "client/transport.h"

namespace gpulayer::client {

template <typename T>
class ReadAhead {
 public:
  explicit ReadAhead(std::unique_ptr<ReadStream<T>> inner)
      : inner_(std::move(inner)), thread_(TryThread([this] { Run(); })) {}
  ~ReadAhead() {
    {
      MutexLock lock(mutex_);
      broken_ = true;
    }
    changed_.NotifyAll();
    inner_->Break();
    if (thread_.joinable()) thread_.join();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // As the stream's own.
  Result<std::optional<T>> Read() {
    if (!thread_.joinable()) return inner_->Read();  // none to be had
    MutexLock lock(mutex_);
    while (ready_.empty()) changed_.Wait(mutex_);
    Result<std::optional<T>> next = std::move(ready_.front());
    if (!next.ok() || !next->has_value()) {
      ready_.front() = next;  // the end stays
    } else {
      ready_.pop_front();
      changed_.NotifyAll();
    }
    return next;
  }

 private:
  static constexpr std::size_t kAhead = 2;

  void Run() {
    for (bool more = true; more;) {
      Result<std::optional<T>> next = inner_->Read();
      more = next.ok() && next->has_value();
      MutexLock lock(mutex_);
      while (ready_.size() >= kAhead && !broken_) changed_.Wait(mutex_);
      ready_.push_back(std::move(next));
      more = more && !broken_;
      changed_.NotifyAll();
    }
  }

  const std::unique_ptr<ReadStream<T>> inner_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Result<std::optional<T>>> ready_ GPULAYER_GUARDED_BY(mutex_);
  bool broken_ GPULAYER_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_READ_AHEAD_H_
