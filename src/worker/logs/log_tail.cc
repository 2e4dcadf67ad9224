#include "worker/logs/log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "model/limits.h"
#include "model/log_frame.h"
#include "worker/exec/attempt_dir.h"

namespace gpulayer {
namespace {

static_assert(limits::kLogChunkBytes >= kFrameHeader + kMaxFrameData,
              "a piece must hold the largest frame, or it would never get past it");

// Up to `size` bytes at `offset`; fewer at the end of the file.
Result<std::size_t> ReadAt(int fd, std::string& buffer, std::int64_t offset) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t n = pread(fd, buffer.data() + done, buffer.size() - done,
                            offset + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus("read log", errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

}  // namespace

Result<LogPiece> LogTail::Read() {
  LogPiece piece;
  piece.offset = offset_;
  // Asked before the log is read: once the status is there the log is complete.
  const bool ended = PathExists(JoinPath(dir_, kStatusFile));
  const std::string path = JoinPath(dir_, kLogFile);
  if (!fd_.valid()) {
    Result<UniqueFd> fd = OpenFile(path, O_RDONLY);
    if (!fd.ok()) {
      if (fd.status().code() != StatusCode::kNotFound) return fd.status();
      if (offset_ != 0 && ended) return DataLoss("read " + path + ": it is gone");
      piece.final = ended;
      return piece;
    }
    fd_ = *std::move(fd);
  }
  struct stat st{};
  if (fstat(fd_.get(), &st) != 0) return ErrnoStatus("read " + path, errno);
  if (st.st_size < offset_) {
    return DataLoss("read " + path + ": it has " + std::to_string(st.st_size) +
                    " bytes, fewer than the " + std::to_string(offset_) + " read before");
  }
  const std::int64_t left = st.st_size - offset_;
  piece.data.resize(
      static_cast<std::size_t>(std::min(left, static_cast<std::int64_t>(limits::kLogChunkBytes))));
  GPULAYER_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(fd_.get(), piece.data, offset_));
  piece.data.resize(got);
  // The frame at the end may be in the middle of being written; it is left for the next time.
  Result<std::vector<FrameView>> frames = ParseFrames(piece.data);
  if (!frames.ok()) return frames.status().Prefixed("read " + path);
  std::size_t whole = 0;
  for (const FrameView& frame : *frames) whole += frame.size;
  piece.data.resize(whole);
  offset_ += static_cast<std::int64_t>(whole);
  // What is torn at the end of an ended log was cut off by a killed writer and never was a frame.
  piece.final = ended && static_cast<std::int64_t>(got) == left;
  if (piece.data.empty()) fd_.Reset();
  return piece;
}

}  // namespace gpulayer
