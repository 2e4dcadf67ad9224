// Reading the logs of attempts while they grow. LogTail reads one log by offset; LogWatch wakes one
// thread for all of them.
//
// The upload loop: Wait() names attempts; for each, Read() until it gives no bytes; `final` ends
// it.
#ifndef GPULAYER_WORKER_LOGS_LOG_TAIL_H_
#define GPULAYER_WORKER_LOGS_LOG_TAIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fs.h"
#include "base/status.h"
#include "model/ids.h"

namespace gpulayer {

struct LogPiece {
  std::int64_t offset = 0;  // of data[0] in the log
  std::string data;         // whole frames; at most limits::kLogChunkBytes; empty: none now
  bool final = false;       // the log ends with this piece and will not grow
};

// A part of a log that is over: of a file, or words of our own.
struct LogPart {
  std::string file;  // empty: `bytes`
  std::int64_t from = 0;
  std::int64_t size = 0;
  std::string bytes;
};
// The log of an attempt that is over as one row of frames; the same at every call. One that went
// over its limit is its head, a note of how much is missing, and its tail from a line's beginning
// on, where one is near.
Result<std::vector<LogPart>> PartsOfLog(const std::string& attempt_dir);

// Threads:   one at a time.
// Ownership: holds a descriptor only while there is something unread (many attempts wait silently).
// Blocking:  never waits for the program; memory is one piece.
// Errors:    DATA_LOSS: the log is shorter than the offset or damaged.
class LogTail {
 public:
  // Begins at `offset`: 0, or the end of a piece read before (by an earlier worker, too).
  explicit LogTail(std::string attempt_dir, std::int64_t offset = 0)
      : dir_(std::move(attempt_dir)), offset_(offset) {}

  // The next piece. An attempt that never began has an empty log that is final once its status is
  // there.
  Result<LogPiece> Read();
  std::int64_t offset() const { return offset_; }

 private:
  // Of `left` bytes behind the offset these are there; the next piece, if there is one.
  Status TakeFrames(const std::string& path, bool ended, std::int64_t left, LogPiece& piece);
  Result<LogPiece> ReadParts();

  std::string dir_;
  std::int64_t offset_;
  std::vector<LogPart> parts_;  // of one that is over and has a tail; else empty
  UniqueFd fd_;
};

// Threads:   every method from any thread; one thread in Wait().
// Blocking:  Wait() until something happened, the time is over or Close().
// Errors:    CANCELLED after Close(). Where inotify is not to be had, all attempts are named every
//            20 ms: slower, never wrong.
class LogWatch {
 public:
  static std::unique_ptr<LogWatch> Create();
  virtual ~LogWatch() = default;
  // Named by Wait() from now on, once at the beginning, whenever its log grew or it ended.
  virtual void Add(const AttemptId& id, const std::string& attempt_dir) = 0;
  virtual void Remove(const AttemptId& id) = 0;  // no effect if unknown
  // Empty when `patience` is over. An attempt may be named without news.
  virtual Result<std::vector<AttemptId>> Wait(Duration patience) = 0;
  virtual void Close() = 0;  // wakes Wait(); may be called twice
};

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_LOGS_LOG_TAIL_H_
