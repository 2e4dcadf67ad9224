#include "server/rpc/log_stream.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "model/limits.h"
#include "model/log_frame.h"
#include "server/rpc/log_tail.h"
#include "server/rpc/pull_stream.h"

namespace gpulayer::rpc {
namespace {

using std::chrono::steady_clock;

constexpr int kBlocksATurn = 16;  // then others get the thread

bool IsOver(AttemptState state) {
  return state == AttemptState::kEnded || state == AttemptState::kLost;
}

// A note of ours explains what is shown, so it is never left out.
bool IsShown(const v1::ReadLogsRequest& request, LogStream stream) {
  return !(stream == LogStream::kOut && request.no_stdout()) &&
         !(stream == LogStream::kErr && request.no_stderr());
}

class LogReadStream final : public PullStream<v1::LogChunk> {
 public:
  LogReadStream(Parts& parts, const v1::ReadLogsRequest& request)
      : parts_(parts), request_(request), task_{JobId(request.job()), TaskIndex(request.task())} {}

 protected:
  void OnLaunch() override {
    const auto wake = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Wake();
    };
    listener_ = parts_.hub.Add(task_, wake);
    watch_ = parts_.engine.Watch(task_.job, [wake](JobId, bool) { wake(); });
  }

  void OnGone() override {
    parts_.hub.Remove(task_, listener_);
    parts_.engine.Unwatch(watch_);
  }

  Status Schedule(std::function<void()> job) override {
    return parts_.readers.Post([this, job = std::move(job)](StoreReader& reader) {
      reader_ = &reader;  // only one turn at a time
      job();
    });
  }

  Step Produce(v1::LogChunk* out) override {
    Result<Step> step = Turn(out);
    if (!step.ok()) return Step::Finish(step.status());
    if (step->kind == Step::Kind::kWrite) silent_since_ = steady_clock::now();
    if (step->kind == Step::Kind::kIdle) return Rest(out);
    return *step;
  }

 private:
  // The task as the store has it now.
  struct View {
    bool over = false;  // no further attempt will come
    AttemptNo newest;   // 0: none yet
  };

  Result<View> ReadTask() {
    GPULAYER_ASSIGN_OR_RETURN(const JobRecord job, reader_->GetJob(task_.job));
    if (!job.spec->HasTask(task_.task)) {
      return NotFound("job " + ToString(task_.job) + ": no task " +
                      std::to_string(task_.task.value()));
    }
    GPULAYER_ASSIGN_OR_RETURN(const std::vector<TaskRecord> tasks,
                              reader_->GetTasks(task_.job, task_.task, 1));
    if (tasks.empty() || tasks.front().ref != task_) {
      // Without a row it is queued, or it ended without ever having started.
      return View{
          IsTerminal(job.state) || !job.queued.Contains(job.spec->tasks.PositionOf(task_.task)),
          AttemptNo()};
    }
    return View{IsTerminal(tasks.front().state) || IsTerminal(job.state), tasks.front().attempts};
  }

  Result<bool> AttemptIsOver(AttemptNo number) {
    GPULAYER_ASSIGN_OR_RETURN(const std::vector<AttemptRecord> attempts,
                              reader_->GetAttempts(task_));
    for (const AttemptRecord& attempt : attempts) {
      if (attempt.ref.number == number) return IsOver(attempt.state);
    }
    return true;
  }

  // Decides once which attempt to begin with; afterwards attempt_ is the one that is read or waited
  // for.
  Status Choose(const View& view) {
    chosen_ = true;
    offset_ = request_.offset();
    if (request_.attempt() > 0) {
      attempt_ = AttemptNo(request_.attempt());
      // A follower asks again for the attempt that it was waiting for, which may not exist yet, or
      // never will if the task was cancelled meanwhile.
      const bool awaited =
          request_.follow() && (!view.over || attempt_.value() == view.newest.value() + 1);
      if (attempt_ > view.newest && !awaited) {
        return NotFound("task " + ToString(task_) + ": no attempt " +
                        std::to_string(request_.attempt()));
      }
      return OkStatus();
    }
    attempt_ = view.newest;
    if (!request_.follow() || view.over) return OkStatus();
    if (attempt_.value() == 0) {
      attempt_ = AttemptNo(1);
      return OkStatus();
    }
    if (offset_ > 0) return OkStatus();
    GPULAYER_ASSIGN_OR_RETURN(const bool over, AttemptIsOver(attempt_));
    if (over) attempt_ = AttemptNo(attempt_.value() + 1);
    return OkStatus();
  }

  Result<Step> Turn(v1::LogChunk* out) {
    if (!chosen_) {
      if (request_.offset() < 0 || request_.tail_lines() < 0 || request_.attempt() < 0) {
        return InvalidArgument("logs: a negative number");
      }
      // Task and attempt of one moment: an end between two looks would pass for one that is tried
      // again, whose next attempt is waited for.
      const StoreReader::Snapshot snapshot(*reader_);
      GPULAYER_ASSIGN_OR_RETURN(const View view, ReadTask());
      GPULAYER_RETURN_IF_ERROR(Choose(view));
      want_tail_ = request_.has_tail_lines() && offset_ == 0;
    }
    out->set_attempt(attempt_.value());
    for (int i = 0; i < kBlocksATurn; ++i) {
      GPULAYER_ASSIGN_OR_RETURN(const bool more, ReadBlock(out));
      out->set_next_offset(offset_);
      if (out->pieces_size() > 0) return Step::Write();
      if (more) continue;
      // Nothing new. The order matters: first whether the attempt is over, then once more whether
      // bytes are there.
      GPULAYER_ASSIGN_OR_RETURN(const View now, ReadTask());
      const bool begun = attempt_.value() > 0 && attempt_ <= now.newest;
      if (!begun) return now.over || !request_.follow() ? Step::Finish(OkStatus()) : Step::Idle();
      GPULAYER_ASSIGN_OR_RETURN(const bool over, AttemptIsOver(attempt_));
      GPULAYER_ASSIGN_OR_RETURN(const bool late, ReadBlock(out));
      out->set_next_offset(offset_);
      if (out->pieces_size() > 0) return Step::Write();
      if (late) continue;
      if (!request_.follow()) return Step::Finish(OkStatus());
      if (!over) return Step::Idle();
      // Asked again: the commit that ended the attempt may have come after the first look, and it
      // may have ended the task.
      GPULAYER_ASSIGN_OR_RETURN(const View after, ReadTask());
      if (attempt_ == after.newest && after.over) return Step::Finish(OkStatus());
      GPULAYER_RETURN_IF_ERROR(TurnToNext(out));
      return Step::Write();
    }
    // All of it was left out: say how far it is, so that a repeat need not read it again.
    return want_tail_ ? Step::Again() : Step::Write();
  }

  // On to the next attempt, or to the wait for it. A follower is told why, or it would take one
  // program's output for the other's.
  Status TurnToNext(v1::LogChunk* out) {
    GPULAYER_ASSIGN_OR_RETURN(const std::vector<AttemptRecord> attempts,
                              reader_->GetAttempts(task_));
    const AttemptNo next(attempt_.value() + 1);
    std::string ended = "ended";
    std::string then = "is queued";
    for (const AttemptRecord& attempt : attempts) {
      if (attempt.ref.number == attempt_) {
        const Cause& cause = attempt.outcome.cause;
        if (cause.kind == CauseKind::kWorkerLost) ended = "was lost";
        ended += " on " + attempt.worker_name;
        if (!cause.text.empty()) ended += " (" + cause.text + ")";
      }
      if (attempt.ref.number == next) then = "starts on " + attempt.worker_name;
    }
    v1::LogChunk::Piece* note = out->add_pieces();
    note->set_stream(static_cast<std::int32_t>(LogStream::kNote));
    note->set_data("attempt " + std::to_string(attempt_.value()) + " " + ended + ", attempt " +
                   std::to_string(next.value()) + " " + then + "\n");
    note->set_wall_us(ToMicros(parts_.clock.Now().wall));
    attempt_ = next;
    offset_ = 0;
    out->set_attempt(attempt_.value());
    out->set_next_offset(0);
    return OkStatus();
  }

  // True: something was read, perhaps nothing of it is shown.
  Result<bool> ReadBlock(v1::LogChunk* out) {
    if (attempt_.value() == 0) return false;
    const AttemptRef ref{task_, attempt_};
    std::int64_t& offset = want_tail_ ? scanned_ : offset_;
    GPULAYER_ASSIGN_OR_RETURN(const std::string bytes,
                              parts_.logs.Read(ref, offset, limits::kLogChunkBytes));
    Result<std::vector<FrameView>> frames = ParseFrames(bytes);
    if (!frames.ok()) {
      return frames.status().Prefixed("log of " + ToString(ref) + " at " + std::to_string(offset));
    }
    std::int64_t whole = 0;
    std::vector<FrameView> shown;
    for (const FrameView& frame : *frames) {
      whole += static_cast<std::int64_t>(frame.size);
      if (!IsShown(request_, frame.stream)) continue;
      if (frame.stream == LogStream::kNote && frame.data == kHeldBackNote &&
          offset + whole < parts_.logs.Size(ref))
        continue;
      shown.push_back(frame);
    }
    if (want_tail_) {
      if (whole == 0) {  // the end of what is stored: from here on it is read as usual
        const LogTail::Start start = tail_.Find(request_.tail_lines(), scanned_);
        offset_ = start.offset;
        skip_newlines_ = start.skip_newlines;
        want_tail_ = false;
        return true;
      }
      tail_.Add(scanned_, shown);
      scanned_ += whole;
      return true;
    }
    for (const FrameView& frame : shown) {
      const std::string_view data = SkipLines(frame.data, &skip_newlines_);
      if (data.empty()) continue;
      v1::LogChunk::Piece* piece = out->add_pieces();
      piece->set_stream(static_cast<std::int32_t>(frame.stream));
      piece->set_data(data.data(), data.size());
      piece->set_wall_us(frame.wall_us);
      if (frame.stream == LogStream::kNote) piece->set_dropped_bytes(DroppedIn(frame.data));
    }
    offset_ += whole;
    return whole > 0;
  }

  // Nothing to say: an empty chunk from time to time keeps idle links open.
  Step Rest(v1::LogChunk* out) {
    const auto now = steady_clock::now();
    if (now - silent_since_ >= limits::kKeepalive) {
      silent_since_ = now;
      out->clear_pieces();
      out->set_attempt(attempt_.value());
      out->set_next_offset(offset_);
      return Step::Write();
    }
    if (now >= timer_at_) {
      timer_at_ = silent_since_ + limits::kKeepalive;
      parts_.timer.After(timer_at_ - now, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->Wake();
      });
    }
    return Step::Idle();
  }

  Parts& parts_;
  const v1::ReadLogsRequest request_;
  const TaskRef task_;
  std::int64_t listener_ = 0;
  std::int64_t watch_ = 0;
  StoreReader* reader_ = nullptr;

  bool chosen_ = false;
  AttemptNo attempt_;
  std::int64_t offset_ = 0;
  bool want_tail_ = false;  // the place where the tail begins is being looked for
  std::int64_t scanned_ = 0;
  LogTail tail_;
  std::int64_t skip_newlines_ = 0;
  steady_clock::time_point silent_since_ = steady_clock::now();
  steady_clock::time_point timer_at_{};
};

class LogsService final : public v1::Logs::CallbackService {
 public:
  explicit LogsService(Parts& parts) : parts_(parts) {}

  grpc::ServerWriteReactor<v1::LogChunk>* Read(grpc::CallbackServerContext* context,
                                               const v1::ReadLogsRequest* request) override {
    Result<Principal> caller = parts_.guard.Admit(*context, "Logs.Read");
    if (!caller.ok()) return new Refused<grpc::ServerWriteReactor<v1::LogChunk>>(caller.status());
    return StartLogStream(parts_, *caller, *request);
  }

 private:
  Parts& parts_;
};

}  // namespace

grpc::ServerWriteReactor<v1::LogChunk>* StartLogStream(Parts& parts, const Principal& caller,
                                                       const v1::ReadLogsRequest& request) {
  return LogReadStream::Launch(std::make_shared<LogReadStream>(parts, request), parts.streams,
                               caller.token_id);
}

std::unique_ptr<grpc::Service> MakeLogsService(Parts& parts) {
  return std::make_unique<LogsService>(parts);
}

}  // namespace gpulayer::rpc
