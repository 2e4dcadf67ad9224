// The worker's decisions about all attempts of its machine: decides everything, does nothing.
//
// Threads:  not thread-safe; the worker's loop thread owns it.
// Purity:   same state, event and time: same actions. No clock, lock, log, file, process or RPC.
// Errors:   an event never fails. One about an attempt that is not known here, or that comes late,
//           changes nothing.
//
// An attempt's way: Assigned -> Prepare -> Start -> SendProgress(running) -> the program ends ->
// SendProgress(finishing) -> CollectOutputs -> its log's last byte is sent -> SendEnded -> EndAcked
// -> Forget. Progress that the next step overtakes is not sent: the end tells all of a program that
// took no time. While the server is away programs run, logs and ends wait; each new session goes on
// with what the server has not confirmed.
#ifndef GPULAYER_WORKER_AGENT_AGENT_H_
#define GPULAYER_WORKER_AGENT_AGENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/ids.h"
#include "model/job.h"
#include "model/resources.h"

namespace gpulayer::worker {

// ---- What can happen. ----

// What the server ordered. `spec` is never null.
struct Assignment {
  AttemptKey key;
  UserName user;
  std::shared_ptr<const JobSpec> spec;
  Allocation allocation;
  // Values of what spec->secrets names; null where there are none, or no more: they are in memory
  // alone, and a daemon that was restarted does not have them.
  std::shared_ptr<const std::vector<EnvVar>> secrets = {};

  bool LacksSecrets() const { return !spec->secrets.empty() && secrets == nullptr; }
};

// The server's Welcome: a session is open. Attempts of Hello's list that are in neither list are
// killed.
struct Connected {
  ServerIdentity server;
  WorkerEpoch epoch;
  std::vector<AttemptKey> keep;
  std::vector<AttemptKey> kill;
};
struct Disconnected {};
struct Assigned {
  Assignment assignment;
};
struct StopOrdered {
  AttemptKey key;
  Cause cause;
  Duration grace{};
};
struct LogAcked {
  AttemptKey key;
  std::int64_t size = 0;  // the server has this much of a log; maybe more than was ever sent
  bool current = true;
};
struct EndAcked {
  AttemptKey key;
  bool current = true;
  std::optional<std::int64_t> resend_log_from;
};

// Found on this machine after a restart of the daemon. `begun`: gpulayer-exec was told of it, so
// its ProgramStarted and ProgramEnded come; else it is prepared anew.
struct Adopted {
  Assignment assignment;
  bool begun = false;
};
// The preparation that was asked for is under way: until now it waited for its turn, and the clock
// of its limit stood still.
struct PrepareBegun {
  AttemptId id;
};
// Answer to Prepare, once for each, abandoned ones too: all is in place, or why not.
struct Prepared {
  AttemptId id;
  Status status;
};
struct ProgramStarted {
  AttemptId id;
  std::optional<TimePoint> at = {};  // none: not known any more
};
// The program is over, nothing of it is alive, its log is complete. Comes once after Start, if the
// program could not be started too. A cause of kCancelled or kWorkerLost that the agent itself
// knows more about gets that cause.
struct ProgramEnded {
  AttemptId id;
  bool started = false;
  Outcome outcome;
  std::int64_t log_bytes = 0;
  std::optional<TimePoint> started_at = {};
  std::optional<TimePoint> ended_at = {};
};
// Answer to CollectOutputs, once for each, abandoned ones too.
struct OutputsCollected {
  AttemptId id;
  Result<OutputResult> result;
};
// Answer to ReadLog.
struct LogRead {
  AttemptId id;
  std::int64_t offset = 0;
  std::string data;
  bool final = false;  // the log ends with this piece
};
struct LogFailed {  // the log cannot be read from `offset` on: it ends there
  AttemptId id;
  std::int64_t offset = 0;
};
// This daemon is about to end and so are its programs (the caller sees to that): nothing more is
// begun, what had to be broken off goes back to the server uncharged.
struct Leaving {};
struct Tick {};  // at NextTick()

using Event = std::variant<Connected, Disconnected, Assigned, StopOrdered, LogAcked, EndAcked,
                           Adopted, PrepareBegun, Prepared, ProgramStarted, ProgramEnded,
                           OutputsCollected, LogRead, LogFailed, Leaving, Tick>;

// ---- What the agent wants done, in this order. ----

// Fetch the source and lay it out. Answered by Prepared.
struct Prepare {
  Assignment assignment;
};
struct AbandonPrepare {  // hurry up: the answer is awaited but of no use any more
  AttemptId id;
};
struct Start {  // REQUIRES: Prepared came. Answered by ProgramStarted and ProgramEnded.
  AttemptId id;
};
struct StopProgram {
  AttemptId id;
  Duration grace{};  // zero: kill at once
};
// Find what is new or changed and store it on the server. Answered by OutputsCollected.
struct CollectOutputs {
  AttemptId id;
};
struct AbandonCollect {
  AttemptId id;
};
// Read the log's next piece at `from`, waiting for it if need be. Answered by LogRead or LogFailed;
// replaces an earlier one of the same attempt.
struct ReadLog {
  AttemptId id;
  std::int64_t from = 0;
};
// Messages of the current session; one that cannot be sent is dropped, Disconnected follows.
struct SendProgress {
  AttemptKey key;
  AttemptState state = AttemptState::kRunning;
  Outcome outcome;
  std::optional<Duration> started_ago = {};
};
struct SendLog {
  AttemptKey key;
  std::int64_t offset = 0;
  std::string data;
};
struct SendEnded {
  AttemptKey key;
  bool started = false;
  Outcome outcome;
  OutputResult outputs;
  std::int64_t log_bytes = 0;
  std::optional<Duration> started_ago = {};
  std::optional<Duration> ended_ago = {};
  bool keep = false;             // the work folder is to stay
  std::string kept_folder = {};  // where; for whoever carries it out to fill in
};
// Nothing of the attempt is needed or in use: its folders may go. The agent knows it no longer.
struct Forget {
  AttemptId id;
};

using Action = std::variant<Prepare, AbandonPrepare, Start, StopProgram, CollectOutputs,
                            AbandonCollect, ReadLog, SendProgress, SendLog, SendEnded, Forget>;

class Agent {
 public:
  struct Options {
    std::int64_t log_window_bytes = 1 << 20;   // sent and not confirmed, per attempt
    Duration retry = std::chrono::seconds(2);  // a preparation or upload that the link broke off
    // How long a good program's outputs are offered to a server that answers but cannot take them,
    // or tried again on a machine that is short of something.
    Duration store_patience = std::chrono::minutes(10);
    // Of work on it, in all tries; waiting for a turn or for the server does not count.
    Duration prepare_limit = std::chrono::minutes(30);
    // How long a program must have run, or what follows it have taken, for the server to be told:
    // each telling is a commit there, and a machine may run a thousand programs a second.
    Duration tell_running = std::chrono::milliseconds(20);
    Duration tell_finishing = std::chrono::milliseconds(5);
    // Before its log is looked at for the first time: of most short programs all of it is there then.
    Duration first_read = std::chrono::milliseconds(3);
  };

  Agent();
  explicit Agent(Options options);
  ~Agent();
  Agent(Agent&&) noexcept;
  Agent& operator=(Agent&&) noexcept;

  std::vector<Action> Apply(Event event, TimePoint now);

  // For Hello: every attempt whose end was not acknowledged.
  struct Held {
    AttemptKey key;
    AttemptState state = AttemptState::kPreparing;
    friend bool operator==(const Held&, const Held&) = default;
  };
  std::vector<Held> HeldAttempts() const;
  // When a Tick is due; none: nothing waits for time.
  std::optional<TimePoint> NextTick() const;
  bool idle() const;  // knows no attempt

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_AGENT_AGENT_H_
