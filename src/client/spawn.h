// Starts a daemon or a helper program; the one place in the client that makes processes.
#ifndef GPULAYER_CLIENT_SPAWN_H_
#define GPULAYER_CLIENT_SPAWN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fs.h"
#include "base/status.h"

namespace gpulayer::client {

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is a path
  std::string log_file;           // standard output and error are appended to it; empty: /dev/null
  // A session of its own, so that no terminal's signal reaches it.
  bool new_session = true;
  int stdin_fd = -1;      // becomes its standard input; -1: /dev/null
  int stdout_fd = -1;     // becomes its standard output; -1: as log_file says
  int stderr_fd = -1;     // the same of standard error
  int keep_fd = -1;       // stays open in it, as kKeptFd
  std::string directory;  // where it starts; empty: here
};

inline constexpr int kKeptFd = 3;

// posix_spawn: safe in a process with threads. GPULAYER_TOKEN does not travel. Signals are reset. No
// other descriptor of this process is open in it: a pipe or a lock of the caller's would not end
// before a daemon does.
Result<pid_t> Spawn(const SpawnOptions& options);

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
Result<Pipe> MakePipe();  // close-on-exec

// A process that another one may have to find again: the number alone may be taken by a new one.
struct ProcessId {
  pid_t pid = 0;
  std::string started;  // as the kernel counts; empty: unknown
};
ProcessId Identify(pid_t pid);
bool IsAlive(const ProcessId& process);  // a zombie is not

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_SPAWN_H_
