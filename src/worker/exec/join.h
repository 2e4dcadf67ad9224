// A command beside the program of a running attempt. A keeper of its own, forked by the attempt's
// monitor, takes the order at the worker's socket (join_socket.h), starts the command as the
// program was started, says how it ended, and ends with SIGKILL whatever the command left behind.
// Being a child of the monitor it is part of the attempt's tree, and so is the command: they end
// when that ends.
//
// When the socket ends first (whoever asked hung up, or the worker died), the command and all that
// it started get SIGHUP, and SIGKILL two seconds later.
#ifndef GPULAYER_WORKER_EXEC_JOIN_H_
#define GPULAYER_WORKER_EXEC_JOIN_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "worker/exec/memory_cgroup.h"

namespace gpulayer {

struct JoinPlan {
  int dir_fd = -1;  // the attempt's folder
  int secrets_fd = -1;
  std::int32_t number = 0;  // of the socket
  pid_t monitor = 0;        // our parent
  std::string oom_score_adj;
  const MemoryCgroup* cgroup = nullptr;  // null: none
};

// Never returns. REQUIRES: called in a freshly forked process with one thread and all signals
// blocked. Closes every descriptor but 0, 1, 2, dir_fd and secrets_fd: it must not hold the log's
// lock.
[[noreturn]] void RunJoin(const JoinPlan& plan);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_JOIN_H_
