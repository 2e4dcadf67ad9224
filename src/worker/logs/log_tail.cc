#include "worker/logs/log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/text.h"
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

// How far into the tail a line's beginning is looked for.
constexpr std::int64_t kLineSearch = 64 << 10;

Result<std::string> ReadPart(const LogPart& part, std::int64_t from, std::int64_t size) {
  if (part.file.empty()) {
    return part.bytes.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(size));
  }
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(part.file, O_RDONLY | O_NOFOLLOW));
  std::string bytes(static_cast<std::size_t>(size), '\0');
  GPULAYER_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(fd.get(), bytes, part.from + from));
  if (got < bytes.size()) return DataLoss("read " + part.file + ": it is shorter than it was");
  return bytes;
}

struct TailFile {
  TailHeader header;
  LogPart part;  // the frames behind the header
};

// None: its keeper was about to begin it when it died.
Result<std::optional<TailFile>> OpenTail(const std::string& path) {
  struct stat st{};
  if (lstat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return std::optional<TailFile>();
    return ErrnoStatus("look at " + path, errno);
  }
  if (!S_ISREG(st.st_mode)) return std::optional<TailFile>();
  constexpr auto kHeader = static_cast<std::int64_t>(kTailHeaderBytes);
  const LogPart all{path, 0, st.st_size, {}};
  GPULAYER_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadPart(all, 0, std::min<std::int64_t>(st.st_size, kHeader)));
  const Result<TailHeader> header = DecodeTailHeader(bytes);
  if (!header.ok()) return std::optional<TailFile>();
  return std::optional(TailFile{*header, {path, kHeader, st.st_size - kHeader, {}}});
}

bool IsProgram(LogStream stream) { return stream != LogStream::kNote; }

// What is in front of the first line of each stream.
struct Trim {
  std::int64_t out = 0;
  std::int64_t err = 0;
  std::int64_t& of(LogStream stream) { return stream == LogStream::kErr ? err : out; }
};

Trim FindLines(const std::vector<FrameView>& frames, const TailHeader& header, std::int64_t most) {
  Trim before;
  Trim found;
  bool out_open = !header.out_at_line;
  bool err_open = !header.err_at_line;
  std::int64_t scanned = 0;
  for (const FrameView& frame : frames) {
    if (scanned >= most) break;
    scanned += static_cast<std::int64_t>(frame.size);
    bool& open = frame.stream == LogStream::kErr ? err_open : out_open;
    if (!IsProgram(frame.stream) || !open) continue;
    const std::size_t newline = frame.data.find('\n');
    if (newline == std::string_view::npos) {
      before.of(frame.stream) += static_cast<std::int64_t>(frame.data.size());
    } else {
      found.of(frame.stream) = before.of(frame.stream) + static_cast<std::int64_t>(newline) + 1;
      open = false;
    }
  }
  return found;
}

// The note, and the tail's first frames without what is in front of their first lines. `*from`:
// where the rest begins.
Result<std::string> BeginningOfTail(const TailFile& first, std::int64_t tail_bytes,
                                    std::int64_t* from) {
  const std::int64_t dropped = first.header.output_before - first.header.head_output;
  *from = 0;
  if (dropped == 0) return std::string();
  constexpr std::int64_t kScan =
      kLineSearch + static_cast<std::int64_t>(kFrameHeader + kMaxFrameData);
  GPULAYER_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadPart(first.part, 0, std::min(first.part.size, kScan)));
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<FrameView> frames, ParseFrames(bytes));
  // Never so far that hardly anything is left: the end may be one long line.
  Trim trim = FindLines(frames, first.header, std::min(kLineSearch, tail_bytes / 2));
  std::string out;
  AppendFrame(
      out, LogStream::kNote, frames.empty() ? 0 : frames.front().wall_us,
      DroppedNote(dropped + trim.out + trim.err,
                  " of output here (--log-limit " + FormatSize(first.header.log_limit) + ")"));
  for (const FrameView& frame : frames) {
    if (trim.out == 0 && trim.err == 0) break;
    *from += static_cast<std::int64_t>(frame.size);
    std::string_view data = frame.data;
    if (IsProgram(frame.stream)) {
      std::int64_t& left = trim.of(frame.stream);
      const auto cut = std::min(left, static_cast<std::int64_t>(data.size()));
      data.remove_prefix(static_cast<std::size_t>(cut));
      left -= cut;
    }
    AppendFrame(out, frame.stream, frame.wall_us, data);
  }
  return out;
}

}  // namespace

Result<std::vector<LogPart>> PartsOfLog(const std::string& attempt_dir) {
  std::vector<TailFile> tail;
  for (const char* name : kTailFiles) {
    GPULAYER_ASSIGN_OR_RETURN(std::optional<TailFile> file, OpenTail(JoinPath(attempt_dir, name)));
    if (file) tail.push_back(*std::move(file));
  }
  std::sort(tail.begin(), tail.end(),
            [](const TailFile& a, const TailFile& b) { return a.header.number < b.header.number; });
  const std::string log = JoinPath(attempt_dir, kLogFile);
  if (tail.empty()) {
    struct stat st{};
    if (stat(log.c_str(), &st) != 0) return ErrnoStatus("read " + log, errno);
    return std::vector<LogPart>{{log, 0, st.st_size, {}}};
  }
  std::int64_t tail_bytes = 0;
  for (const TailFile& file : tail) tail_bytes += file.part.size;
  std::int64_t from = 0;
  GPULAYER_ASSIGN_OR_RETURN(std::string beginning,
                            BeginningOfTail(tail.front(), tail_bytes, &from));
  std::vector<LogPart> parts = {{log, 0, tail.front().header.head_bytes, {}}};
  const auto size = static_cast<std::int64_t>(beginning.size());
  if (size > 0) parts.push_back({"", 0, size, std::move(beginning)});
  tail.front().part.from += from;
  tail.front().part.size -= from;
  for (TailFile& file : tail) parts.push_back(std::move(file.part));
  return parts;
}

Result<LogPiece> LogTail::Read() {
  LogPiece piece;
  piece.offset = offset_;
  // Asked before the log is read: once the status is there the log is complete.
  const bool ended = PathExists(JoinPath(dir_, kStatusFile));
  const std::string path = JoinPath(dir_, kLogFile);
  if (ended && parts_.empty() && PathExists(JoinPath(dir_, kTailFiles[1]))) {
    GPULAYER_ASSIGN_OR_RETURN(parts_, PartsOfLog(dir_));
  }
  if (!parts_.empty()) return ReadParts();
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
  GPULAYER_RETURN_IF_ERROR(TakeFrames(path, ended, left, piece));
  if (piece.data.empty()) fd_.Reset();
  return piece;
}

Status LogTail::TakeFrames(const std::string& path, bool ended, std::int64_t left,
                           LogPiece& piece) {
  // The frame at the end may be in the middle of being written; it is left for the next time.
  Result<std::vector<FrameView>> frames = ParseFrames(piece.data);
  if (!frames.ok()) return frames.status().Prefixed("read " + path);
  // What is torn at the end of an ended log was cut off by a killed writer and never was a frame.
  piece.final = ended && static_cast<std::int64_t>(piece.data.size()) == left;
  std::size_t whole = 0;
  for (const FrameView& frame : *frames) whole += frame.size;
  piece.data.resize(whole);
  offset_ += static_cast<std::int64_t>(whole);
  return OkStatus();
}

Result<LogPiece> LogTail::ReadParts() {
  fd_.Reset();
  LogPiece piece;
  piece.offset = offset_;
  std::int64_t begin = 0;  // of the part
  for (const LogPart& part : parts_) {
    const std::int64_t at = offset_ + static_cast<std::int64_t>(piece.data.size());
    const std::int64_t room = limits::kLogChunkBytes - static_cast<std::int64_t>(piece.data.size());
    const std::int64_t size = std::min(room, begin + part.size - at);
    if (at >= begin && size > 0) {
      GPULAYER_ASSIGN_OR_RETURN(const std::string bytes, ReadPart(part, at - begin, size));
      piece.data += bytes;
    }
    begin += part.size;
  }
  if (begin < offset_) return DataLoss("read the log in " + dir_ + ": it is shorter than before");
  GPULAYER_RETURN_IF_ERROR(TakeFrames(dir_, true, begin - offset_, piece));
  return piece;
}

}  // namespace gpulayer
