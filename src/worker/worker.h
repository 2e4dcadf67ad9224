// A worker: this machine's slots offered to one server. Puts agent, session, exec, cache and probe
// together.
//
// Threads:   every method from any thread. docs/design/threads.md lists the threads inside.
// Ownership: owns everything in its data directory, which it locks.
// Blocking:  Start() reads the disk and starts gpulayer-exec (up to 10 s); it does not wait for the
//            server. Stop() ends within about 8 s.
#ifndef GPULAYER_WORKER_WORKER_H_
#define GPULAYER_WORKER_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/ids.h"
#include "model/job.h"
#include "worker/probe/probe.h"

namespace gpulayer {

enum class WorkerStopMode {
  kEndJobs,  // a planned stop: SIGTERM to all jobs, SIGKILL after 5 s; the server queues them again
  kKeepJobs,  // for an exchange of the daemon: the next worker on this directory finds them running
};

struct WorkerOptions {
  std::string server;      // "unix:/path" or "host:port"
  std::string ca_pem;      // of the server; empty on unix
  std::string credential;  // "glc1..."; empty on unix
  std::string data_dir;    // absolute; made if absent
  std::string name;        // empty: the host's
  std::string zone;
  std::string region;
  std::map<std::string, std::string> labels;
  std::optional<std::int32_t> slots;         // instead of those found
  std::optional<std::int64_t> memory_bytes;  // instead of the memory found
  std::optional<std::int64_t> cache_bytes;   // of the blob cache; default 20 GiB
  std::vector<EnvVar> env;                   // added to every job's environment
  std::shared_ptr<Probe> probe;              // null: CpuProbe with slots and memory_bytes
  bool ephemeral = false;                    // jobs die with this process
  std::string exec_program;                  // gpulayer-exec; empty: beside this program
  // Where work folders of --keep go: on the file system of data_dir, and longer there than it.
  // Empty: `kept` in data_dir.
  std::string kept_dir;
  std::function<void()> on_locked;  // called once the data directory is this worker's
  // Called once, from a thread of the worker, when it gives up: the server refuses this credential
  // or this version. The mode is how to stop then: a revoked worker's jobs are the server's to
  // start elsewhere, so they end here; else they wait for a worker that is let in. It must not call
  // Stop().
  std::function<void(const Status&, WorkerStopMode)> on_refused;
};

class Worker {
 public:
  // FAILED_PRECONDITION: another worker uses the data directory (its pid is in the message).
  static Result<std::unique_ptr<Worker>> Start(WorkerOptions options);
  ~Worker();  // Stop(kEndJobs)
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool connected() const;  // the server welcomed this worker and the link stands
  WorkerId id() const;     // drawn once per data directory

  using StopMode = WorkerStopMode;
  void Stop(StopMode mode = StopMode::kEndJobs);  // may be called twice

 private:
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_WORKER_H_
