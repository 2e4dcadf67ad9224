#include "server/rpc/watch.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model/limits.h"
#include "server/rpc/job_views.h"
#include "server/rpc/pull_stream.h"

namespace gpulayer::rpc {
namespace {

using std::chrono::steady_clock;

// A big array changes hundreds of times a second; people and programs are served by a few views of
// it. The last one does not wait.
constexpr auto kLeastGap = std::chrono::milliseconds(50);

Status ReadView(StoreReader& reader, JobId job, pb::GetJobReply* out) {
  GPULAYER_RETURN_IF_ERROR(ReadJob(reader, job, {}, out));
  out->mutable_job()->mutable_spec()->clear_only();  // as in lists
  return OkStatus();
}

class WatchStream final : public PullStream<pb::GetJobReply> {
 public:
  WatchStream(Parts& parts, JobId job) : parts_(parts), job_(job) {}

 protected:
  void OnLaunch() override {
    // Before the first read: what changes from here on wakes it.
    watch_ = parts_.engine.Watch(job_, [weak = weak_from_this()](JobId, bool ended) {
      const auto self = std::static_pointer_cast<WatchStream>(weak.lock());
      if (self == nullptr) return;
      if (ended) self->over_.store(true);
      self->changed_.store(true);
      self->Wake();
    });
  }

  void OnGone() override { parts_.engine.Unwatch(watch_); }

  Status Schedule(std::function<void()> job) override {
    return parts_.readers.Post([this, job = std::move(job)](StoreReader& reader) {
      reader_ = &reader;  // only one turn at a time
      job();
    });
  }

  Step Produce(pb::GetJobReply* out) override {
    if (ended_) return Step::Finish(OkStatus());
    const auto now = steady_clock::now();
    if (now < next_ && !over_.load()) {
      if (!std::exchange(timer_set_, true)) {
        parts_.timer.After(next_ - now, [weak = weak_from_this()] {
          if (const auto self = weak.lock()) self->Wake();
        });
      }
      return Step::Idle();
    }
    timer_set_ = false;
    if (!changed_.exchange(false)) return Step::Idle();
    const Status read = ReadView(*reader_, job_, out);
    if (!read.ok()) return Step::Finish(read);
    ended_ = IsTerminal(static_cast<TaskState>(out->job().state()));
    next_ = now + kLeastGap;
    return Step::Write();
  }

 private:
  Parts& parts_;
  const JobId job_;
  std::int64_t watch_ = 0;
  StoreReader* reader_ = nullptr;
  std::atomic<bool> changed_{true};  // since it was last read
  std::atomic<bool> over_{false};    // the next view is the last
  bool ended_ = false;               // the final state was written
  bool timer_set_ = false;
  steady_clock::time_point next_{};  // not before
};

// Each of some jobs once, when it is over.
class EndsStream final : public PullStream<pb::GetJobReply> {
 public:
  EndsStream(Parts& parts, std::vector<JobId> jobs) : parts_(parts), jobs_(std::move(jobs)) {}

 protected:
  void OnLaunch() override {
    watches_.reserve(jobs_.size());
    for (const JobId job : jobs_) {
      watches_.push_back(
          parts_.engine.Watch(job, [weak = weak_from_this()](JobId changed, bool ended) {
            const auto self = std::static_pointer_cast<EndsStream>(weak.lock());
            if (self == nullptr || !ended) return;
            {
              MutexLock lock(self->over_mutex_);
              self->over_.push_back(changed);
            }
            self->Wake();
          }));
    }
  }

  void OnGone() override {
    for (const std::int64_t watch : watches_) parts_.engine.Unwatch(watch);
  }

  Status Schedule(std::function<void()> job) override {
    return parts_.readers.Post([this, job = std::move(job)](StoreReader& reader) {
      reader_ = &reader;  // only one turn at a time
      job();
    });
  }

  Step Produce(pb::GetJobReply* out) override {
    // First what was over before the watches began.
    if (looked_at_ < jobs_.size()) return Look(out);
    for (;;) {
      if (told_.size() == jobs_.size()) return Step::Finish(OkStatus());
      JobId next;
      {
        MutexLock lock(over_mutex_);
        if (over_.empty()) return Step::Idle();
        next = over_.front();
        over_.pop_front();
      }
      if (!told_.contains(next)) return Tell(next, out);
    }
  }

 private:
  static constexpr int kLooksATurn = 100;

  Step Look(pb::GetJobReply* out) {
    const StoreReader::Snapshot snapshot(*reader_);
    for (int looks = 0; looked_at_ < jobs_.size() && looks < kLooksATurn; ++looks) {
      const JobId id = jobs_[looked_at_++];
      const Result<JobRecord> job = reader_->GetJob(id);
      if (!job.ok()) return Step::Finish(job.status());
      if (IsTerminal(job->state)) return Tell(id, out);
    }
    // What ended since then is told of in another turn, which sees a later state.
    return Step::Again();
  }

  Step Tell(JobId job, pb::GetJobReply* out) {
    told_.insert(job);
    const Status read = ReadView(*reader_, job, out);
    return read.ok() ? Step::Write() : Step::Finish(read);
  }

  Parts& parts_;
  const std::vector<JobId> jobs_;  // each once
  std::vector<std::int64_t> watches_;
  // Of the turn under way.
  StoreReader* reader_ = nullptr;
  std::size_t looked_at_ = 0;
  std::unordered_set<JobId> told_;

  Mutex over_mutex_;
  std::deque<JobId> over_ GPULAYER_GUARDED_BY(over_mutex_);
};

}  // namespace

grpc::ServerWriteReactor<pb::GetJobReply>* StartWatch(Parts& parts, const Principal& caller,
                                                      const pb::WatchRequest& request) {
  using Refusal = Refused<grpc::ServerWriteReactor<pb::GetJobReply>>;
  const auto refuse = [](const std::string& why) { return new Refusal(InvalidArgument(why)); };
  if (static_cast<std::size_t>(request.jobs_size()) > limits::kMaxWatchedJobs) {
    return refuse("wait for " + std::to_string(request.jobs_size()) + " jobs: at most " +
                  std::to_string(limits::kMaxWatchedJobs) + " at once");
  }
  if (!request.end_only() && request.jobs_size() > 0) {
    return refuse("watch: changes are told of one job alone");
  }
  if (!request.end_only()) {
    return WatchStream::Launch(std::make_shared<WatchStream>(parts, JobId(request.job())),
                               parts.streams, caller.token_id);
  }
  std::set<JobId> jobs;
  for (const std::int64_t job : request.jobs()) jobs.emplace(job);
  if (jobs.empty()) jobs.emplace(request.job());
  return EndsStream::Launch(
      std::make_shared<EndsStream>(parts, std::vector<JobId>(jobs.begin(), jobs.end())),
      parts.streams, caller.token_id);
}

}  // namespace gpulayer::rpc
