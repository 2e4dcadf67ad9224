// Who descends from whom. Looked at only when something is known to be left: a subreaper whose
// waitpid() says ECHILD has no descendants, and that costs nothing.
//
// Threads:  from one thread.
// Blocking: reads /proc.
// A pid from here may be gone, or in theory be another process's, by the time it is used;
// descendants die or become direct children of the subreaper, whose pids stay theirs until it reaps
// them.
#ifndef GPULAYER_WORKER_EXEC_PROCESS_TREE_H_
#define GPULAYER_WORKER_EXEC_PROCESS_TREE_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpulayer {

// Descendants orphaned from now on become children of the calling process.
bool BecomeSubreaper();
// The calling process gets `signal` when its parent dies. False: the parent is not `parent` any
// more.
bool TieToParent(pid_t parent, int signal);
void NameProcess(const char* name);  // for `ps -o comm`; at most 15 bytes

std::vector<pid_t> ChildrenOf(pid_t pid);
std::vector<pid_t> DescendantsOf(pid_t pid);  // parents before children, without `pid`

struct ProcessInfo {
  std::string name;  // as in `ps -o comm`
  bool zombie = false;
};
bool ReadProcessInfo(pid_t pid, ProcessInfo& info);  // false: gone

// Processes whose environment has one of `entries` ("NAME=value"), without the calling one.
std::vector<pid_t> ProcessesWithEnvironment(const std::vector<std::string>& entries);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_PROCESS_TREE_H_
