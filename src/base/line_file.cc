#include "base/line_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>

namespace gpulayer {
namespace {

constexpr std::size_t kBlock = 64 * 1024;
// Short lines are read many at a time.
constexpr std::size_t kLeastBlock = 4096;

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
  GPULAYER_ASSIGN_OR_RETURN(std::vector<std::string> lines,
                            Lines({n}, std::numeric_limits<std::size_t>::max()));
  return std::move(lines.front());
}

Result<std::vector<std::string>> LineFile::Lines(const std::vector<std::int64_t>& ascending,
                                                 std::size_t budget) const {
  std::vector<std::string> out;
  std::string buffer(
      std::clamp<std::size_t>(static_cast<std::size_t>(longest_) + 1, kLeastBlock, kBlock), '\0');
  std::string_view block;    // what is read and not looked at yet
  std::int64_t offset = 0;   // of what follows the block
  std::int64_t at = count_;  // the line that the block begins with, or is within
  for (const std::int64_t n : ascending) {
    if (n < 0 || n >= count_) {
      return OutOfRange("line " + std::to_string(n) + ": there are " + std::to_string(count_));
    }
    if (at > n || n - at >= kStride) {  // further back, or so far ahead that a mark is nearer
      block = {};
      at = n - n % kStride;
      offset = starts_[static_cast<std::size_t>(n / kStride)];
    }
    std::string line;
    for (bool more = true; more;) {
      if (block.empty()) {
        GPULAYER_ASSIGN_OR_RETURN(const std::size_t got,
                                  ReadAt(fd_.get(), buffer.data(), buffer.size(), offset));
        if (got == 0) break;  // the last one, without an end
        offset += static_cast<std::int64_t>(got);
        block = std::string_view(buffer).substr(0, got);
      }
      const std::size_t end = block.find('\n');
      if (at == n) line.append(block.substr(0, end));
      block.remove_prefix(end == std::string_view::npos ? block.size() : end + 1);
      if (end != std::string_view::npos) more = at++ != n;
    }
    if (line.size() > budget) return out;
    budget -= line.size();
    out.push_back(std::move(line));
  }
  return out;
}

std::shared_ptr<const LineFile> LineFiles::Find(const Hash& hash) {
  for (const auto& [known, file] : files_) {
    if (known == hash) return file;
  }
  return nullptr;
}

Result<std::shared_ptr<const LineFile>> LineFiles::Get(
    const Hash& hash, const std::function<Result<UniqueFd>()>& open) {
  {
    MutexLock lock(mutex_);
    if (auto file = Find(hash)) return file;
  }
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, open());
  GPULAYER_ASSIGN_OR_RETURN(LineFile read, LineFile::Open(std::move(fd)));
  MutexLock lock(mutex_);
  if (auto file = Find(hash)) return file;  // another thread was as quick
  auto file = std::make_shared<const LineFile>(std::move(read));
  files_.emplace_back(hash, file);
  if (files_.size() > most_) files_.pop_front();
  return std::shared_ptr<const LineFile>(std::move(file));
}

}  // namespace gpulayer
