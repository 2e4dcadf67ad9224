// A machine of a simulated run: the real agent, and processes, disk and link that obey it. The
// daemon can die and come back while programs go on; the machine can lose its power.
#ifndef GPULAYER_TESTS_SIM_MACHINE_H_
#define GPULAYER_TESTS_SIM_MACHINE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/resources.h"
#include "sim/link.h"
#include "sim/server.h"
#include "sim/timeline.h"
#include "worker/agent/agent.h"

namespace gpulayer::sim {

class Machine {
 public:
  Machine(Timeline& timeline, Server& server, std::string name, Resources resources);

  void CutLink();
  void Partition(Duration time);  // no link for so long
  void KillDaemon(Duration down);
  void PowerOff(Duration down);
  void Leave(Duration down);  // a planned stop
  bool faults = true;         // preparations and starts may fail

  // A connected machine runs only what is current and what it was given room for.
  void Check() const;
  bool Idle() const;  // nothing runs, nothing is left on its disk

  // Whole logs of programs that ended, by the programs' own account.
  std::map<AttemptId, std::string> written;

 private:
  // What outlives the daemon: an attempt's folder and its process.
  struct Attempt {
    worker::Assignment what;
    bool begun = false;
    enum class Process { kNone, kStarting, kRunning, kOver } process = Process::kNone;
    bool started = false;
    bool dying = false;  // SIGKILL was sent
    Outcome outcome;
    std::string log;
    std::optional<std::int64_t> read_from;  // ReadLog that waits
  };

  void StartDaemon();
  void DialSoon();
  void Heartbeat(int daemon);
  void Receive(const ToWorker& message);
  void Tell(worker::Event event);  // the agent, at once
  void TellLater(Duration delay, worker::Event event);
  void Do(const worker::Action& action);
  void BeginProcess(const AttemptId& id);
  void Grow(const AttemptId& id);
  void EndProcess(const AttemptId& id, const Outcome& outcome);
  void Replay(const AttemptId& id);
  void AnswerRead(const AttemptId& id);
  void SendToServer(ToServer message);

  Timeline& timeline_;
  Server& server_;
  const WorkerProfile profile_;
  int boot_ = 1;
  int daemon_ = 0;  // counts daemons: what was meant for an earlier one is void
  bool power_ = true;
  std::unique_ptr<worker::Agent> agent_;  // null: no daemon
  std::shared_ptr<Link> link_;
  bool welcomed_ = false;
  TimePoint partitioned_until_;
  std::map<AttemptId, Attempt> attempts_;
};

}  // namespace gpulayer::sim

#endif  // GPULAYER_TESTS_SIM_MACHINE_H_
