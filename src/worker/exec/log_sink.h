// One attempt's log file as the monitor writes it: whole frames at known places.
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

namespace gpulayer {

class LogSink {
 public:
  explicit LogSink(int fd) : fd_(fd) {}

  enum class Progress { kMore, kNothingNow, kEnd };
  // One read of at most 64 KiB from a non-blocking pipe, as one frame.
  Progress Copy(int pipe, LogStream stream);

  // The note about dropped bytes, if it fits now; cuts off what is no whole frame.
  void Finish();

  std::int64_t size() const { return size_; }
  std::int64_t dropped() const { return dropped_total_; }

 private:
  bool WriteFrame(std::string_view frame);  // all of it counted, or nothing
  bool WriteNote();
  void Cut();  // off what is no whole frame

  const int fd_;
  std::int64_t size_ = 0;     // end of the last whole frame
  std::int64_t dropped_ = 0;  // not yet noted
  std::int64_t dropped_total_ = 0;
  char buffer_[kFrameHeader + kMaxFrameData];
};

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_LOG_SINK_H_
