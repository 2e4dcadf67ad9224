// The server of a simulated run: the real core, a store that survives, and what the handlers do
// around it (log bytes by offset, an end only after its log).
#ifndef GPULAYER_TESTS_SIM_SERVER_H_
#define GPULAYER_TESTS_SIM_SERVER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/store_image.h"
#include "server/core/core.h"
#include "sim/link.h"
#include "sim/timeline.h"

namespace gpulayer::sim {

class Server {
 public:
  explicit Server(Timeline& timeline);

  // Null while the server is down.
  std::shared_ptr<Link> Dial();
  // No answer: it went down before it could give one (the event may be stored all the same).
  std::optional<core::ReplyBody> Ask(core::Event event);

  void Crash(Duration down);
  void Freeze(Duration time);  // SIGSTOP
  void Repeat();               // one event of the past happens again
  bool faults = true;          // may crash between commit and answer

  bool IsSession(const Link& link) const;
  bool AllEnded() const;
  const core::Core* core() const { return core_.get(); }

  testing::StoreImage store;
  std::map<AttemptId, std::string> logs;

 private:
  void Start();
  void Tick(int life);
  void Receive(Link& link, const ToServer& message);
  void TakeLog(Link& link, const worker::SendLog& log);
  std::vector<core::Effect> Apply(const core::Event& event);
  void CarryOut(const core::Effect& effect);
  Link* Find(SessionId session);

  Timeline& timeline_;
  std::unique_ptr<core::Core> core_;  // null: down
  std::map<SessionId, std::shared_ptr<Link>> links_;
  std::vector<core::Event> past_;
  std::int64_t next_session_ = 0;
  int life_ = 0;
  TimePoint frozen_until_;
};

}  // namespace gpulayer::sim

#endif  // GPULAYER_TESTS_SIM_SERVER_H_
