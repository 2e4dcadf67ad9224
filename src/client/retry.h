// Going on after a lost connection: when a call may be made again, and when patience is over.
#ifndef GPULAYER_CLIENT_RETRY_H_
#define GPULAYER_CLIENT_RETRY_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "client/transport.h"

namespace gpulayer::client {

// Waits for that long; an error (CANCELLED) ends the retrying.
using Sleeper = std::function<Status(Duration)>;
// A sleeper that an interrupt wakes.
Sleeper InterruptibleSleeper(InterruptPtr interrupt);

// What went wrong, without its advice: we follow it ourselves. "server x: lost. Trying again."
std::string RetryNotice(const Status& status);

// Decides over one row of failures. Only UNAVAILABLE is worth a repeat: everything else would fail
// again. Threads: one.
class RetryPolicy {
 public:
  RetryPolicy(Clock& clock, Duration patience) : clock_(clock), patience_(patience) {}

  // Whether to try again after `status`. The patience counts from the first failure of the row.
  bool Allows(const Status& status);
  Duration NextDelay();  // 100 ms, doubled up to 2 s, less up to a quarter at random
  void Reset();          // something worked: the row of failures is over

 private:
  Clock& clock_;
  const Duration patience_;
  bool failing_ = false;
  TimePoint since_;
  int failures_ = 0;
};

// A server's stream that is opened again where it broke.
// Threads:   Read() from one thread at a time.
// Blocking:  Read() until a message comes, the stream ends, the sleeper refuses, or the policy has
//            lost patience (the last failure is returned then).
template <typename Request, typename Message>
class Resumable {
 public:
  using Open = std::function<std::unique_ptr<ReadStream<Message>>(const Request&)>;
  // Makes the request one that begins after `message`.
  using Advance = std::function<void(const Message& message, Request* request)>;
  using Notice = std::function<void(const std::string&)>;

  Resumable(Request request, Open open, Advance advance, RetryPolicy retry, Sleeper sleeper,
            Notice notice)
      : request_(std::move(request)),
        open_(std::move(open)),
        advance_(std::move(advance)),
        retry_(std::move(retry)),
        sleeper_(std::move(sleeper)),
        notice_(std::move(notice)),
        stream_(open_(request_)) {}

  Result<std::optional<Message>> Read() {
    for (;;) {
      Result<std::optional<Message>> read = stream_->Read();
      if (read.ok()) {
        if (read->has_value()) advance_(**read, &request_);
        if (lost_ && notice_) notice_("connected again");
        lost_ = false;
        retry_.Reset();
        return read;
      }
      if (!retry_.Allows(read.status())) return read.status();
      if (!lost_ && notice_) notice_(RetryNotice(read.status()));
      lost_ = true;
      GPULAYER_RETURN_IF_ERROR(sleeper_(retry_.NextDelay()));
      stream_ = open_(request_);  // a failed open is a stream whose first Read() gives the error
    }
  }

 private:
  Request request_;
  const Open open_;
  const Advance advance_;
  RetryPolicy retry_;
  const Sleeper sleeper_;
  const Notice notice_;
  bool lost_ = false;
  std::unique_ptr<ReadStream<Message>> stream_;
};

// Makes calls again whose answer was lost, until their deadline. A server that never answered yet
// is not waited for: the address may be wrong, and its user wants to know at once.
class RetryTransport : public Transport {
 public:
  using MakeSleeper = std::function<Sleeper(InterruptPtr)>;
  RetryTransport(std::unique_ptr<Transport> inner, Clock& clock, MakeSleeper make_sleeper)
      : inner_(std::move(inner)), clock_(clock), make_sleeper_(std::move(make_sleeper)) {}

  Status Call(Method method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite* reply, const CallOptions& options) override;
  std::unique_ptr<ReadStream<v1::LogChunk>> ReadLogs(const v1::ReadLogsRequest& request,
                                                     InterruptPtr interrupt) override {
    return inner_->ReadLogs(request, std::move(interrupt));
  }
  std::unique_ptr<ReadStream<v1::GetJobReply>> Watch(const v1::WatchRequest& request,
                                                     InterruptPtr interrupt) override {
    return inner_->Watch(request, std::move(interrupt));
  }
  std::unique_ptr<ReadStream<v1::DownloadChunk>> Download(const v1::DownloadRequest& request,
                                                          InterruptPtr interrupt) override {
    return inner_->Download(request, std::move(interrupt));
  }
  std::unique_ptr<UploadStream> Upload(InterruptPtr interrupt) override {
    return inner_->Upload(std::move(interrupt));
  }
  std::unique_ptr<ExecStream> Exec(InterruptPtr interrupt) override {
    return inner_->Exec(std::move(interrupt));
  }

 private:
  const std::unique_ptr<Transport> inner_;
  Clock& clock_;
  const MakeSleeper make_sleeper_;
  std::atomic<bool> answered_{false};
};

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_RETRY_H_
