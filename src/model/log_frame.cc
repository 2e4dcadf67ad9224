#include "model/log_frame.h"

#include <charconv>

namespace gpulayer {
namespace {

constexpr std::string_view kDropped = "dropped ";

std::uint64_t ReadLe(std::string_view bytes, std::size_t at, int n) {
  std::uint64_t v = 0;
  for (int i = n - 1; i >= 0; --i) {
    v = v << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  }
  return v;
}

void WriteLe(char* out, std::uint64_t v, int n) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<char>(v >> (8 * i) & 255);
}

}  // namespace

const std::string_view kHeldBackNote =
    "half of the output's limit (--log-limit) is used: what follows is shown when the attempt is "
    "over\n";

std::string DroppedNote(std::int64_t bytes, std::string_view why) {
  return std::string(kDropped) + std::to_string(bytes) + " bytes" + std::string(why) + "\n";
}

std::int64_t DroppedIn(std::string_view note) {
  if (note.substr(0, kDropped.size()) != kDropped) return 0;
  note.remove_prefix(kDropped.size());
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(note.data(), note.data() + note.size(), bytes);
  const auto rest = note.substr(static_cast<std::size_t>(end - note.data()));
  return error == std::errc() && rest.substr(0, 6) == " bytes" ? bytes : 0;
}

void WriteFrameHeader(char* out, LogStream stream, std::int64_t wall_us, std::size_t size) {
  WriteLe(out, size, 4);
  WriteLe(out + 4, static_cast<std::uint64_t>(stream), 4);  // one byte and three zeros
  WriteLe(out + 8, static_cast<std::uint64_t>(wall_us), 8);
}

void AppendFrame(std::string& out, LogStream stream, std::int64_t wall_us, std::string_view data) {
  while (!data.empty()) {
    const std::string_view piece = data.substr(0, kMaxFrameData);
    char header[kFrameHeader];
    WriteFrameHeader(header, stream, wall_us, piece.size());
    out.append(header, sizeof(header));
    out += piece;
    data.remove_prefix(piece.size());
  }
}

Result<std::vector<FrameView>> ParseFrames(std::string_view bytes) {
  std::vector<FrameView> frames;
  while (bytes.size() >= kFrameHeader) {
    const std::uint64_t length = ReadLe(bytes, 0, 4);
    const auto stream = static_cast<std::uint8_t>(bytes[4]);
    if (length == 0 || length > kMaxFrameData || stream > 2) {
      return DataLoss("log: damaged frame header");
    }
    if (bytes.size() < kFrameHeader + length) break;
    frames.push_back({static_cast<LogStream>(stream),
                      static_cast<std::int64_t>(ReadLe(bytes, 8, 8)),
                      bytes.substr(kFrameHeader, length), kFrameHeader + length});
    bytes.remove_prefix(kFrameHeader + length);
  }
  return frames;
}

}  // namespace gpulayer
