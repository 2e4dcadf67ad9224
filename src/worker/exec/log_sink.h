// One attempt's log as the monitor writes it: whole frames at known places. Beyond its limit the
// beginning and the end are kept: `log` takes the first half, then two files in turn take a quarter
// each (attempt_format.h), so that the disk never holds more and any death leaves both.
//
// Blocking: Copy() writes to the disk; a slow disk holds up the program through its pipe and costs
//           no memory, since there is one buffer.
// Errors:   what a full disk does not take is counted and dropped, and the next frame that fits is
//           preceded by a note that says so.
#ifndef GPULAYER_WORKER_EXEC_LOG_SINK_H_
#define GPULAYER_WORKER_EXEC_LOG_SINK_H_

#include <cstdint>
#include <string_view>

#include "model/log_frame.h"
#include "worker/exec/attempt_format.h"

namespace gpulayer {

// More than the words take that a reader puts between the two ends.
inline constexpr std::int64_t kNoteRoom = 512;

class LogSink {
 public:
  // `fd`: of `log`. The tail's files are made in `dir_fd`.
  LogSink(int fd, int dir_fd) : fd_(fd), dir_fd_(dir_fd) {}
  void Limit(std::int64_t bytes) { limit_ = bytes; }

  enum class Progress { kMore, kNothingNow, kEnd };
  // One read of at most 64 KiB from a non-blocking pipe, as one frame.
  Progress Copy(int pipe, LogStream stream);

  // The note about dropped bytes, if it fits now; cuts off what is no whole frame.
  void Finish();

  std::int64_t size() const;  // AttemptStatus::log_bytes
  std::int64_t dropped() const { return dropped_total_; }

 private:
  bool Put(std::string_view frame);  // all of it counted, or nothing
  bool WriteFrame(std::string_view frame);
  bool WriteNote();
  bool BeginTail();  // or the next file of it
  void Cut();        // off what is no whole frame

  int fd_;  // of the file that is written now
  const int dir_fd_;
  std::int64_t limit_ = limits::kLogLimitBytes;
  std::int64_t size_ = 0;        // end of its last whole frame
  std::int64_t other_size_ = 0;  // of the tail's other file
  std::int64_t dropped_ = 0;     // not yet noted
  std::int64_t dropped_total_ = 0;
  std::int64_t output_ = 0;         // what was read, dropped or not
  bool at_line_[2] = {true, true};  // that ended with a line, out and err
  bool held_back_said_ = false;
  TailHeader tail_;  // of the file that is written now; number 0: none is
  int tail_fds_[2] = {-1, -1};
  char buffer_[kFrameHeader + kMaxFrameData];
};

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_LOG_SINK_H_
