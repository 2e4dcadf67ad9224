// A worker's one stream to its server: opens it again and again, says Hello, keeps the heartbeat,
// carries the agent's messages there and the server's orders back.
//
// Threads:   every method from any thread. One thread of its own (heartbeat, reconnecting); sinks
// run
//            on it or on gRPC's, one call at a time, and must not wait.
// Ownership: the sinks must outlive the session.
// Blocking:  nothing waits but the destructor, for the stream's end (it is broken off).
// Errors:    reported by the sink. The session goes on trying for as long as it lives, unless the
//            server refuses this worker.
#ifndef GPULAYER_WORKER_SESSION_SESSION_H_
#define GPULAYER_WORKER_SESSION_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "model/resources.h"
#include "worker/agent/agent.h"
#include "worker/session/link.h"

namespace gpulayer::worker {

// A stream is open: answer with SayHello().
struct Opened {
  std::int64_t stream = 0;
};
// The server will not have this worker: UNAUTHENTICATED, PERMISSION_DENIED (its credential),
// FAILED_PRECONDITION (its version), or INVALID_ARGUMENT (what it says of itself). The session has
// ended for good.
struct Refused {
  Status why;
  bool revoked = false;  // it had let the credential in before: no attempt is wanted any more
};
// Somebody wants a command inside an attempt: ExecCalls::Open.
struct ExecWanted {
  AttemptKey key;
  std::string ticket;
};
// Of the agent's events: Connected, Disconnected, Assigned, StopOrdered, LogAcked, EndAcked. After
// each one but Disconnected the session waits for Next() before it reads on.
using SessionEvent = std::variant<Opened, Event, ExecWanted, Refused>;

struct SessionOptions {
  Duration first_retry = std::chrono::milliseconds(100);
  Duration last_retry = std::chrono::seconds(5);
};

class Session {
 public:
  using Sink = std::function<void(SessionEvent)>;

  Session(ServerLink link, SessionOptions options, Sink sink);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  struct Hello {
    WorkerProfile profile;
    std::string boot_id;
    std::vector<Agent::Held> held;
  };
  void SayHello(const Opened& opened, const Hello& hello);  // once for each Opened
  void Next();  // the last event was dealt with: read on

  // Dropped if the stream that SayHello() was said on is gone.
  void Send(const SendProgress& message);
  void Send(SendLog message);
  void Send(const SendEnded& message);
  void SetResources(const Resources& resources);  // goes with the next heartbeat

  bool connected() const;  // welcomed, and the stream stands

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_SESSION_H_
