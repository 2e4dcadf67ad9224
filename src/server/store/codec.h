// The bytes in which the database keeps what has no columns of its own: job specs and the like.
//
// Format (stored, do not change): one byte version, eight bytes check sum of the rest (FNV-1a,
// little endian), then fields: tag, length, payload; tag and length are varints. Numbers are zigzag
// varints, structures are fields again, a list is its tag repeated. A tag that is not known is
// skipped, a field that is absent keeps its default, so a new field needs a new tag and nothing
// else. Tags are never used twice.
//
// Threads: pure functions.
// Errors:  DATA_LOSS for bytes that no version of this code wrote; FAILED_PRECONDITION for a newer
//          version byte.
#ifndef GPULAYER_SERVER_STORE_CODEC_H_
#define GPULAYER_SERVER_STORE_CODEC_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/job.h"
#include "model/resources.h"

namespace gpulayer::codec {

std::string Encode(const JobSpec& spec);
std::string Encode(const Allocation& allocation);
std::string Encode(const OutputResult& outputs);
std::string Encode(const WorkerProfile& profile);

template <typename T>  // one of the types above
Result<T> Decode(std::string_view bytes);

}  // namespace gpulayer::codec

#endif  // GPULAYER_SERVER_STORE_CODEC_H_
