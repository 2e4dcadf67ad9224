#include "worker/exec/log_sink.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

namespace gpulayer {
namespace {

std::int64_t WallMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

LogSink::Progress LogSink::Copy(int pipe, LogStream stream) {
  const ssize_t n = read(pipe, buffer_ + kFrameHeader, kMaxFrameData);
  if (n == 0) return Progress::kEnd;
  if (n < 0) {
    return errno == EAGAIN || errno == EINTR ? Progress::kNothingNow : Progress::kEnd;
  }
  const auto size = static_cast<std::size_t>(n);
  WriteFrameHeader(buffer_, stream, WallMicros(), size);
  if ((dropped_ > 0 && !WriteNote()) || !WriteFrame({buffer_, kFrameHeader + size})) {
    dropped_ += n;
    dropped_total_ += n;
  }
  return Progress::kMore;
}

void LogSink::Finish() {
  if (dropped_ > 0) WriteNote();
  Cut();
}

// A file system that cannot do even this leaves what a killed writer leaves: a torn end.
void LogSink::Cut() { [[maybe_unused]] const int cut = ftruncate(fd_, size_); }

bool LogSink::WriteNote() {
  std::string note;
  AppendFrame(note, LogStream::kNote, WallMicros(),
              "dropped " + std::to_string(dropped_) + " bytes: the worker's disk was full\n");
  if (!WriteFrame(note)) return false;
  dropped_ = 0;
  return true;
}

bool LogSink::WriteFrame(std::string_view frame) {
  std::size_t done = 0;
  while (done < frame.size()) {
    const ssize_t n = pwrite(fd_, frame.data() + done, frame.size() - done,
                             size_ + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // A shorter frame would leave the rest of this one behind it, which readers take for damage.
      if (done > 0) Cut();
      return false;
    }
    done += static_cast<std::size_t>(n);
  }
  size_ += static_cast<std::int64_t>(frame.size());
  return true;
}

}  // namespace gpulayer
