// Reads the logs of running attempts for the agent: one piece for each wish, when there is one.
#ifndef GPULAYER_WORKER_LOG_READER_H_
#define GPULAYER_WORKER_LOG_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/mutex.h"
#include "model/ids.h"
#include "worker/agent/agent.h"
#include "worker/logs/log_tail.h"
#include "worker/pool.h"

namespace gpulayer::worker {

// Threads:   every method from any thread. Two threads of its own: one waits for logs to grow, one
//            reads. `sink` runs on the latter.
// Blocking:  Want() and Drop() never wait. Memory: one piece for each wish.
class LogReader {
 public:
  using Sink = std::function<void(Event)>;  // LogRead or LogFailed
  explicit LogReader(Sink sink);
  ~LogReader();
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

  // The next piece at `from` of the log in `attempt_dir`. Replaces an earlier wish.
  void Want(const AttemptId& id, const std::string& attempt_dir, std::int64_t from);
  void Drop(const AttemptId& id);

 private:
  struct Log {
    std::string dir;
    std::optional<std::int64_t> want;
    std::shared_ptr<LogTail> tail;  // of the reading thread
    bool watched = false;
  };

  void Watch();
  void ReadOne(const AttemptId& id);

  const Sink sink_;
  const std::unique_ptr<LogWatch> watch_;
  Mutex mutex_;
  std::unordered_map<AttemptId, Log> logs_ GPULAYER_GUARDED_BY(mutex_);
  std::set<AttemptId> again_
      GPULAYER_GUARDED_BY(mutex_);  // could not be read, for want of something
  Pool pool_{1};
  std::thread thread_;
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_LOG_READER_H_
