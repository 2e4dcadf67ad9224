// How log bytes are kept on disk and on the wire: a row of frames in order of arrival, so that
// standard output and standard error keep their order in one file and an offset means one place in
// both.
//
// Frame (do not change): u32 length of data, u8 stream, u8[3] zero, u64 wall clock in us; little
// endian; then the data, at most kMaxFrameData bytes. A frame cut short at the end of a file has
// not been written yet.
#ifndef GPULAYER_MODEL_LOG_FRAME_H_
#define GPULAYER_MODEL_LOG_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace gpulayer {

enum class LogStream : std::uint8_t {
  kNote = 0,  // GPUlayer's own words, one of the two below
  kOut = 1,
  kErr = 2,
};

inline constexpr std::size_t kFrameHeader = 16;
inline constexpr std::size_t kMaxFrameData = 64 * 1024;

// The kFrameHeader bytes in front of `size` bytes of data; for a writer that has its own buffer.
// REQUIRES: 0 < size <= kMaxFrameData
void WriteFrameHeader(char* out, LogStream stream, std::int64_t wall_us, std::size_t size);

// As many frames as `data` needs; none for no data.
void AppendFrame(std::string& out, LogStream stream, std::int64_t wall_us, std::string_view data);

// Output that is missing here. `why` stands behind "dropped N bytes".
std::string DroppedNote(std::int64_t bytes, std::string_view why);
// Of a note's data: how many bytes it says to be missing; 0: it is no such note.
std::int64_t DroppedIn(std::string_view note);
// What a log says when its first half is full: the rest is held back until its end is known, since
// what stands in between may be dropped. It is for who reads meanwhile.
extern const std::string_view kHeldBackNote;

struct FrameView {
  LogStream stream = LogStream::kOut;
  std::int64_t wall_us = 0;
  std::string_view data;
  std::size_t size = 0;  // with header
};

// The whole frames at the front of `bytes`; what is left over begins a frame cut short.
// DATA_LOSS: a header that cannot be.
Result<std::vector<FrameView>> ParseFrames(std::string_view bytes);

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_LOG_FRAME_H_
