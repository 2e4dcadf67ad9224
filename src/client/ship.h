// Brings files to the server: only those that it lacks, in one stream.
#ifndef GPULAYER_CLIENT_SHIP_H_
#define GPULAYER_CLIENT_SHIP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "client/list_source.h"
#include "client/transport.h"
#include "tree/hash_files.h"

namespace gpulayer::client {

struct ShipOptions {
  SourceRules source;
  std::string cache_dir;  // of hashes; empty: none
  Duration call_timeout{};
  InterruptPtr interrupt;
};

struct Shipped {
  Hash tree;  // or the file's content
  std::vector<std::string> warnings;
  std::int64_t blobs_sent = 0;
};

// Lists, hashes and sends `dir`. What changes meanwhile is read again, a few times.
// Blocking: reads what is not in the cache; as long as bytes move.
// Errors:   RESOURCE_EXHAUSTED: over the limit, before anything is read or sent. NOT_FOUND,
//           FAILED_PRECONDITION: no such folder. ABORTED: files change too fast.
Result<Shipped> ShipSource(Transport& transport, const std::string& dir,
                           const ShipOptions& options);

// One file, as the standard input of a job.
Result<Shipped> ShipFile(Transport& transport, const std::string& path, const ShipOptions& options);

// Bytes that are no file, as the items of a job.
Result<Shipped> ShipBytes(Transport& transport, const std::string& bytes,
                          const ShipOptions& options);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_SHIP_H_
