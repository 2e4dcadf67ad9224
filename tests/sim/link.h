// One connection of a machine to the server: two directions, in order each, delayed by chance, that
// can be cut at any moment. Each end learns of a cut at a time of its own.
#ifndef GPULAYER_TESTS_SIM_LINK_H_
#define GPULAYER_TESTS_SIM_LINK_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <variant>

#include "model/ids.h"
#include "server/core/events.h"
#include "sim/timeline.h"
#include "worker/agent/agent.h"

namespace gpulayer::sim {

struct ToServer {
  std::variant<core::WorkerConnected, core::WorkerHeard, core::AttemptProgress, core::AttemptEnded,
               worker::SendLog>
      what;  // sessions are filled in by the server
};
struct ToWorker {
  std::variant<worker::Connected, worker::Assigned, worker::StopOrdered, worker::LogAcked,
               worker::EndAcked>
      what;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  struct End {
    std::function<void(Link&)> lost;  // once, after a cut
    bool gone = false;                // closed by itself: hears nothing more
  };

  Link(Timeline& timeline, Duration slowest) : timeline_(timeline), slowest_(slowest) {}

  SessionId session;  // the server's name for it
  std::function<void(Link&, ToServer)> at_server;
  std::function<void(Link&, ToWorker)> at_worker;
  End server;
  End worker;

  void Send(ToServer message) {
    Carry(to_server_, [self = shared_from_this(), message = std::move(message)] {
      if (!self->server.gone) self->at_server(*self, message);
    });
  }
  void Send(ToWorker message) {
    Carry(to_worker_, [self = shared_from_this(), message = std::move(message)] {
      if (!self->worker.gone) self->at_worker(*self, message);
    });
  }

  bool cut() const { return cut_; }
  // What is under way arrives or not, as it happens; nothing new is taken.
  void Cut() {
    if (cut_) return;
    cut_ = true;
    if (timeline_.Chance(50)) lose_rest_ = true;
    for (End* end : {&server, &worker}) {
      timeline_.After(timeline_.Between(0s, 12s), [self = shared_from_this(), end] {
        if (end->gone) return;
        end->gone = true;
        end->lost(*self);
      });
    }
  }

 private:
  void Carry(TimePoint& last, std::function<void()> arrive) {
    if (cut_) return;
    last = std::max(last, timeline_.now().mono + timeline_.Between(100us, slowest_));
    timeline_.After(last - timeline_.now().mono,
                    [self = shared_from_this(), arrive = std::move(arrive)] {
                      if (!self->lose_rest_) arrive();
                    });
  }

  Timeline& timeline_;
  const Duration slowest_;
  TimePoint to_server_;
  TimePoint to_worker_;
  bool cut_ = false;
  bool lose_rest_ = false;
};

}  // namespace gpulayer::sim

#endif  // GPULAYER_TESTS_SIM_LINK_H_
