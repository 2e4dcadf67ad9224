// Brings blobs from the server, in the order in which they are wanted, over one stream.
#ifndef GPULAYER_CLIENT_FETCH_H_
#define GPULAYER_CLIENT_FETCH_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/hash.h"
#include "base/status.h"
#include "client/read_ahead.h"
#include "client/retry.h"
#include "client/transport.h"

namespace gpulayer::client {

struct FetchOptions {
  std::string spool_dir;  // for unnamed files; on the file system where the blobs will lie
  Duration reconnect_for{};
  InterruptPtr interrupt;
};

// Threads:   one.
// Blocking:  Next() as long as bytes move.
// Errors:    DATA_LOSS: bytes that differ from their name, once on the way and again, or on the
//            server, which is made to look. Else the transport's.
class BlobFetcher {
 public:
  // `hashes`: in the order in which they will be asked for.
  BlobFetcher(Transport& transport, std::vector<Hash> hashes, FetchOptions options);

  // The blob in an unnamed file. One that was skipped over is kept until it is asked for; one that
  // stands in the list several times may be asked for as often.
  Result<UniqueFd> Open(const Hash& hash);

 private:
  Result<UniqueFd> Next();
  Result<UniqueFd> Receive(const Hash& hash);
  Result<UniqueFd> CopyStored(const std::string& store, const Hash& hash, std::int64_t size);
  Status TakeChunk();

  Transport& transport_;
  const std::vector<Hash> hashes_;
  const FetchOptions options_;
  std::map<Hash, int> wanted_;  // how often still
  std::map<Hash, UniqueFd> kept_;
  Hash suspect_;          // came damaged; the server was asked to look at its own
  bool files_ = true;     // ask for big blobs as files: as long as those could be read
  std::size_t next_ = 0;  // of hashes_: not received yet
  std::size_t stream_end_ = 0;
  std::unique_ptr<ReadAhead<v1::DownloadChunk>> stream_;
  v1::DownloadChunk chunk_;
  int part_ = 0;  // of chunk_: not used yet
};

// A blob that fits into memory: a manifest.
Result<std::string> FetchBytes(Transport& transport, const Hash& hash, const FetchOptions& options);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_FETCH_H_
