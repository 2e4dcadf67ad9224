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
#include "worker/cache/blob_cache.h"
#include "worker/session/cancel.h"
#include "worker/session/link.h"

namespace gpulayer::worker {

Status DownloadBlobs(const ServerLink& link, const std::vector<Hash>& hashes, BlobCache::Sink& sink,
                     Cancel& cancel);

// Stores a tree: what the server lacks of `blobs`, then the manifest, whose hash is `tree`.
Status UploadTree(const ServerLink& link, const Hash& tree, const std::string& manifest,
                  const std::vector<tree::BlobFile>& blobs, Cancel& cancel);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_ARTIFACTS_H_
