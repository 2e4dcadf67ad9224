#include "tree/hash_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/behind.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/thread.h"
#include "tree/beneath.h"
#include "tree/hash_cache.h"
#include "tree/hash_one.h"

namespace gpulayer::tree {
namespace {

constexpr int kMaxThreads = 8;
constexpr int kTries = 3;  // readings of a file that changes meanwhile
constexpr std::size_t kReadBytes = 256 * 1024;
// A file from this size on is read while the piece before is hashed: a quarter less time.
constexpr std::int64_t kReadApart = 8 << 20;
// Less than this is not worth a second thread.
constexpr std::int64_t kBytesPerThread = 4 << 20;
constexpr std::size_t kFilesPerThread = 256;

std::int64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool Settled(const FileStamp& stamp, std::int64_t since_ns) {
  return std::max(stamp.mtime_ns, stamp.ctime_ns) < since_ns - kRacyNs;
}

// Indexes of the files whose hash the cache does not know; the hashes of the others are filled in.
std::vector<std::size_t> TakeFromCache(const Listing& listing, const HashCache& cache,
                                       std::vector<HashedFile>* files,
                                       std::vector<bool>* from_cache) {
  std::vector<std::size_t> missing;
  auto known = cache.begin();
  for (std::size_t i = 0; i < listing.entries.size(); ++i) {
    const ListedEntry& entry = listing.entries[i];
    if (entry.type != EntryType::kFile) continue;
    while (known != cache.end() && known->path < entry.path) ++known;
    if (known != cache.end() && known->path == entry.path && known->stamp == entry.stamp) {
      (*files)[i] = {known->hash, entry.stamp};
      (*from_cache)[i] = true;
    } else {
      missing.push_back(i);
    }
  }
  return missing;
}

}  // namespace

namespace {

// Content of the file up to the first byte beyond `limit`, which is where a file that grows as fast
// as it is read is left.
struct Content {
  Hash hash;
  std::int64_t size = 0;
};

Result<Content> HashContent(int fd, std::int64_t limit) {
  struct Piece {
    std::string bytes;
    std::size_t used = 0;
  };
  Hasher hasher;
  std::optional<Behind<Piece>> behind;
  const auto update = [&hasher](const Piece& piece) {
    hasher.Update({piece.bytes.data(), piece.used});
    return true;
  };
  if (limit >= kReadApart) behind.emplace(update);
  Content out;
  Piece piece;
  while (out.size <= limit) {
    piece.bytes.resize(
        static_cast<std::size_t>(std::clamp<std::int64_t>(limit + 1, 4096, kReadBytes)));
    GPULAYER_ASSIGN_OR_RETURN(piece.used, ReadSome(fd, piece.bytes.data(), piece.bytes.size()));
    if (piece.used == 0) break;
    out.size += static_cast<std::int64_t>(piece.used);
    behind ? behind->Put(piece) : update(piece);
  }
  if (behind) behind->Flush();
  out.hash = hasher.Finish();
  return out;
}

}  // namespace

Result<HashedFile> HashOne(int root, const std::string& path) {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegular(root, path));
    struct stat before = {};
    if (fstat(fd.get(), &before) != 0) return ErrnoStatus("stat " + path, errno);
    GPULAYER_ASSIGN_OR_RETURN(const Content content, HashContent(fd.get(), before.st_size));
    struct stat after = {};
    if (fstat(fd.get(), &after) != 0) return ErrnoStatus("stat " + path, errno);
    const FileStamp stamp = StampOf(after);
    if (content.size == stamp.size && stamp == StampOf(before)) {
      return HashedFile{content.hash, stamp};
    }
  }
  return Status(StatusCode::kAborted, "it changes while it is read");
}

bool HasContent(const std::string& path, const Hash& hash) {
  const Result<UniqueFd> dir = OpenFile(DirName(path), O_RDONLY | O_DIRECTORY);
  if (!dir.ok()) return false;
  const Result<HashedFile> now = HashOne(dir->get(), BaseName(path));
  return now.ok() && now->hash == hash;
}

std::vector<Result<HashedFile>> HashMany(
    int root, const std::vector<std::string>& paths, std::int64_t bytes, int threads,
    const std::function<Result<HashedFile>(int root, const std::string& path)>& hash_one) {
  std::vector<Result<HashedFile>> out(paths.size(), Result<HashedFile>(HashedFile{}));
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) out[i] = hash_one(root, paths[i]);
  };
  const auto worth = static_cast<int>(std::min<std::int64_t>(
      kMaxThreads, 1 + std::max(bytes / kBytesPerThread,
                                static_cast<std::int64_t>(paths.size() / kFilesPerThread))));
  if (threads <= 0) threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  threads = std::min(threads, worth);
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) {
    helpers.push_back(TryThread(work));
    if (!helpers.back().joinable()) {  // no more to be had: those that are there do it
      helpers.pop_back();
      break;
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  return out;
}

Result<HashedTree> HashFiles(const Listing& listing, const HashOptions& options) {
  const std::int64_t begun = NowNs();
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd root, OpenFile(listing.root, O_RDONLY | O_DIRECTORY));
  const std::string cache_file =
      options.cache_dir.empty() ? "" : HashCacheFile(options.cache_dir, listing.root);
  const HashCache cache = cache_file.empty() ? HashCache() : LoadHashCache(cache_file);
  std::vector<HashedFile> files(listing.entries.size());
  std::vector<bool> from_cache(listing.entries.size());
  const std::vector<std::size_t> missing = TakeFromCache(listing, cache, &files, &from_cache);

  HashedTree out;
  std::vector<std::string> paths;
  std::int64_t bytes = 0;
  for (const std::size_t i : missing) {
    paths.push_back(listing.entries[i].path);
    bytes += listing.entries[i].stamp.size;
  }
  const std::vector<Result<HashedFile>> results =
      HashMany(root.get(), paths, bytes, options.threads);
  for (std::size_t m = 0; m < missing.size(); ++m) {
    const Result<HashedFile>& result = results[m];
    if (result.ok()) {
      files[missing[m]] = *result;
      ++out.hashed_files;
      out.hashed_bytes += result->stamp.size;
    } else if (result.status().code() == StatusCode::kAborted) {
      return Status(StatusCode::kAborted,
                    "read " + Printable(JoinPath(listing.root, paths[m])) +
                        ": it changes while it is read. Wait until the program that writes it is "
                        "done, or name it in .gpulayerignore");
    } else {
      out.warnings.push_back({paths[m], result.status().message()});
    }
  }

  HashCache fresh;
  std::unordered_set<Hash> seen;
  out.tree.ignore = listing.ignore;
  out.tree.entries.reserve(listing.entries.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const ListedEntry& entry = listing.entries[i];
    TreeEntry to;
    to.path = entry.path;
    to.type = entry.type;
    to.mode = entry.type == EntryType::kLink ? 0 : entry.mode;
    to.link_target = entry.link_target;
    if (entry.type == EntryType::kFile) {
      if (files[i].hash.empty()) continue;  // a warning says why
      to.hash = files[i].hash;
      to.size = files[i].stamp.size;
      if (seen.insert(to.hash).second) {
        out.blobs.push_back({to.hash, to.size, JoinPath(listing.root, entry.path)});
      }
      if (from_cache[i] || Settled(files[i].stamp, begun))
        fresh.push_back({entry.path, files[i].stamp, to.hash});
    }
    out.tree.entries.push_back(std::move(to));
  }
  if (!cache_file.empty() && fresh != cache) {
    IgnoreError(StoreHashCache(cache_file, fresh),
                "without it the next call reads all files again");
  }
  return out;
}

}  // namespace gpulayer::tree
