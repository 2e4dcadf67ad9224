// What a daemon and those who start and stop it agree on.
#ifndef GPULAYER_BASE_DAEMON_H_
#define GPULAYER_BASE_DAEMON_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace gpulayer {

// The process that holds a lock of FileLock::AcquireWithPid(), as it wrote itself; nullopt: nobody
// does, or it has not written yet.
std::optional<pid_t> LockHolder(const std::string& path);

// Whether this folder is the data directory of a server or worker, running or not: keys are in it.
bool IsDataDir(int dir_fd);

// Raises the soft limit of open files to the hard one: every connection is one. For a daemon's main.
void RaiseFileLimit();
// The soft limit that this process was started with, which is what its jobs get.
std::uint64_t StartedFileLimit();

// No core file of this process, nor of those that it starts and that do not ask for one: it holds
// secrets of others. The hard limit stays. For a main.
void LeaveNoCore();

// From here on an exception that nobody catches ends the process with a line that says which, on
// standard error and in the log. Nothing of ours throws; the libraries do for want of a thread or of
// memory, which is exit code 1; anything else is a fault in the program and aborts. For a daemon's
// main. `program` is kept.
void SayWhatEndsUs(const char* program);

// Of a daemon's `--started-under FD`: closes that descriptor of whoever started it, who waits until
// it is closed. Other text does nothing.
void LeaveStarter(const std::string& fd);

}  // namespace gpulayer

#endif  // GPULAYER_BASE_DAEMON_H_
