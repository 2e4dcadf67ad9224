// Starting one program exactly as told, from the single-threaded monitor.
#ifndef GPULAYER_WORKER_EXEC_LAUNCH_H_
#define GPULAYER_WORKER_EXEC_LAUNCH_H_

#include <sys/types.h>

#include <string>

#include "worker/exec/attempt_format.h"

namespace gpulayer {

struct LaunchFds {
  int in = -1;
  int out = -1;
  int err = -1;
  int cgroup = -1;        // the program joins that group first; -1: none
  bool terminal = false;  // `in` becomes its controlling terminal
};

struct LaunchResult {
  pid_t pid = -1;  // > 0: the program runs; its execve has succeeded
  StartStep failed_step = StartStep::kNone;
  int error = 0;
  // kExec: 127 not found, 126 found but not executable, 0 the machine was short of something.
  int exit_code = 0;
};

// The program gets: its own session and process group, default signals, none blocked, descriptors
// 0, 1, 2 as given and no other, umask 022, no core dumps (they would hold secrets),
// `oom_score_adj` as given, SIGKILL when the caller dies. argv[0] without a slash is looked for in
// the PATH of its own environment, as execvp does: a file without a header runs under /bin/sh.
//
// Threads:  the calling process must have one; all signals must be blocked, none ignored.
// Blocking: until the program runs or could not be executed; a file that another process still has
//           open for writing is tried again for up to 200 ms.
LaunchResult Launch(const AttemptSpec& spec, const LaunchFds& fds,
                    const std::string& oom_score_adj);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_LAUNCH_H_
