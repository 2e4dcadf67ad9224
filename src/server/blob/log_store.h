// Logs of attempts: bytes by offset (frames of model/log_frame.h, which this store does not look
// into).
//
// Threads:   every method from any thread. File I/O inside: not for gRPC threads or the engine
// thread. Durability: Append survives a kill of this process; Seal also syncs, so a final state
// never stands before
//            its log.
#ifndef GPULAYER_SERVER_BLOB_LOG_STORE_H_
#define GPULAYER_SERVER_BLOB_LOG_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/ids.h"

namespace gpulayer {

class LogStore {
 public:
  static Result<std::unique_ptr<LogStore>> Open(const std::string& dir, bool durable);
  virtual ~LogStore() = default;

  // Bytes [offset, offset + data.size()) of the attempt's log. What is stored already is skipped (a
  // repeat is harmless); a gap is OUT_OF_RANGE and names the size. Returns the new size.
  virtual Result<std::int64_t> Append(const AttemptRef& attempt, std::int64_t offset,
                                      std::string_view data) = 0;
  // No more will come. DATA_LOSS if `size` bytes are not there.
  virtual Status Seal(const AttemptRef& attempt, std::int64_t size) = 0;
  virtual std::int64_t Size(const AttemptRef& attempt) = 0;  // 0 if nothing came
  // At most `max` bytes from `offset`; empty at the end of what is stored.
  virtual Result<std::string> Read(const AttemptRef& attempt, std::int64_t offset,
                                   std::size_t max) = 0;
};

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_BLOB_LOG_STORE_H_
