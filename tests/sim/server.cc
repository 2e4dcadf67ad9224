#include "sim/server.h"

#include <algorithm>
#include <utility>

namespace gpulayer::sim {
namespace {

const ServerIdentity kIdentity{"feedfacefeedfacefeedfacefeedface", 3};

}  // namespace

Server::Server(Timeline& timeline) : timeline_(timeline) { Start(); }

void Server::Start() {
  core_ =
      std::make_unique<core::Core>(core::Options{10s, 60s}, store.Load(kIdentity), timeline_.now());
  EXPECT_THAT(core_->CheckInvariants(), ::testing::IsEmpty());
  const int life = ++life_;
  timeline_.Note("server is up");
  timeline_.After(1s, [this, life] { Tick(life); });
}

void Server::Tick(int life) {
  if (life != life_ || core_ == nullptr) return;
  const Duration frozen = std::max<Duration>(0s, frozen_until_ - timeline_.now().mono);
  if (frozen == 0s) Apply(core::Tick{});
  timeline_.After(std::max<Duration>(1s, frozen), [this, life] { Tick(life); });
}

std::shared_ptr<Link> Server::Dial() {
  if (core_ == nullptr) return nullptr;
  auto link = std::make_shared<Link>(timeline_, timeline_.Between(1ms, 400ms));
  link->session = SessionId(++next_session_);
  links_[link->session] = link;
  link->at_server = [this](Link& l, const ToServer& message) { Receive(l, message); };
  link->server.lost = [this](Link& l) {
    links_.erase(l.session);
    if (core_ != nullptr) Apply(core::WorkerDisconnected{l.session});
  };
  return link;
}

void Server::Crash(Duration down) {
  if (core_ == nullptr) return;
  timeline_.Note("server crashes");
  core_.reset();
  past_.clear();
  for (auto& [session, link] : std::exchange(links_, {})) {
    link->server.gone = true;
    link->Cut();
  }
  timeline_.After(down, [this] { Start(); });
}

void Server::Freeze(Duration time) {
  timeline_.Note("server stands still");
  frozen_until_ = timeline_.now().mono + time;
}

void Server::Repeat() {
  if (core_ == nullptr || past_.empty()) return;
  const core::Event again = past_[timeline_.Draw(0, std::ssize(past_) - 1)];  // past_ will grow
  Apply(again);
}

std::optional<core::ReplyBody> Server::Ask(core::Event event) {
  if (core_ == nullptr) return std::nullopt;
  const std::vector<core::Effect> effects = Apply(event);
  if (core_ == nullptr) return std::nullopt;
  for (const core::Effect& effect : effects) {
    if (const auto* reply = std::get_if<core::Reply>(&effect)) return reply->body;
  }
  ADD_FAILURE() << "no reply";
  return std::nullopt;
}

bool Server::IsSession(const Link& link) const {
  const auto it = links_.find(link.session);
  return core_ != nullptr && it != links_.end() && it->second.get() == &link && !link.server.gone;
}

bool Server::AllEnded() const {
  return std::all_of(store.jobs.begin(), store.jobs.end(),
                     [](const auto& job) { return IsTerminal(job.second.state); });
}

void Server::Receive(Link& link, const ToServer& message) {
  if (const Duration left = frozen_until_ - timeline_.now().mono; left > 0s) {
    timeline_.After(left, [this, self = link.shared_from_this(), message] {
      if (!self->server.gone) Receive(*self, message);
    });
    return;
  }
  if (const auto* log = std::get_if<worker::SendLog>(&message.what)) return TakeLog(link, *log);
  if (const auto* ended = std::get_if<core::AttemptEnded>(&message.what)) {
    const std::int64_t stored = std::ssize(logs[ended->key.id]);
    if (core_->IsCurrent(link.session, ended->key) && ended->log_bytes > stored) {
      return link.Send(ToWorker{worker::EndAcked{ended->key, true, stored}});
    }
  }
  std::visit(
      [&](auto event) {
        if constexpr (!std::is_same_v<decltype(event), worker::SendLog>) {
          event.session = link.session;
          Apply(event);
        }
      },
      message.what);
}

void Server::TakeLog(Link& link, const worker::SendLog& piece) {
  if (!core_->IsCurrent(link.session, piece.key)) {
    return link.Send(ToWorker{worker::LogAcked{piece.key, 0, false}});
  }
  std::string& log = logs[piece.key.id];
  const std::int64_t end = piece.offset + std::ssize(piece.data);
  if (piece.offset <= std::ssize(log) && end > std::ssize(log)) {
    log.append(piece.data, static_cast<std::size_t>(std::ssize(log) - piece.offset));
  }
  link.Send(ToWorker{worker::LogAcked{piece.key, std::ssize(log), true}});
}

std::vector<core::Effect> Server::Apply(const core::Event& event) {
  const bool said_twice_at_times = std::holds_alternative<core::AttemptProgress>(event) ||
                                   std::holds_alternative<core::AttemptEnded>(event) ||
                                   std::holds_alternative<core::SubmitJobs>(event);
  if (said_twice_at_times) past_.push_back(event);
  std::vector<core::Effect> effects = core_->Apply(event, timeline_.now());
  store.Write(effects);
  EXPECT_THAT(core_->CheckInvariants(), ::testing::IsEmpty());
  if (faults && timeline_.Draw(1, 2'000) == 1) {
    Crash(timeline_.Between(100ms, 20s));  // committed, but nobody was told
    return effects;
  }
  for (const core::Effect& effect : effects) CarryOut(effect);
  return effects;
}

Link* Server::Find(SessionId session) {
  const auto it = links_.find(session);
  return it == links_.end() ? nullptr : it->second.get();
}

void Server::CarryOut(const core::Effect& effect) {
  const auto send = [&](SessionId session, ToWorker message) {
    if (Link* link = Find(session)) link->Send(std::move(message));
  };
  if (const auto* e = std::get_if<core::SendWelcome>(&effect)) {
    send(e->session, {worker::Connected{kIdentity, e->epoch, e->keep, e->kill}});
  } else if (const auto* a = std::get_if<core::SendAssign>(&effect)) {
    timeline_.Note("assigned " + a->key.id.value());
    send(a->session, {worker::Assigned{{a->key, a->user, a->spec, a->allocation}}});
  } else if (const auto* s = std::get_if<core::SendStop>(&effect)) {
    send(s->session, {worker::StopOrdered{s->key, s->cause, s->grace}});
  } else if (const auto* k = std::get_if<core::SendEndAck>(&effect)) {
    send(k->session, {worker::EndAcked{k->key, k->current, std::nullopt}});
  } else if (const auto* c = std::get_if<core::CloseSession>(&effect)) {
    if (Link* link = Find(c->session)) {
      const std::shared_ptr<Link> keep_alive = link->shared_from_this();
      links_.erase(c->session);
      keep_alive->server.gone = true;
      keep_alive->Cut();
    }
  } else if (const auto* p = std::get_if<core::PutAttempt>(&effect)) {
    timeline_.Note(p->record.id.value() + " is " + std::string(ToString(p->record.state)) + " on " +
                   p->record.worker_name);
  }
}

}  // namespace gpulayer::sim
