// Brings together the two streams of a command inside an attempt: a client's, which waits here under a
// ticket, and its worker's, which comes with that ticket once the worker's session has told it.
//
// Threads: every method from any thread; sessions and callers are called without a lock held.
#ifndef GPULAYER_SERVER_RPC_EXEC_SWITCH_H_
#define GPULAYER_SERVER_RPC_EXEC_SWITCH_H_

#include <memory>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "base/status.h"
#include "model/ids.h"
#include "server/core/core.h"
#include "server/rpc/streams.h"
#include "server/security/tokens.h"

namespace gpulayer::rpc {

// A worker's session, as far as this is concerned.
class ExecLine {
 public:
  virtual ~ExecLine() = default;
  virtual bool knows_exec() const = 0;  // constant
  // Tells the worker; must not wait.
  virtual void OpenExec(const AttemptKey& key, const std::string& ticket) = 0;
};

class ExecSwitch {
 public:
  void AddLine(SessionId session, const std::shared_ptr<ExecLine>& line);
  void RemoveLine(SessionId session);  // ends who waits for it with UNAVAILABLE

  // Tells the worker there that `caller` waits, and returns the ticket. UNAVAILABLE: its session is
  // gone. FAILED_PRECONDITION: its version knows no commands inside attempts.
  Result<std::string> Ring(const core::RunningPlace& place,
                           const std::shared_ptr<OpenStream>& caller);
  // Who waits with this ticket, and waits no more then. NOT_FOUND: nobody. PERMISSION_DENIED: it is
  // another worker's; the caller waits on.
  Result<std::shared_ptr<OpenStream>> Answer(const std::string& ticket,
                                             const security::Principal& worker);
  // Whether it waited still: now it does not.
  bool GiveUp(const std::string& ticket);

  // A place among kMaxExecs. RESOURCE_EXHAUSTED: none is free.
  Status Enter();
  void Leave();

 private:
  struct Waiting {
    SessionId session;
    WorkerId worker;
    std::string worker_name;
    std::weak_ptr<OpenStream> caller;
  };

  Mutex mutex_;
  std::unordered_map<SessionId, std::weak_ptr<ExecLine>> lines_ GPULAYER_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Waiting> waiting_ GPULAYER_GUARDED_BY(mutex_);  // by ticket
  std::size_t inside_ GPULAYER_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_EXEC_SWITCH_H_
