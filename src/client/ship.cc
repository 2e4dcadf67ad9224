#include "client/ship.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

#include "base/behind.h"
#include "base/drop_folder.h"
#include "base/fs.h"
#include "base/random.h"
#include "base/text.h"
#include "model/limits.h"
#include "tree/scan.h"
#include "wire/tree.h"

namespace gpulayer::client {
namespace {

constexpr std::int64_t kCopyBytes = 8 << 20;  // in one call
constexpr int kTries = 4;                     // of a source whose files change under our hands

// A blob of a file, or the manifest, which lies in memory.
struct Source {
  std::int64_t size = 0;
  std::string path;
  const std::string* memory = nullptr;
};
using Sources = std::unordered_map<std::string, Source>;  // by the hash's bytes

// The shortcut on the server's own machine: copies of big files, laid into the server's drop folder
// instead of being sent. A copy, since the file itself may be written to at any time. The server
// takes them out; what is left there at the end is removed.
class Dropper {
 public:
  Dropper(const v1::DropFolder& place, InterruptPtr interrupt)
      : interrupt_(std::move(interrupt)), dir_(OpenDropFolder(place.dir(), place.proof())) {}
  ~Dropper() {
    for (const std::string& name : names_) ::unlinkat(dir_->get(), name.c_str(), 0);
  }
  Dropper(const Dropper&) = delete;
  Dropper& operator=(const Dropper&) = delete;

  bool used() const { return !names_.empty(); }

  // The copy's name. After any error the bytes are sent, here or with the files that follow.
  Result<std::string> Lay(const Source& source) {
    if (!dir_.ok()) return dir_.status();
    Result<std::string> name = Copy(source);
    if (!name.ok()) return name.status();
    names_.push_back(*name);
    return name;
  }

 private:
  Result<std::string> Copy(const Source& source) {
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd from, OpenFile(source.path, O_RDONLY | O_NOFOLLOW));
    // Without a name until it is whole: who is killed leaves nothing.
    const UniqueFd to(::openat(dir_->get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
    if (!to.valid()) return ErrnoStatus("hand over a file", errno);
    std::int64_t copied = 0;
    while (copied < source.size) {
      if (Thrown(interrupt_)) return Cancelled("hand over a file: interrupted");
      const auto want = static_cast<std::size_t>(std::min(source.size - copied, kCopyBytes));
      GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, CopySome(from.get(), to.get(), want));
      if (n == 0) return Status(StatusCode::kAborted, "it became shorter");
      copied += static_cast<std::int64_t>(n);
    }
    std::string name = RandomHex(16);
    GPULAYER_RETURN_IF_ERROR(LinkInto(to.get(), dir_->get(), name));
    return name;
  }

  const InterruptPtr interrupt_;
  const Result<UniqueFd> dir_;
  std::vector<std::string> names_;
};

// Gathers parts until a chunk is worth a message, and reads on while that one is sent.
class Chunker {
 public:
  // `dropper` may be null.
  Chunker(UploadStream& stream, Dropper* dropper)
      : dropper_(dropper),
        sender_([&stream](v1::UploadChunk& chunk) { return stream.Write(chunk); }) {}

  // Status of the sender's own side; a broken stream shows in Finish().
  Status Send(const std::string& hash, const Source& source) {
    if (source.memory != nullptr) {
      SendBytes(hash, source.size, *source.memory);
      return OkStatus();
    }
    if (dropper_ != nullptr && source.size >= limits::kHandOverBytes) {
      const Result<std::string> name = dropper_->Lay(source);
      if (name.ok()) {
        NewPart(hash, source.size).clear();
        chunk_.mutable_parts(chunk_.parts_size() - 1)->set_dropped(*name);
        Pass();  // the server reads it while we go on
        return OkStatus();
      }
    }
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(source.path, O_RDONLY | O_NOFOLLOW));
    std::int64_t left = source.size;
    bool first = true;
    do {
      std::string& data = NewPart(hash, first ? source.size : -1);
      data.resize(static_cast<std::size_t>(
          std::min<std::int64_t>(left, static_cast<std::int64_t>(limits::kBlobChunkBytes))));
      std::size_t filled = 0;
      while (filled < data.size()) {
        GPULAYER_ASSIGN_OR_RETURN(const std::size_t n,
                                  ReadSome(fd.get(), data.data() + filled, data.size() - filled));
        if (n == 0) return Aborted(source.path);  // it shrank since it was hashed
        filled += n;
      }
      left -= static_cast<std::int64_t>(filled);
      Added(filled);
      first = false;
    } while (left > 0 && !broken_);
    return OkStatus();
  }

  bool broken() const { return broken_; }
  // Waits until the transport has all of it, or is broken.
  void Finish() {
    Pass();
    sender_.Flush();
  }

 private:
  static Status Aborted(const std::string& path) {
    return {StatusCode::kAborted, "ship " + Printable(path) + ": it changed while it was read"};
  }

  void SendBytes(const std::string& hash, std::int64_t size, const std::string& bytes) {
    std::size_t at = 0;
    do {
      std::string& data = NewPart(hash, at == 0 ? size : -1);
      data.assign(bytes, at, limits::kBlobChunkBytes);
      at += limits::kBlobChunkBytes;
      Added(data.size());
    } while (at < bytes.size() && !broken_);
  }

  // Where the part's bytes go. A chunk that was sent lends the new one its memory.
  std::string& NewPart(const std::string& hash, std::int64_t size_if_first) {
    v1::BlobPart* part = chunk_.add_parts();
    if (size_if_first >= 0) {
      part->set_hash(hash);
      part->set_size(size_if_first);
    }
    return *part->mutable_data();
  }
  void Added(std::size_t bytes) {
    size_ += bytes + 64;
    if (size_ >= limits::kBlobChunkBytes) Pass();
  }
  void Pass() {
    if (chunk_.parts_size() > 0 && !broken_) broken_ = !sender_.Put(chunk_);
    chunk_.Clear();
    size_ = 0;
  }

  Dropper* const dropper_;
  Behind<v1::UploadChunk> sender_;
  v1::UploadChunk chunk_;
  std::size_t size_ = 0;
  bool broken_ = false;
};

CallOptions Call(const ShipOptions& options) {
  return {std::chrono::steady_clock::now() +
              std::chrono::duration_cast<std::chrono::steady_clock::duration>(options.call_timeout),
          options.interrupt};
}

Result<std::vector<std::string>> AskMissing(Transport& transport,
                                            const std::vector<std::string>& hashes,
                                            const ShipOptions& options, v1::DropFolder* drop) {
  std::vector<std::string> missing;
  for (std::size_t at = 0; at < hashes.size(); at += limits::kMaxHashesPerCall) {
    v1::MissingRequest request;
    const std::size_t end = std::min(hashes.size(), at + limits::kMaxHashesPerCall);
    for (std::size_t i = at; i < end; ++i) request.add_hashes(hashes[i]);
    v1::MissingReply reply;
    GPULAYER_RETURN_IF_ERROR(transport.Call(Method::kMissing, request, &reply, Call(options)));
    missing.insert(missing.end(), reply.hashes().begin(), reply.hashes().end());
    *drop = reply.drop();
  }
  return missing;
}

Status Send(Transport& transport, const std::vector<std::string>& hashes, const Sources& sources,
            Dropper* dropper, const ShipOptions& options) {
  const std::unique_ptr<UploadStream> stream = transport.Upload(options.interrupt);
  Chunker chunker(*stream, dropper);
  for (const std::string& hash : hashes) {
    const auto found = sources.find(hash);
    if (found == sources.end())
      return Internal("the server asks for a blob that it was not told of");
    GPULAYER_RETURN_IF_ERROR(chunker.Send(hash, found->second));
    if (chunker.broken()) break;
  }
  chunker.Finish();
  return stream->Finish().status();
}

// Asks what is missing and sends it. A connection lost on the way costs the blobs that were not
// stored yet: the next round asks anew.
Status SendMissing(Transport& transport, const Sources& sources, const ShipOptions& options,
                   std::int64_t* sent) {
  std::vector<std::string> hashes;
  hashes.reserve(sources.size());
  for (const auto& [hash, source] : sources) hashes.push_back(hash);
  // Files in the order of their folders, as they lie on the disk; the manifest last, since a server
  // that has it may take the tree for whole.
  std::sort(hashes.begin(), hashes.end(), [&](const std::string& a, const std::string& b) {
    const Source& left = sources.at(a);
    const Source& right = sources.at(b);
    return std::pair(left.memory != nullptr, left.path) <
           std::pair(right.memory != nullptr, right.path);
  });
  Status status;
  bool may_drop = true;
  for (int round = 0; round < kTries; ++round) {
    v1::DropFolder drop;
    GPULAYER_ASSIGN_OR_RETURN(std::vector<std::string> missing,
                              AskMissing(transport, hashes, options, &drop));
    if (missing.empty()) return OkStatus();
    *sent += static_cast<std::int64_t>(missing.size());
    Dropper dropper(drop, options.interrupt);
    status = Send(transport, missing, sources, may_drop ? &dropper : nullptr, options);
    const bool refused = dropper.used() && !status.ok() && status.code() != StatusCode::kDataLoss &&
                         !Thrown(options.interrupt);
    if (refused) may_drop = false;  // the bytes may still be taken
    if (!refused && status.code() != StatusCode::kUnavailable) return status;
  }
  return status;
}

Result<Shipped> ShipOnce(Transport& transport, const std::string& dir, const ShipOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(const tree::Listing listing, ListSource(dir, options.source));
  tree::HashOptions hashing;
  hashing.cache_dir = options.cache_dir;
  GPULAYER_ASSIGN_OR_RETURN(const tree::HashedTree hashed, tree::HashFiles(listing, hashing));
  if (Thrown(options.interrupt)) return Cancelled("ship source: interrupted");

  Shipped out;
  const std::string manifest = wire::SerializeTree(hashed.tree);
  out.tree = Hash::Of(manifest);
  for (const tree::Warning& warning : listing.warnings) {
    out.warnings.push_back(tree::ToString(warning));
  }
  for (const tree::Warning& warning : hashed.warnings) {
    out.warnings.push_back(tree::ToString(warning));
  }
  if (listing.more_warnings > 0) {
    out.warnings.push_back("left out " + std::to_string(listing.more_warnings) + " more");
  }

  v1::MissingRequest request;
  request.set_tree(std::string(out.tree.bytes()));
  v1::MissingReply reply;
  GPULAYER_RETURN_IF_ERROR(transport.Call(Method::kMissing, request, &reply, Call(options)));
  if (reply.tree_complete()) return out;

  Sources sources;
  for (const tree::BlobFile& blob : hashed.blobs) {
    sources[std::string(blob.hash.bytes())] = {blob.size, blob.path, nullptr};
  }
  sources[std::string(out.tree.bytes())] = {static_cast<std::int64_t>(manifest.size()), "",
                                            &manifest};
  GPULAYER_RETURN_IF_ERROR(SendMissing(transport, sources, options, &out.blobs_sent));
  return out;
}

}  // namespace

Result<Shipped> ShipSource(Transport& transport, const std::string& dir,
                           const ShipOptions& options) {
  Result<Shipped> shipped = Status(StatusCode::kAborted, "");
  for (int i = 0; i < kTries; ++i) {
    shipped = ShipOnce(transport, dir, options);
    const StatusCode code = shipped.status().code();
    // DATA_LOSS: content that differs from its name has changed since it was hashed.
    if (code != StatusCode::kDataLoss && code != StatusCode::kAborted) return shipped;
  }
  return Status(StatusCode::kAborted,
                "ship source " + Printable(dir) + ": its files change while they are read (" +
                    shipped.status().message() + "). Submit when they are at rest.");
}

Result<Shipped> ShipFile(Transport& transport, const std::string& path,
                         const ShipOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY | O_NONBLOCK));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus("stat " + path, errno);
  if (!S_ISREG(info.st_mode)) {
    return FailedPrecondition("standard input " + Printable(path) +
                              ": not a regular file. Write it into one first.");
  }
  Hasher hasher;
  std::string buffer(limits::kBlobChunkBytes, '\0');
  std::int64_t size = 0;
  for (;;) {
    const Result<std::size_t> n = ReadSome(fd.get(), buffer.data(), buffer.size());
    if (!n.ok()) return n.status().Prefixed("standard input " + Printable(path));
    if (*n == 0) break;
    hasher.Update({buffer.data(), *n});
    size += static_cast<std::int64_t>(*n);
  }
  Shipped out;
  out.tree = hasher.Finish();
  Sources sources;
  sources[std::string(out.tree.bytes())] = {size, path, nullptr};
  const Status sent = SendMissing(transport, sources, options, &out.blobs_sent);
  if (!sent.ok()) return sent.Prefixed("standard input " + Printable(path));
  return out;
}

Result<Shipped> ShipBytes(Transport& transport, const std::string& bytes,
                          const ShipOptions& options) {
  Shipped out;
  out.tree = Hash::Of(bytes);
  Sources sources;
  sources[std::string(out.tree.bytes())] = {static_cast<std::int64_t>(bytes.size()), "", &bytes};
  GPULAYER_RETURN_IF_ERROR(SendMissing(transport, sources, options, &out.blobs_sent));
  return out;
}

}  // namespace gpulayer::client
