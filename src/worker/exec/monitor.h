// The keeper of one attempt: a process of its own, forked by gpulayer-exec. It runs the program,
// copies its output into the log, enforces time limit and stop orders on the whole process tree,
// and leaves `status` behind once nothing of the attempt is alive.
//
// It tells gpulayer-exec by packets on one pipe that all monitors share (each below PIPE_BUF, so
// they do not mix), and takes orders as queued signals, so an attempt costs gpulayer-exec no
// descriptor. For as long as its program runs it has commands join it (join.h).
#ifndef GPULAYER_WORKER_EXEC_MONITOR_H_
#define GPULAYER_WORKER_EXEC_MONITOR_H_

#include <sys/types.h>

#include <climits>
#include <csignal>
#include <cstdint>
#include <string>

#include "worker/exec/attempt_format.h"

namespace gpulayer {

// Orders, as real-time signals with a value: the grace in ms, or kOwnGrace for that of the spec.
inline int StopSignal() { return SIGRTMIN; }
inline int ShutdownSignal() { return SIGRTMIN + 1; }
inline constexpr int kOwnGrace = -1;
// A command wants to join; the value is the socket's number (join_socket.h).
inline int JoinSignal() { return SIGRTMIN + 2; }

struct ReportHeader {
  enum class Kind : std::uint32_t { kStarted = 1, kEnded = 2 } kind = Kind::kStarted;
  std::uint32_t payload_size = 0;  // EncodeStarted or EncodeStatus
  std::int32_t monitor = 0;        // its pid
};
static_assert(sizeof(ReportHeader) + kMaxStatusBytes <= PIPE_BUF);

struct MonitorPlan {
  std::string attempt_dir;    // relative to the working directory, or absolute
  pid_t exec_pid = 0;         // gpulayer-exec, our parent
  int report_fd = -1;         // write end of the shared pipe
  std::string oom_score_adj;  // of the program
  std::string cgroup;         // the path of its memory cgroup; empty: it can have none
  bool cgroup_unified = false;
  int secrets_fd = -1;  // EncodeSecrets, kept for commands that join; -1: none came
};

// Never returns. REQUIRES: called in a freshly forked process with one thread and all signals
// blocked. Closes every descriptor but 0, 1, 2, report_fd and secrets_fd.
[[noreturn]] void RunMonitor(const MonitorPlan& plan);

// Both clocks, without the virtual Clock of base.
Instant ReadClocks();
// Writes `bytes` by a free name (kFreeSuffix) in the folder and renames it; false with errno set.
bool WriteAttemptFile(int dir_fd, const char* name, const std::string& bytes);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_MONITOR_H_
