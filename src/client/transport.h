// The seam between the client and the wire: one server, its calls and streams, nothing decided.
// Decorators (retry, notices) and the tests' fakes implement it too.
#ifndef GPULAYER_CLIENT_TRANSPORT_H_
#define GPULAYER_CLIENT_TRANSPORT_H_

#include <google/protobuf/message_lite.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "client/interrupt_state.h"
#include "gpulayer/v1/artifacts.pb.h"
#include "gpulayer/v1/exec.pb.h"
#include "gpulayer/v1/jobs.pb.h"
#include "gpulayer/v1/logs.pb.h"

namespace gpulayer::client {

enum class Method {
  kSubmit,
  kCancel,
  kListJobs,
  kGetJob,
  kExplain,
  kMissing,
  kListWorkers,
  kExchange,
  kStatus,
  kCreateToken,
  kListTokens,
  kRevokeToken,
};
const char* ToString(Method method);  // for messages: "submit"
// May the call be made again when its answer was lost?
bool IsIdempotent(Method method);

using SteadyTime = std::chrono::steady_clock::time_point;

struct CallOptions {
  SteadyTime deadline;
  InterruptPtr interrupt;  // may be null
};

template <typename T>
class ReadStream {
 public:
  virtual ~ReadStream() = default;  // ends it, read to the end or not
  // Waits for the next message; nullopt: the stream ended well. After an error: the same error.
  virtual Result<std::optional<T>> Read() = 0;
  // From any thread: a Read that waits ends with an error, and no later one waits.
  virtual void Break() = 0;
};

class UploadStream {
 public:
  virtual ~UploadStream() = default;
  // Waits until the transport takes it. False: the stream is broken, Finish() says why.
  virtual bool Write(const v1::UploadChunk& chunk) = 0;
  // Waits until all of it is durable on the server.
  virtual Result<v1::UploadReply> Finish() = 0;
};

// Read, Write and Break each from a thread of its own.
class ExecStream {
 public:
  virtual ~ExecStream() = default;  // ends it, read to the end or not
  // Waits until the transport takes it. False: nothing is taken any more, Read() says why.
  virtual bool Write(const v1::ExecInput& message) = 0;
  // As ReadStream's.
  virtual Result<std::optional<v1::ExecOutput>> Read() = 0;
  virtual void Break() = 0;  // Read and Write end
};

// Threads:   every method from any thread; a stream is used by one at a time unless it says more.
// Blocking:  Call until its deadline or interrupt; streams until something comes, the interrupt
// they
//            were opened with, or the link is found dead (keepalive).
// Errors:    the server's own; UNAVAILABLE with a diagnosis when it cannot be reached; CANCELLED
//            after the interrupt. Never a raw text of gRPC.
class Transport {
 public:
  virtual ~Transport() = default;
  // REQUIRES: request and reply are of the method's types.
  virtual Status Call(Method method, const google::protobuf::MessageLite& request,
                      google::protobuf::MessageLite* reply, const CallOptions& options) = 0;
  virtual std::unique_ptr<ReadStream<v1::LogChunk>> ReadLogs(const v1::ReadLogsRequest& request,
                                                             InterruptPtr interrupt) = 0;
  virtual std::unique_ptr<ReadStream<v1::GetJobReply>> Watch(const v1::WatchRequest& request,
                                                             InterruptPtr interrupt) = 0;
  virtual std::unique_ptr<ReadStream<v1::DownloadChunk>> Download(
      const v1::DownloadRequest& request, InterruptPtr interrupt) = 0;
  virtual std::unique_ptr<UploadStream> Upload(InterruptPtr interrupt) = 0;
  virtual std::unique_ptr<ExecStream> Exec(InterruptPtr interrupt) = 0;
};

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_TRANSPORT_H_
