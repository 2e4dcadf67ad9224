// What gRPC has to say, in the log of the daemon it runs in.
#ifndef GPULAYER_WORKER_SESSION_GRPC_LOG_H_
#define GPULAYER_WORKER_SESSION_GRPC_LOG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace gpulayer::worker {

// Its errors become warnings, one a minute of each kind; all else is for debugging. Also takes out the
// search for deadlocks at each of gRPC's locks. Once in each daemon, after OpenLog() and before gRPC
// is used: it holds for the whole process.
void LogGrpcLines();

// Lets one line of each kind pass in a minute: whoever can reach the port can make gRPC complain, and
// must not fill the disk with that.
// Threads: any.
class LineLimit {
 public:
  // Where in gRPC's source it is said.
  using Kind = std::pair<std::string, int>;
  // How many of its kind were held back since the last that passed; nullopt: it is held back.
  std::optional<std::int64_t> Admit(const Kind& kind, TimePoint now);

 private:
  struct Seen {
    TimePoint passed;
    std::int64_t held_back = 0;
  };
  Mutex mutex_;
  std::map<Kind, Seen> seen_ GPULAYER_GUARDED_BY(mutex_);
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_GRPC_LOG_H_
