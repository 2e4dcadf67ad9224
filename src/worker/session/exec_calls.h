// Commands inside attempts of this worker (`job exec`): for each the worker dials the server, hears
// what to run, has it join the attempt, and carries bytes between its terminal or pipes and the
// call.
//
// Threads:   every method from any thread. One thread a call, for as long as it lasts.
// Ownership: `exec` must outlive it.
// Blocking:  Open() does not wait. The destructor ends all calls, and with them their commands
//            (ExecClient::Join); it waits for the threads, which is a matter of a moment.
// Errors:    go to whoever asked, as the call's last word.
#ifndef GPULAYER_WORKER_SESSION_EXEC_CALLS_H_
#define GPULAYER_WORKER_SESSION_EXEC_CALLS_H_

#include <memory>
#include <string>

#include "model/ids.h"
#include "worker/exec/exec_client.h"
#include "worker/session/link.h"

namespace gpulayer::worker {

class ExecCalls {
 public:
  ExecCalls(ServerLink link, ExecClient& exec);
  ~ExecCalls();
  ExecCalls(const ExecCalls&) = delete;
  ExecCalls& operator=(const ExecCalls&) = delete;

  // `runs`: the attempt does, as far as the agent knows; else that is the answer.
  void Open(const AttemptId& id, const std::string& ticket, bool runs);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_EXEC_CALLS_H_
