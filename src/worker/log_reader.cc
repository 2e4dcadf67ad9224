#include "worker/log_reader.h"

#include <utility>

#include "base/log.h"

namespace gpulayer::worker {
namespace {

constexpr auto kWatchPatience = std::chrono::seconds(2);  // also the pause before `again_`

}  // namespace

LogReader::LogReader(Sink sink) : sink_(std::move(sink)), watch_(LogWatch::Create()) {
  thread_ = std::thread([this] { Watch(); });
}

LogReader::~LogReader() {
  watch_->Close();
  thread_.join();
  pool_.Stop();
}

void LogReader::Want(const AttemptId& id, const std::string& attempt_dir, std::int64_t from) {
  {
    MutexLock lock(mutex_);
    Log& log = logs_[id];
    log.dir = attempt_dir;
    log.want = from;
  }
  pool_.Submit([this, id] { ReadOne(id); });
}

void LogReader::Drop(const AttemptId& id) {
  bool watched = false;
  {
    MutexLock lock(mutex_);
    if (const auto it = logs_.find(id); it != logs_.end()) {
      watched = it->second.watched;
      logs_.erase(it);
    }
    again_.erase(id);
  }
  if (watched) watch_->Remove(id);
}

void LogReader::Watch() {
  for (;;) {
    std::set<AttemptId> again;
    {
      MutexLock lock(mutex_);
      again = std::exchange(again_, {});
    }
    const Result<std::vector<AttemptId>> named = watch_->Wait(kWatchPatience);
    if (!named.ok()) return;
    again.insert(named->begin(), named->end());
    for (const AttemptId& id : again) {
      MutexLock lock(mutex_);
      const auto it = logs_.find(id);
      if (it == logs_.end()) continue;
      if (it->second.want) pool_.Submit([this, id] { ReadOne(id); });
    }
  }
}

void LogReader::ReadOne(const AttemptId& id) {
  std::shared_ptr<LogTail> tail;
  std::int64_t from = 0;
  {
    MutexLock lock(mutex_);
    const auto it = logs_.find(id);
    if (it == logs_.end() || !it->second.want) return;
    Log& log = it->second;
    from = *log.want;
    if (!log.tail || log.tail->offset() != from) {
      log.tail = std::make_shared<LogTail>(log.dir, from);
    }
    tail = log.tail;
  }
  Result<LogPiece> piece = tail->Read();
  const bool damaged = !piece.ok() && piece.status().code() == StatusCode::kDataLoss;
  bool watch = false;
  std::string dir;
  {
    MutexLock lock(mutex_);
    const auto it = logs_.find(id);
    if (it == logs_.end() || it->second.want != from) return;  // dropped, or another wish follows
    if (!piece.ok() && !damaged) {
      again_.insert(id);
      it->second.tail.reset();
    } else if (damaged || !piece->data.empty() || piece->final) {
      it->second.want.reset();
    } else if (std::exchange(it->second.watched, true)) {
      return;  // nothing there yet: the watch will tell
    } else {
      watch = true;
      dir = it->second.dir;
    }
  }
  // Only now: the log of a short program is over before anybody has to wait for it. It names the log
  // at once, for what came before the watch.
  if (watch) {
    watch_->Add(id, dir);
    bool dropped = false;
    {
      MutexLock lock(mutex_);
      dropped = !logs_.contains(id);
    }
    if (dropped) watch_->Remove(id);
    return;
  }
  if (piece.ok()) {
    sink_(LogRead{id, piece->offset, std::move(piece->data), piece->final});
  } else if (damaged) {
    LogError("attempt " + id.value() + ": " + piece.status().message() + "; its log ends there");
    sink_(LogFailed{id, from});
  } else {
    LogWarning("attempt " + id.value() + ": " + piece.status().message() + "; trying again");
  }
}

}  // namespace gpulayer::worker
