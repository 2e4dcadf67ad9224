// Blobs between this worker and its server.
//
// Threads:   any number at once, each with its own Cancel.
// Blocking:  until all is carried, the link breaks (keepalive) or `cancel` is requested. Memory: a
//            few messages each way, whatever the size.
// Errors:    UNAVAILABLE and DEADLINE_EXCEEDED: the link, repeat later; CANCELLED; else the
// server's:
//            NOT_FOUND (a blob it lacks), DATA_LOSS (a file that changed while it was sent),
//            RESOURCE_EXHAUSTED (its disk is full).
#ifndef GPULAYER_WORKER_SESSION_ARTIFACTS_H_
#define GPULAYER_WORKER_SESSION_ARTIFACTS_H_

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "tree/hash_files.h"
#include "tree/hash_one.h"
#include "worker/cache/blob_cache.h"
#include "worker/session/cancel.h"
#include "worker/session/link.h"

namespace gpulayer::worker {

Status DownloadBlobs(const ServerLink& link, const std::vector<Hash>& hashes, BlobCache::Sink& sink,
                     Cancel& cancel);

// Stores a file by a link to it and not by its bytes, for a server that runs on this machine and
// under this account: the server owns it then, under the hash that it found. `path` is below the
// open folder `root`; nobody may write to the file again, whatever this returns.
// FAILED_PRECONDITION: not this file, or not this server; and any other error: send its bytes.
// Nothing is left behind.
Result<tree::HashedFile> HandOver(const ServerLink& link, int root, const std::string& path,
                                  Cancel& cancel);

// Stores a tree: what the server lacks of `blobs`, then the manifest, whose hash is `tree`.
Status UploadTree(const ServerLink& link, const Hash& tree, const std::string& manifest,
                  const std::vector<tree::BlobFile>& blobs, Cancel& cancel);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_ARTIFACTS_H_
