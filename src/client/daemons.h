// The daemons of a data directory: how they are started, found again and stopped. D/daemons.json
// records how `up` or `join` started them. Which of them live is said by the locks that they hold
// themselves: an `up` may be killed before it has written down what it started, and a copy of the
// directory holds a record of daemons that are another's.
#ifndef GPULAYER_CLIENT_DAEMONS_H_
#define GPULAYER_CLIENT_DAEMONS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/status.h"
#include "client/grpc_transport.h"
#include "client/spawn.h"

namespace gpulayer::client {

// Kept when they are stopped: the next `up` or `join` goes on with its address and options.
struct DaemonRecord {
  enum class Kind { kUp, kJoin } kind = Kind::kUp;
  std::string listen;   // kUp
  bool worker = true;   // kUp: with a worker
  std::string address;  // kJoin: of the server
  // Of the worker's command line, without the data directory; none are secret.
  std::vector<std::string> worker_args;
  std::optional<ProcessId> server_process;
  std::optional<ProcessId> worker_process;
  // Stopped by `down`. Else what does not run has died, by itself or with the machine.
  bool down() const { return !server_process && !worker_process; }
};

// How they were started, with those that live: recorded or not. Nothing: none ever was. Without the
// lock of DaemonDir, so it may be about to change.
Result<std::optional<DaemonRecord>> FindDaemons(const std::string& data_dir);

// The address of the server that `join` made this machine a worker of; empty: of none, or `down`
// ended it.
std::string JoinedServer(const std::string& data_dir);

// gpulayer-exec outlives a worker that was killed, and holds its jobs: those that work in a worker's
// own directory, by whatever name they were given it.
std::vector<pid_t> FindKeepers(const std::string& worker_dir);

// Attempts of the worker in that directory of its own, from their preparation until the server has all
// of them.
std::int64_t CountAttempts(const std::string& worker_dir);

// A daemon of ours, and where in its log this start's words begin.
struct StartedDaemon {
  ProcessId process;
  std::string log;
  std::size_t log_begin = 0;
};

// Threads:   one; Lock() keeps other processes out.
// Blocking:  as each says.
class DaemonDir {
 public:
  // Makes the folder (0700) if there is none, and waits for another `up`, `join` or `down`, and for
  // a daemon that one was killed over before it had its own lock. FAILED_PRECONDITION: that took
  // longer than `patience`. PERMISSION_DENIED: see CloseToWriters().
  static Result<DaemonDir> Lock(const std::string& data_dir,
                                std::chrono::milliseconds patience = std::chrono::seconds(30));

  const std::string& path() const { return dir_; }
  Result<std::optional<DaemonRecord>> Load() const;  // with the daemons that live, recorded or not
  Status Save(const DaemonRecord& record) const;
  Status Forget() const;

  // Starts the program and returns at once. Its own words go to D/log/<log>. This lock is its too,
  // until it holds its own (--started-under).
  Result<StartedDaemon> Start(const std::string& program, const std::vector<std::string>& args,
                              const std::string& log) const;
  // ": what it last logged as a warning or an error", since it was started; or nothing.
  std::string Complaint(const StartedDaemon& daemon) const;
  // Waits until `ready` says so (null: not yet). UNAVAILABLE with the daemon's last words if it
  // ended instead; DEADLINE_EXCEEDED.
  template <typename Ready>
  Status WaitUntil(const StartedDaemon& daemon, const std::string& what, const Ready& ready) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(25);
    for (;;) {
      if (ready()) return OkStatus();
      GPULAYER_RETURN_IF_ERROR(CheckAlive(daemon, what));
      if (std::chrono::steady_clock::now() >= end) {
        return DeadlineExceeded(what + ": it does not answer within 25s" + Complaint(daemon) +
                                ". See " + LogPath(daemon.log) + ".");
      }
      Pause();
    }
  }

  // SIGTERM to the worker, then to the server, SIGKILL to what is left: all gone within 10 s of
  // `begin`.
  // With the worker its jobs end too, also those that outlived it; a record without a worker leaves
  // jobs alone. Returns the names of what was alive.
  std::vector<std::string> Stop(
      const DaemonRecord& record,
      std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now()) const;

  static void Pause();  // between two looks

 private:
  explicit DaemonDir(std::string dir, FileLock lock)
      : dir_(std::move(dir)), lock_(std::move(lock)) {}
  std::string LogPath(const std::string& log) const;
  Status CheckAlive(const StartedDaemon& daemon, const std::string& what) const;

  std::string dir_;
  FileLock lock_;
};

inline constexpr char kServerLog[] = "server.log";
inline constexpr char kWorkerLog[] = "worker.log";

// The worker's name, if the server at the endpoint lists it as online now.
std::optional<std::string> NameIfOnline(Transport& transport, const std::string& worker_id);
// Whether another worker that it lists as online has this name, too; false if it does not answer.
bool NameIsShared(Transport& transport, const std::string& worker_id, const std::string& name);
// Of D/worker/worker.json; drawn and written if there is none yet, as the worker itself would.
Result<std::string> WorkerIdentity(const std::string& data_dir);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_DAEMONS_H_
