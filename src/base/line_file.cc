#include "base/line_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace gpulayer {
namespace {

constexpr std::size_t kBlock = 64 * 1024;

Result<std::size_t> ReadAt(int fd, char* buffer, std::size_t size, std::int64_t offset) {
  for (;;) {
    const ssize_t n = pread(fd, buffer, size, offset);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) return ErrnoStatus("read lines", errno);
  }
}

}  // namespace

Result<LineFile> LineFile::Open(UniqueFd fd) {
  LineFile file;
  std::string buffer(kBlock, '\0');
  std::int64_t offset = 0;
  std::int64_t begin = 0;  // of the line under way
  const auto end_line = [&](std::int64_t end) {
    if (file.count_ % kStride == 0) file.starts_.push_back(begin);
    ++file.count_;
    file.longest_ = std::max(file.longest_, end - begin);
    begin = end + 1;
  };
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n,
                              ReadAt(fd.get(), buffer.data(), buffer.size(), offset));
    if (n == 0) break;
    const std::string_view block(buffer.data(), n);
    file.has_nul_ = file.has_nul_ || block.find('\0') != std::string_view::npos;
    for (std::size_t at = 0; (at = block.find('\n', at)) != std::string_view::npos; ++at) {
      end_line(offset + static_cast<std::int64_t>(at));
    }
    offset += static_cast<std::int64_t>(n);
  }
  if (begin < offset) end_line(offset);
  file.fd_ = std::move(fd);
  return file;
}

Result<std::string> LineFile::Line(std::int64_t n) const {
  if (n < 0 || n >= count_) {
    return OutOfRange("line " + std::to_string(n) + ": there are " + std::to_string(count_));
  }
  std::string buffer(std::min<std::size_t>(kBlock, static_cast<std::size_t>(longest_) + 1), '\0');
  std::string line;
  std::int64_t offset = starts_[static_cast<std::size_t>(n / kStride)];
  std::int64_t skip = n % kStride;
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t got,
                              ReadAt(fd_.get(), buffer.data(), buffer.size(), offset));
    if (got == 0) return line;  // the last one, without an end
    offset += static_cast<std::int64_t>(got);
    std::string_view block(buffer.data(), got);
    for (; skip > 0; --skip) {
      const std::size_t end = block.find('\n');
      if (end == std::string_view::npos) break;
      block.remove_prefix(end + 1);
    }
    if (skip > 0) continue;
    const std::size_t end = block.find('\n');
    line.append(block.substr(0, end));
    if (end != std::string_view::npos) return line;
  }
}

}  // namespace gpulayer
