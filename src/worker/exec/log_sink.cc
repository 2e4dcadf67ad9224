#include "worker/exec/log_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
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
  // Small beside the tail's files: what they keep is whole frames.
  const std::size_t most =
      std::min<std::size_t>(kMaxFrameData, static_cast<std::size_t>(limit_) / 16);
  const ssize_t n = read(pipe, buffer_ + kFrameHeader, most);
  if (n == 0) return Progress::kEnd;
  if (n < 0) {
    return errno == EAGAIN || errno == EINTR ? Progress::kNothingNow : Progress::kEnd;
  }
  const auto size = static_cast<std::size_t>(n);
  WriteFrameHeader(buffer_, stream, WallMicros(), size);
  if ((dropped_ > 0 && !WriteNote()) || !Put({buffer_, kFrameHeader + size})) {
    dropped_ += n;
    dropped_total_ += n;
  }
  output_ += n;
  at_line_[stream == LogStream::kErr ? 1 : 0] = buffer_[kFrameHeader + size - 1] == '\n';
  return Progress::kMore;
}

void LogSink::Finish() {
  if (dropped_ > 0) WriteNote();
  Cut();
}

std::int64_t LogSink::size() const {
  if (tail_.number == 0) return size_;
  return tail_.head_bytes + size_ + other_size_ + kNoteRoom;
}

// A file system that cannot do even this leaves what a killed writer leaves: a torn end.
void LogSink::Cut() { [[maybe_unused]] const int cut = ftruncate(fd_, size_); }

bool LogSink::WriteNote() {
  std::string note;
  AppendFrame(note, LogStream::kNote, WallMicros(),
              DroppedNote(dropped_, ": the worker's disk was full"));
  if (!Put(note)) return false;
  dropped_ = 0;
  return true;
}

bool LogSink::Put(std::string_view frame) {
  const std::int64_t room = tail_.number == 0 ? limit_ / 2 : limit_ / 4;
  if (size_ + static_cast<std::int64_t>(frame.size()) > room && !BeginTail()) return false;
  return WriteFrame(frame);
}

bool LogSink::BeginTail() {
  TailHeader next = tail_;
  next.number = tail_.number + 1;
  if (tail_.number == 0) {
    if (!held_back_said_) {
      std::string note;
      AppendFrame(note, LogStream::kNote, WallMicros(), kHeldBackNote);
      held_back_said_ = WriteFrame(note);
    }
    Cut();
    next.log_limit = limit_;
    next.head_bytes = size_;
    next.head_output = output_ - dropped_;
  }
  next.output_before = output_ - dropped_;  // what a full disk did not take is noted behind it
  next.out_at_line = at_line_[0];
  next.err_at_line = at_line_[1];
  int& fd = tail_fds_[next.number % 2];
  if (fd < 0) {
    fd = openat(dir_fd_, kTailFiles[next.number % 2],
                O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  }
  // What is in it goes first: there may be no other room on the disk.
  if (fd < 0 || ftruncate(fd, 0) != 0) return false;
  if (tail_.number > 1) other_size_ = 0;
  const std::string header = EncodeTailHeader(next);
  if (pwrite(fd, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size())) {
    [[maybe_unused]] const int cut = ftruncate(fd, 0);
    return false;
  }
  other_size_ = tail_.number == 0 ? 0 : size_;
  tail_ = next;
  fd_ = fd;
  size_ = static_cast<std::int64_t>(header.size());
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
