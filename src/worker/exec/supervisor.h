// The heart of gpulayer-exec: one thread, one poll() loop. Parent of all monitors; answers the
// worker; survives the worker. What it must know after its own death is in the attempt folders.
//
// Threads:  one; the process has no other.
// Blocking: Run() returns when told to shut down and nothing is left.
// Errors:   of peers and of attempts are answered to the worker, never fatal.
#ifndef GPULAYER_WORKER_EXEC_SUPERVISOR_H_
#define GPULAYER_WORKER_EXEC_SUPERVISOR_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "worker/exec/memory_cgroup.h"
#include "worker/exec/protocol.h"

namespace gpulayer {

struct SupervisorFds {
  int listener = -1;  // SOCK_SEQPACKET, listening, non-blocking
  int life = -1;      // its end of file ends everything; -1: none
};

class Supervisor {
 public:
  // REQUIRES: all signals are blocked and at their defaults; the working directory is the data
  // directory.
  explicit Supervisor(SupervisorFds fds) : fds_(fds) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // 0: told to end, and everything is. Else an exit code, with the reason on standard error.
  int Run();

 private:
  struct Attempt {
    pid_t monitor = 0;    // 0: kept by a monitor of a dead gpulayer-exec, see CheckForeign
    std::string started;  // EncodeStarted, once known
    bool lost = false;    // its monitor died without a status
  };
  struct Connection {
    int fd = -1;
    bool welcome = false;  // has said hello
    bool broken = false;   // to be closed
    std::deque<std::string> unsent;
  };

  bool Prepare();
  void RecoverAttempts();
  void PollOnce();
  int Timeout() const;

  void Accept();
  void Read(Connection& c);
  void Handle(Connection& c, const exec_wire::Message& m, int secrets_fd);
  void Send(Connection& c, const exec_wire::Message& m);
  void Flush(Connection& c);
  void Broadcast(const exec_wire::Message& m);

  void Start(Connection& c, const std::string& id, int secrets_fd);
  // Answers with the attempt's events so far; an attempt that is unknown here and on disk never
  // began.
  void Adopt(Connection& c, const std::string& id);
  void Join(const std::string& id, std::int64_t number);
  void Shutdown(std::int64_t grace_ms);

  void TakeSignals();
  void ReadReports();
  void ReapChildren();
  void MonitorGone(pid_t pid);
  void SweepOrphans();  // kills what dead monitors left to us
  void CheckForeign();
  void FinishLost(const std::string& id);

  const SupervisorFds fds_;
  int signal_fd_ = -1;
  int report_in_ = -1;
  int report_out_ = -1;
  std::string oom_score_adj_;
  CgroupPlace cgroups_;
  std::string cgroup_prefix_;
  std::unordered_map<std::string, Attempt> attempts_;  // those that are not over
  std::unordered_map<pid_t, std::string> monitors_;    // not reaped yet -> attempt id
  std::deque<Connection> connections_;
  bool sweeping_ = false;
  bool foreign_ = false;  // some attempt has no monitor of ours
  bool shutting_down_ = false;
};

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_SUPERVISOR_H_
