#include "server/engine.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/fault_point.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/queue.h"
#include "model/limits.h"
#include "server/gather.h"
#include "server/store/store.h"
#include "server/watches.h"

namespace gpulayer {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::milliseconds kRetryCommit{500};
// Specs count in the queue by their size, too: 65,536 large ones would be more memory than there
// is.
constexpr std::size_t kBytesPerQueueUnit = 4096;
// "Cannot be caught up with": what a supervisor restarts the server for.
constexpr int kCommitFailedExit = 74;

core::Snapshot ToSnapshot(LoadedState state) {
  core::Snapshot snapshot;
  snapshot.server = std::move(state.server);
  snapshot.last_job = state.last_job;
  snapshot.jobs = std::move(state.jobs);
  snapshot.tasks = std::move(state.tasks);
  snapshot.attempts = std::move(state.attempts);
  snapshot.workers = std::move(state.workers);
  for (StoredRequest& r : state.requests) {
    snapshot.requests.push_back({std::move(r.user), std::move(r.id), r.job});
  }
  return snapshot;
}

std::size_t CostOf(const core::SubmitJobs& event) {
  std::size_t bytes = 0;
  for (const auto& spec : event.specs) {
    for (const std::string& arg : spec->command) bytes += arg.size();
    for (const EnvVar& var : spec->env) bytes += var.name.size() + var.value.size();
  }
  return 1 + event.specs.size() + bytes / kBytesPerQueueUnit;
}

// The session that an effect is for; none for those that are not sent to a worker.
std::optional<SessionId> SessionOf(const core::Effect& effect) {
  return std::visit(
      [](const auto& e) -> std::optional<SessionId> {
        if constexpr (requires { e.session; }) {
          return e.session;
        } else {
          return std::nullopt;
        }
      },
      effect);
}

}  // namespace

class Engine::Impl {
 public:
  Impl(Options options, core::Core core, Store& store, Clock& clock)
      : options_(std::move(options)),
        store_(store),
        clock_(clock),
        core_(std::move(core)),
        thread_([this] { Run(); }) {}

  Status Post(core::SubmitJobs event, ReplyFn reply) {
    const std::size_t cost = CostOf(event);
    GPULAYER_RETURN_IF_ERROR(DiskFull());
    return Push({core::Event(std::move(event)), std::move(reply)}, cost);
  }
  Status Post(core::CancelTasks event, ReplyFn reply) {
    const std::size_t cost = 1 + event.tasks.size();
    GPULAYER_RETURN_IF_ERROR(DiskFull());
    return Push({core::Event(std::move(event)), std::move(reply)}, cost);
  }
  Status Post(core::Event event) { return Push({std::move(event), nullptr}, 1); }
  Status Query(QueryFn query) {
    GPULAYER_RETURN_IF_ERROR(DiskFull());
    return Push({std::move(query), nullptr}, 1);
  }

  SessionId OpenSession(std::shared_ptr<SessionSink> sink) {
    MutexLock lock(sessions_mutex_);
    const SessionId id(++last_session_);
    sessions_[id] = std::move(sink);
    return id;
  }

  void CloseSession(SessionId session) {
    std::shared_ptr<SessionSink> dropped;  // destroyed after the lock is gone
    {
      MutexLock lock(sessions_mutex_);
      const auto it = sessions_.find(session);
      if (it == sessions_.end()) return;
      dropped = std::move(it->second);
      sessions_.erase(it);
    }
    // Costs nothing: it must go in however full the queue is, and there is one for each session.
    IgnoreError(Push({core::Event(core::WorkerDisconnected{session}), nullptr}, 0),
                "after Stop() nobody needs to know");
  }

  std::int64_t Watch(JobId job, ChangeFn changed) { return watches_.Add(job, std::move(changed)); }
  void Unwatch(std::int64_t watch) { watches_.Remove(watch); }

  void Stop() {
    std::call_once(stopped_, [this] {
      queue_.Close();
      {
        MutexLock lock(stop_mutex_);
        stopping_ = true;
      }
      stop_wakes_.NotifyAll();
      thread_.join();
    });
  }

 private:
  struct Item {
    std::variant<core::Event, QueryFn> what;
    ReplyFn reply;  // of a SubmitJobs or CancelTasks
  };

  Status Push(Item item, std::size_t cost) {
    Status status = queue_.TryPush(std::move(item), cost);
    if (status.code() == StatusCode::kResourceExhausted) {
      return ResourceExhausted("server overloaded: " + std::to_string(limits::kEngineQueueEvents) +
                               " events wait (kEngineQueueEvents). Try again in a moment.");
    }
    if (status.code() == StatusCode::kCancelled) {
      return Cancelled(kServerIsStopping);
    }
    return status;
  }

  void Run() {
    SteadyTime next_tick = std::chrono::steady_clock::now() + kTick;
    for (;;) {
      // Asked first: what was accepted before the queue closed is then in what is taken.
      const bool closed = queue_.closed();
      const auto patience = next_tick - std::chrono::steady_clock::now();
      std::vector<Item> items = queue_.TakeUpTo(limits::kCommitBatch, patience);
      if (items.empty() && closed) break;
      if (const auto now = std::chrono::steady_clock::now(); now >= next_tick) {
        items.emplace_back().what = core::Event(core::Tick{});
        next_tick = now + kTick;
      }
      if (!items.empty()) Process(items);
    }
    // A caller whose answer the core never gave must not wait for ever.
    for (auto& [tag, reply] : std::exchange(replies_, {})) {
      reply(Status(Cancelled("the server stopped before it answered. Try again when it is up.")));
    }
  }

  void Process(std::vector<Item>& items) {
    const Instant now = clock_.Now();
    Gather gather;
    std::vector<core::Effect> others;
    std::vector<QueryFn> queries;
    for (Item& item : items) {
      if (auto* query = std::get_if<QueryFn>(&item.what)) {
        queries.push_back(std::move(*query));
        continue;
      }
      auto& event = std::get<core::Event>(item.what);
      if (item.reply) Tag(event, std::move(item.reply));
      if (abandoned_) continue;  // Run() tells the callers
      for (core::Effect& effect : core_.Apply(event, now)) {
        if (!gather.Take(effect)) others.push_back(std::move(effect));
      }
    }
    if (Commit(gather.batch())) {
      CarryOut(others);
    } else {
      abandoned_ = true;  // memory is ahead of the disk: nothing may build on it
    }
    // After the commit of the whole batch: what they see is stored. (Not so at a stop with a full
    // disk; but whoever asked still waits.)
    for (const QueryFn& query : queries) query(core_, now);
  }

  void Tag(core::Event& event, ReplyFn reply) {
    const core::ReplyTag tag(++last_tag_);
    if (auto* submit = std::get_if<core::SubmitJobs>(&event)) submit->tag = tag;
    if (auto* cancel = std::get_if<core::CancelTasks>(&event)) cancel->tag = tag;
    replies_[tag] = std::move(reply);
  }

  // False: the server was told to stop while there was no room to write.
  bool Commit(const WriteBatch& batch) {
    if (batch.empty()) return true;
    FaultPoint("server.before_commit");
    for (bool said = false;;) {
      // Asked first, so that a stop still gets one last try.
      const bool last_try = Stopping();
      const Status status = store_.Write(batch);
      if (status.ok()) {
        if (said) {
          LogWarning("engine: stored what had waited; going on");
          SetDiskFull(OkStatus());
        }
        FaultPoint("server.after_commit");
        return true;
      }
      // Nothing is lost by waiting in these two cases: nobody has been answered.
      if (status.code() != StatusCode::kResourceExhausted &&
          status.code() != StatusCode::kUnavailable) {
        LogError("engine: " + status.message() +
                 " The server ends here: what it knows is ahead of what is stored. Start it "
                 "again; nothing that was acknowledged is lost.");
        _exit(kCommitFailedExit);
      }
      if (!said) LogError("engine: " + status.message() + " Nothing is stored until then.");
      said = true;
      if (status.code() == StatusCode::kResourceExhausted) SetDiskFull(status);
      if (last_try) return false;
      MutexLock lock(stop_mutex_);
      if (!stopping_) stop_wakes_.WaitFor(stop_mutex_, kRetryCommit);
    }
  }

  // What would wait behind a commit that finds no room is refused, with the reason.
  Status DiskFull() {
    MutexLock lock(stop_mutex_);
    return disk_full_;
  }
  void SetDiskFull(const Status& status) {
    MutexLock lock(stop_mutex_);
    disk_full_ = status;
  }

  bool Stopping() {
    MutexLock lock(stop_mutex_);
    return stopping_;
  }

  void CarryOut(std::vector<core::Effect>& effects) {
    std::unordered_map<JobId, bool> changed;  // and whether it ended
    for (core::Effect& effect : effects) {
      if (auto* reply = std::get_if<core::Reply>(&effect)) {
        Answer(*reply);
      } else if (const auto* note = std::get_if<core::JobChanged>(&effect)) {
        changed[note->job] |= note->ended;
        if (!note->secrets_ref.empty() && options_.erase_secrets) {
          options_.erase_secrets(note->secrets_ref);
        }
      } else if (const std::optional<SessionId> session = SessionOf(effect)) {
        if (const std::shared_ptr<SessionSink> sink = Find(*session)) sink->Deliver(effect);
      }
    }
    // Once a batch: all of it is stored already.
    for (const auto& [job, ended] : changed) watches_.Fire(job, ended);
  }

  void Answer(core::Reply& reply) {
    const auto it = replies_.find(reply.tag);
    if (it == replies_.end()) return;  // nobody waits
    const ReplyFn answer = std::move(it->second);
    replies_.erase(it);
    answer(std::move(reply.body));
  }

  std::shared_ptr<SessionSink> Find(SessionId session) {
    MutexLock lock(sessions_mutex_);
    const auto it = sessions_.find(session);
    return it == sessions_.end() ? nullptr : it->second;
  }

  // Constant or safe by themselves.
  const Options options_;
  Store& store_;
  Clock& clock_;
  BoundedQueue<Item> queue_{limits::kEngineQueueEvents};
  Watches watches_;
  std::once_flag stopped_;

  Mutex sessions_mutex_;  // not held while a sink is called
  std::int64_t last_session_ GPULAYER_GUARDED_BY(sessions_mutex_) = 0;
  std::unordered_map<SessionId, std::shared_ptr<SessionSink>> sessions_
      GPULAYER_GUARDED_BY(sessions_mutex_);

  Mutex stop_mutex_;
  CondVar stop_wakes_;
  bool stopping_ GPULAYER_GUARDED_BY(stop_mutex_) = false;
  Status disk_full_ GPULAYER_GUARDED_BY(stop_mutex_);  // as the commit under way found it

  // The engine thread's.
  core::Core core_;
  std::int64_t last_tag_ = 0;
  bool abandoned_ = false;  // told to stop while a batch could not be stored
  std::unordered_map<core::ReplyTag, ReplyFn> replies_;

  std::thread thread_;  // last: it uses all of the above
};

Result<std::unique_ptr<Engine>> Engine::Start(Options options, Store& store, Clock& clock) {
  Result<LoadedState> state = store.Load();
  if (!state.ok()) return state.status().Prefixed("start the engine");
  if (options.keep_secrets) {
    std::set<std::string> kept;
    for (const JobRecord& job : state->jobs) kept.insert(job.spec->secrets_ref);
    options.keep_secrets(kept);
  }
  core::Core core(options.core, ToSnapshot(*std::move(state)), clock.Now());
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(options), std::move(core), store, clock)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() { Stop(); }

Status Engine::Post(core::SubmitJobs event, ReplyFn reply) {
  return impl_->Post(std::move(event), std::move(reply));
}
Status Engine::Post(core::CancelTasks event, ReplyFn reply) {
  return impl_->Post(std::move(event), std::move(reply));
}
Status Engine::Post(core::Event event) { return impl_->Post(std::move(event)); }
Status Engine::Query(QueryFn query) { return impl_->Query(std::move(query)); }
SessionId Engine::OpenSession(std::shared_ptr<SessionSink> sink) {
  return impl_->OpenSession(std::move(sink));
}
void Engine::CloseSession(SessionId session) { impl_->CloseSession(session); }
std::int64_t Engine::Watch(JobId job, ChangeFn changed) {
  return impl_->Watch(job, std::move(changed));
}
void Engine::Unwatch(std::int64_t watch) { impl_->Unwatch(watch); }
void Engine::Stop() { impl_->Stop(); }

}  // namespace gpulayer
