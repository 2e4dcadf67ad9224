#include "server/rpc/watch.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "server/rpc/job_views.h"
#include "server/rpc/pull_stream.h"

namespace gpulayer::rpc {
namespace {

using std::chrono::steady_clock;

// A big array changes hundreds of times a second; people and programs are served by a few views of
// it. The last one does not wait.
constexpr auto kLeastGap = std::chrono::milliseconds(50);

class WatchStream final : public PullStream<pb::GetJobReply> {
 public:
  WatchStream(Parts& parts, JobId job, bool end_only)
      : parts_(parts), job_(job), end_only_(end_only) {}

 protected:
  void OnLaunch() override {
    // Before the first read: what changes from here on wakes it.
    watch_ = parts_.engine.Watch(job_, [weak = weak_from_this()](JobId, bool ended) {
      const auto self = std::static_pointer_cast<WatchStream>(weak.lock());
      if (self == nullptr || (self->end_only_ && !ended)) return;
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
    if (end_only_ && !over_.load()) {  // it may have been over before the watch began
      const Result<JobRecord> job = reader_->GetJob(job_);
      if (!job.ok()) return Step::Finish(job.status());
      if (!IsTerminal(job->state)) return Step::Idle();
    }
    const Status read = ReadJob(*reader_, job_, {}, out);
    if (!read.ok()) return Step::Finish(read);
    out->mutable_job()->mutable_spec()->clear_only();  // as in lists
    ended_ = IsTerminal(static_cast<TaskState>(out->job().state()));
    next_ = now + kLeastGap;
    return Step::Write();
  }

 private:
  Parts& parts_;
  const JobId job_;
  const bool end_only_;
  std::int64_t watch_ = 0;
  StoreReader* reader_ = nullptr;
  std::atomic<bool> changed_{true};  // since it was last read
  std::atomic<bool> over_{false};    // the next view is the last
  bool ended_ = false;               // the final state was written
  bool timer_set_ = false;
  steady_clock::time_point next_{};  // not before
};

}  // namespace

grpc::ServerWriteReactor<pb::GetJobReply>* StartWatch(Parts& parts, const Principal& caller,
                                                      const pb::WatchRequest& request) {
  return WatchStream::Launch(
      std::make_shared<WatchStream>(parts, JobId(request.job()), request.end_only()), parts.streams,
      caller.token_id);
}

}  // namespace gpulayer::rpc
