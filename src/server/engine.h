// The one thread that owns the core and the only writing database connection.
//
// Group commit: takes up to limits::kCommitBatch events, applies them, writes all effects in one
// transaction, commits, and only then answers callers and speaks to workers.
// Threads:   Post, Query, OpenSession, CloseSession, Watch and Unwatch from any thread, callbacks
//            included; none waits, but see Unwatch. Callbacks run on the engine thread, must not
//            block and must not call Stop().
// Errors:    a failed commit ends the process (memory would be ahead of disk); a full disk, or a
//            database that another process keeps locked, is waited out: nobody is answered
//            meanwhile.
#ifndef GPULAYER_SERVER_ENGINE_H_
#define GPULAYER_SERVER_ENGINE_H_

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/core/core.h"
#include "server/core/effects.h"
#include "server/core/events.h"

namespace gpulayer {

class Store;

inline constexpr char kServerIsStopping[] = "server is stopping. Try again when it is up.";

// A worker's connection as the engine sees it. Deliver() hands over SendWelcome, SendAssign,
// SendStop, SendEndAck or CloseSession and must not wait.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void Deliver(const core::Effect& effect) = 0;
};

class Engine {
 public:
  struct Options {
    core::Options core;
    // Of secrets, by JobSpec::secrets_ref. Neither may wait. `keep_secrets` is called by Start, with
    // those of all jobs that are not over; `erase_secrets` after the commit that ended a job.
    std::function<void(const std::set<std::string>&)> keep_secrets = {};
    std::function<void(const std::string&)> erase_secrets = {};
  };
  using ReplyFn = std::function<void(core::ReplyBody)>;
  using QueryFn = std::function<void(const core::Core&, Instant now)>;
  using ChangeFn = std::function<void(JobId, bool ended)>;

  // Loads the core from the store and starts the thread. `store` and `clock` must outlive the
  // engine.
  static Result<std::unique_ptr<Engine>> Start(Options options, Store& store, Clock& clock);
  ~Engine();  // Stop()

  // SubmitJobs and CancelTasks: `tag` is drawn here and `reply` called once, after the commit.
  // RESOURCE_EXHAUSTED when the queue or the disk is full, CANCELLED after Stop(); then `reply` is never
  // called. A stop that finds the disk full answers what it could not store with CANCELLED.
  Status Post(core::SubmitJobs event, ReplyFn reply);
  Status Post(core::CancelTasks event, ReplyFn reply);
  Status Post(core::Event event);  // the others
  // Between two events, on committed state. Errors as above.
  Status Query(QueryFn query);

  // Draws a session id and keeps `sink` until CloseSession(id). Deliver is called only after that
  // worker's WorkerConnected was posted.
  SessionId OpenSession(std::shared_ptr<SessionSink> sink);
  // Posts WorkerDisconnected and drops the sink. A Deliver under way may end after this returns.
  void CloseSession(SessionId session);

  // `changed` is called after each commit that changed the job, never after Unwatch returned:
  // Unwatch waits for a call that is under way (not if it is called from inside a callback), so its
  // caller must not hold a lock that `changed` takes.
  std::int64_t Watch(JobId job, ChangeFn changed);
  void Unwatch(std::int64_t watch);

  void Stop();  // drains what was accepted, commits, joins the thread; may be called twice

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_ENGINE_H_
