#include "client/fetch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/behind.h"
#include "model/blob_file.h"
#include "model/limits.h"
#include "tree/beneath.h"

namespace gpulayer::client {
namespace {

// A small blob stays in memory; thousands of them would otherwise be thousands of files made and
// forgotten.
constexpr std::int64_t kInMemory = 1 << 20;
// From this size on a blob's pieces are hashed while the next is written.
constexpr std::int64_t kHashApart = 8 << 20;
// Of a file that is copied: in one call, and how much of it is read at a time to be hashed.
constexpr std::int64_t kCopyBytes = 8 << 20;
constexpr std::size_t kReadBytes = 256 * 1024;

Result<UniqueFd> Spool(const std::string& dir, std::int64_t size) {
  if (size <= kInMemory) {
    UniqueFd fd(::memfd_create("gpulayer-blob", MFD_CLOEXEC));
    if (fd.valid()) return fd;
  }
  UniqueFd fd(::open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.valid()) return fd;
  // Not every file system has unnamed files.
  std::string path = dir + "/.gpulayer-blob-XXXXXX";
  fd = UniqueFd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("write " + path, errno);
  ::unlink(path.c_str());
  return fd;
}

Result<UniqueFd> Again(const UniqueFd& fd) {
  UniqueFd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoStatus("keep a blob open", errno);
  return copy;
}

}  // namespace

BlobFetcher::BlobFetcher(Transport& transport, std::vector<Hash> hashes, FetchOptions options)
    : transport_(transport),
      hashes_([&] {
        std::vector<Hash> unique;
        std::map<Hash, bool> seen;
        for (const Hash& hash : hashes) {
          if (!std::exchange(seen[hash], true)) unique.push_back(hash);
        }
        return unique;
      }()),
      options_(std::move(options)) {
  for (const Hash& hash : hashes) ++wanted_[hash];
}

Result<UniqueFd> BlobFetcher::Open(const Hash& hash) {
  for (;;) {
    if (const auto found = kept_.find(hash); found != kept_.end()) {
      if (--wanted_[hash] > 0) return Again(found->second);
      UniqueFd fd = std::move(found->second);
      kept_.erase(found);
      return fd;
    }
    if (next_ == hashes_.size()) return Internal("a blob was asked for that is not in the tree");
    const Hash coming = hashes_[next_];
    GPULAYER_ASSIGN_OR_RETURN(UniqueFd fd, Next());
    kept_.emplace(coming, std::move(fd));
  }
}

Result<UniqueFd> BlobFetcher::Next() {
  RetryPolicy policy(Clock::System(), options_.reconnect_for);
  const Sleeper sleep = InterruptibleSleeper(options_.interrupt);
  for (;;) {
    Result<UniqueFd> fd = Receive(hashes_[next_]);
    if (fd.ok()) {
      ++next_;
      return fd;
    }
    stream_.reset();
    if (fd.status().code() == StatusCode::kDataLoss && suspect_ != hashes_[next_]) {
      suspect_ = hashes_[next_];
      continue;
    }
    if (!policy.Allows(fd.status())) return fd.status();
    GPULAYER_RETURN_IF_ERROR(sleep(policy.NextDelay()));
  }
}

Status BlobFetcher::TakeChunk() {
  GPULAYER_ASSIGN_OR_RETURN(std::optional<v1::DownloadChunk> chunk, stream_->Read());
  if (!chunk) return DataLoss("download: the server ended before the last blob");
  chunk_ = *std::move(chunk);
  part_ = 0;
  return OkStatus();
}

// The shortcut on the server's own machine: what the client keeps is a copy, hashed as one that came
// by bytes.
Result<UniqueFd> BlobFetcher::CopyStored(const std::string& store, const Hash& hash,
                                         std::int64_t size) {
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd dir, OpenFile(store, O_RDONLY | O_DIRECTORY));
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd from, tree::OpenRegular(dir.get(), BlobFileName(hash)));
  GPULAYER_ASSIGN_OR_RETURN(UniqueFd to, Spool(options_.spool_dir, size));
  Hasher hasher;
  std::string buffer(kReadBytes, '\0');
  std::int64_t hashed = 0;
  Behind<std::int64_t> behind([&](std::int64_t end) {
    while (hashed < end) {
      const auto want = static_cast<std::size_t>(
          std::min(end - hashed, static_cast<std::int64_t>(buffer.size())));
      const ssize_t n = ::pread(to.get(), buffer.data(), want, hashed);
      if (n <= 0) return false;
      hasher.Update({buffer.data(), static_cast<std::size_t>(n)});
      hashed += n;
    }
    return true;
  });
  std::int64_t copied = 0;
  while (copied < size) {
    if (Thrown(options_.interrupt)) return Cancelled("download: interrupted");
    const std::int64_t want = std::min(size - copied, kCopyBytes);
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n,
                              CopySome(from.get(), to.get(), static_cast<std::size_t>(want)));
    if (n == 0) break;
    std::int64_t end = copied += static_cast<std::int64_t>(n);
    if (!behind.Put(end)) break;
  }
  if (!behind.Flush() || hashed != size || hasher.Finish() != hash) {
    return DataLoss("copy blob " + hash.hex() + ": it is damaged");
  }
  return to;
}

Result<UniqueFd> BlobFetcher::Receive(const Hash& hash) {
  if (!stream_ || next_ == stream_end_) {
    v1::DownloadRequest request;
    stream_end_ = std::min(hashes_.size(), next_ + limits::kMaxHashesPerCall);
    for (std::size_t i = next_; i < stream_end_; ++i) {
      request.add_hashes(std::string(hashes_[i].bytes()));
    }
    request.set_files(files_);
    if (suspect_ == hashes_[next_]) request.set_suspect(std::string(suspect_.bytes()));
    stream_ = std::make_unique<ReadAhead<v1::DownloadChunk>>(
        transport_.Download(request, options_.interrupt));
    chunk_.Clear();
    part_ = 0;
  }
  Hasher hasher;
  std::optional<Behind<std::string>> behind;
  const auto update = [&hasher](const std::string& bytes) {
    hasher.Update(bytes);
    return true;
  };
  UniqueFd fd;
  std::int64_t size = 0;
  std::int64_t received = 0;
  while (!fd.valid() || received < size) {
    while (part_ >= chunk_.parts_size()) GPULAYER_RETURN_IF_ERROR(TakeChunk());
    v1::BlobPart& part = *chunk_.mutable_parts(part_++);
    if (!fd.valid()) {
      if (part.hash() != hash.bytes()) return DataLoss("download: blobs come in another order");
      size = part.size();
      if (files_ && !part.stored_in().empty()) {
        Result<UniqueFd> copy = CopyStored(part.stored_in(), hash, size);
        if (copy.ok()) return copy;
        // Another machine after all, or account, or container: then by bytes, from here on.
        files_ = false;
        stream_.reset();
        return Receive(hash);
      }
      GPULAYER_ASSIGN_OR_RETURN(fd, Spool(options_.spool_dir, size));
      if (size >= kHashApart) behind.emplace(update);
    }
    std::string& bytes = *part.mutable_data();
    GPULAYER_RETURN_IF_ERROR(WriteAll(fd.get(), bytes));
    received += static_cast<std::int64_t>(bytes.size());
    behind ? behind->Put(bytes) : update(bytes);
  }
  if (behind) behind->Flush();
  if (received != size || hasher.Finish() != hash) {
    return DataLoss("download: blob " + hash.hex() + " came damaged");
  }
  return fd;
}

Result<std::string> FetchBytes(Transport& transport, const Hash& hash,
                               const FetchOptions& options) {
  BlobFetcher fetcher(transport, {hash}, options);
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, fetcher.Open(hash));
  if (::lseek(fd.get(), 0, SEEK_SET) < 0) return ErrnoStatus("read a blob", errno);
  std::string out;
  char buffer[64 * 1024];
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, ReadSome(fd.get(), buffer, sizeof buffer));
    if (n == 0) return out;
    out.append(buffer, n);
  }
}

}  // namespace gpulayer::client
