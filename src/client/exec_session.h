// The inside of api::ExecSession.
#ifndef GPULAYER_CLIENT_EXEC_SESSION_H_
#define GPULAYER_CLIENT_EXEC_SESSION_H_

#include <chrono>
#include <memory>

#include "base/mutex.h"
#include "client/transport.h"
#include "gpulayer/exec.h"

namespace gpulayer {

class api::ExecSession::Impl {
 public:
  // `alive`: what the stream needs. As Client::Exec; waits until the worker has answered.
  static Result<std::unique_ptr<Impl>> Open(std::shared_ptr<void> alive,
                                            std::unique_ptr<client::ExecStream> stream,
                                            std::int64_t job, const ExecOptions& options,
                                            std::chrono::milliseconds timeout);

  Status Write(std::string_view bytes);
  Status EndInput();
  Status Resize(const TerminalSize& size);
  Result<std::optional<ExecPiece>> Read();
  const ExecOutcome& outcome() const { return outcome_; }
  void HangUp() { stream_->Break(); }

 private:
  Impl(std::shared_ptr<void> alive, std::unique_ptr<client::ExecStream> stream)
      : alive_(std::move(alive)), stream_(std::move(stream)) {}
  Status Begin(std::int64_t job, const ExecOptions& options);
  // In its turn, without a lock held.
  Status Send(const v1::ExecInput& message);

  const std::shared_ptr<void> alive_;
  const std::unique_ptr<client::ExecStream> stream_;
  ExecOutcome outcome_;
  bool over_ = false;
  Mutex mutex_;
  CondVar turn_;
  bool writing_ GPULAYER_GUARDED_BY(mutex_) = false;
};

}  // namespace gpulayer

#endif  // GPULAYER_CLIENT_EXEC_SESSION_H_
