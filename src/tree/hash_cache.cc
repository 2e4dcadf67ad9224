#include "tree/hash_cache.h"

#include <cstring>
#include <utility>

#include "base/fs.h"
#include "base/own_file.h"

namespace gpulayer::tree {
namespace {

// On disk, in this machine's byte order (the file never leaves it): magic, then per entry the stamp
// (5 x 8 bytes), the hash, the length of the path (4) and the path; last the SHA-256 of all before.
constexpr std::string_view kMagic = "gpulayer-hashes-1\n";
constexpr std::size_t kFixed = 5 * 8 + Hash::kSize + 4;

template <typename T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Take(std::string_view* in) {
  T value;
  std::memcpy(&value, in->data(), sizeof(value));
  in->remove_prefix(sizeof(value));
  return value;
}

}  // namespace

std::string HashCacheFile(const std::string& cache_dir, const std::string& root) {
  return JoinPath(cache_dir, Hash::Of(root).hex().substr(0, 32) + ".hashes");
}

HashCache LoadHashCache(const std::string& file) {
  const Result<std::string> read = ReadOwnFile(file, kNoLimit);
  if (!read.ok() || read->size() < kMagic.size() + Hash::kSize || !read->starts_with(kMagic)) {
    return {};
  }
  std::string_view body(*read);
  const std::string_view sum = body.substr(body.size() - Hash::kSize);
  body.remove_suffix(Hash::kSize);
  if (Hash::Of(body).bytes() != sum) return {};
  body.remove_prefix(kMagic.size());
  HashCache cache;
  while (body.size() >= kFixed) {
    CachedHash entry;
    entry.stamp.size = Take<std::int64_t>(&body);
    entry.stamp.mtime_ns = Take<std::int64_t>(&body);
    entry.stamp.ctime_ns = Take<std::int64_t>(&body);
    entry.stamp.inode = Take<std::uint64_t>(&body);
    entry.stamp.device = Take<std::uint64_t>(&body);
    Result<Hash> hash = Hash::FromBytes(body.substr(0, Hash::kSize));
    body.remove_prefix(Hash::kSize);
    const auto length = Take<std::uint32_t>(&body);
    if (!hash.ok() || length > body.size()) return {};
    entry.hash = *hash;
    entry.path = std::string(body.substr(0, length));
    body.remove_prefix(length);
    cache.push_back(std::move(entry));
  }
  return cache;
}

Status StoreHashCache(const std::string& file, const HashCache& cache) {
  std::string out(kMagic);
  out.reserve(cache.size() * (kFixed + 40));
  for (const CachedHash& entry : cache) {
    Put(&out, entry.stamp.size);
    Put(&out, entry.stamp.mtime_ns);
    Put(&out, entry.stamp.ctime_ns);
    Put(&out, entry.stamp.inode);
    Put(&out, entry.stamp.device);
    out += entry.hash.bytes();
    Put(&out, static_cast<std::uint32_t>(entry.path.size()));
    out += entry.path;
  }
  out += Hash::Of(out).bytes();
  GPULAYER_RETURN_IF_ERROR(MakeDirs(DirName(file)));
  return WriteFileAtomic(file, out, 0600, Durability::kNone);
}

}  // namespace gpulayer::tree
