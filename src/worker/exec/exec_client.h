// The worker's side of gpulayer-exec: starts and stops attempts and tells how they ended. The
// program is started if none answers in this data directory, outlives the worker and is found again
// by the next one; if it dies its attempts die with it, another one is started and says how they
// ended.
//
// An attempt's life: AttemptStore::Create and WriteSpec; Start; kStarted once the program runs;
// kEnded once nothing of it is alive, its log complete and its status stored. A program that could
// not be started has kEnded alone. After Start or Adopt returned OK, exactly one kEnded comes for
// it per client, whatever happens to gpulayer-exec.
//
// Threads:   every method from any thread. The sink runs on the client's own thread, one call at a
//            time, from before Open() returns until the destructor does; it must be quick and must
//            not call List() or the destructor.
// Ownership: holds the connection, and the standard input of gpulayer-exec when that is to die with
//            us.
// Blocking:  Start, Adopt, Stop, Shutdown only queue to a local socket; Open, List, Join wait as
//            their deadlines say. The destructor waits for the sink.
// Errors:    UNAVAILABLE: gpulayer-exec cannot be reached or started at this moment, or was told to
//            end. Start and Adopt wait for its return instead; a start that waits too long has its
//            kEnded as one that failed.
#ifndef GPULAYER_WORKER_EXEC_EXEC_CLIENT_H_
#define GPULAYER_WORKER_EXEC_EXEC_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fs.h"
#include "base/status.h"
#include "model/ids.h"
#include "worker/exec/attempt_format.h"

namespace gpulayer {

struct ExecClientOptions {
  std::string
      data_dir;  // the worker's, absolute; attempts are those of AttemptStore::Open(data_dir)
  std::string program;  // gpulayer-exec; empty: beside the running program
  enum class Life {
    kOutlivesWorker,  // jobs go on when the worker ends or dies
    kDiesWithWorker,  // ends with all attempts as soon as this client is gone (ephemeral servers)
  } life = Life::kOutlivesWorker;
  Duration patience = std::chrono::seconds(10);  // for starting and reaching it
};

struct ExecEvent {
  enum class Kind { kStarted, kEnded } kind = Kind::kEnded;
  AttemptId id;
  AttemptStarted started;  // kStarted
  AttemptStatus status;    // kEnded
};

// What a command that joins has as input, output and errors: descriptors of the caller's. Of a
// terminal three times the one that is the program's.
struct JoinFds {
  int in = -1;
  int out = -1;
  int err = -1;
};

class ExecClient {
 public:
  using Sink = std::function<void(ExecEvent)>;

  static Result<std::unique_ptr<ExecClient>> Open(ExecClientOptions options, Sink sink);
  ~ExecClient();
  ExecClient(const ExecClient&) = delete;
  ExecClient& operator=(const ExecClient&) = delete;

  // Runs what the attempt's `spec` says. An attempt is never run twice: if it runs or ran already
  // its events come again. `secrets`: "NAME=value", as many as the spec says; handed over in memory,
  // also to a gpulayer-exec that has to be started anew. RESOURCE_EXHAUSTED: no memory for them.
  Status Start(const AttemptId& id, const std::vector<std::string>& secrets = {});

  // For an attempt found on disk after a restart: its events come (kStarted if it runs, then
  // kEnded; kEnded at once if it is over), nothing is started. kEnded with StartStep::kNever: it
  // was never begun and will not be.
  Status Adopt(const AttemptId& id);

  // SIGTERM to the whole process tree (the process group first, then what left it), SIGKILL for
  // what is alive when `grace` is over; zero: SIGKILL now. A later Stop may shorten the grace,
  // never lengthen it. No effect on an attempt that is over or unknown.
  Status Stop(const AttemptId& id, Duration grace);

  // Runs a command inside a running attempt: in its work folder, with its environment and secrets,
  // under its limits, as a part of what ends with it; what it leaves behind when it ends is ended.
  // Its reports come over the socket that is returned (ReadJoinReport): kStarted and kEnded, or
  // kNotStarted. To close that one is to hang up: SIGHUP to all of the command, SIGKILL two seconds
  // later. Waits, for 5 s or until `give_up` can be read (CANCELLED), but for nobody on the
  // client's thread. INVALID_ARGUMENT: no command, a NUL in it, or too long; FAILED_PRECONDITION:
  // the attempt is not running, or gpulayer-exec is too old.
  Result<UniqueFd> Join(const AttemptId& id, const JoinOrder& order, const JoinFds& fds,
                        int give_up);

  // Attempts that are not over, in no order. DEADLINE_EXCEEDED after `patience`.
  Result<std::vector<AttemptId>> List(Duration patience = std::chrono::seconds(10));

  // Ends gpulayer-exec with all attempts, each within `grace`, and starts none again; their kEnded
  // come as usual. Waits up to `patience` for its end.
  Status Shutdown(Duration grace, Duration patience);

 private:
  class Impl;
  explicit ExecClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Of one report; waits for none. UNAVAILABLE: the command's keeper is gone.
Result<JoinReport> ReadJoinReport(const UniqueFd& socket);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_EXEC_CLIENT_H_
