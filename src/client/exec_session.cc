#include "client/exec_session.h"

#include <algorithm>
#include <utility>

#include "base/account_limits.h"
#include "base/text.h"
#include "model/limits.h"

namespace gpulayer {
namespace {

void ToProto(const api::TerminalSize& in, v1::TerminalSize* out) {
  out->set_rows(static_cast<std::uint32_t>(std::max(in.rows, 0)));
  out->set_columns(static_cast<std::uint32_t>(std::max(in.columns, 0)));
}

Result<v1::ExecInput> ToProto(std::int64_t job, const api::ExecOptions& options) {
  const std::string what = "run a command in job " + std::to_string(job);
  if (options.command.empty() || options.command.front().empty()) {
    return InvalidArgument(what + ": no command");
  }
  v1::ExecInput message;
  v1::ExecInput::Begin* begin = message.mutable_begin();
  begin->set_job(job);
  if (options.task) begin->set_task(*options.task);
  for (const std::string& word : options.command) {
    if (word.find('\0') != std::string::npos) {
      return InvalidArgument(what + ": an argument holds a zero byte");
    }
    begin->add_command(word);
  }
  if (options.terminal) {
    ToProto(*options.terminal, begin->mutable_terminal());
    begin->set_term(options.term);
  }
  if (begin->ByteSizeLong() > limits::kMaxArgsAndEnvBytes) {
    return InvalidArgument(what + ": the command is over the limit of " +
                           FormatSize(static_cast<std::int64_t>(limits::kMaxArgsAndEnvBytes)) +
                           ". Put what is large into its standard input");
  }
  return message;
}

api::ExecOutcome ToOutcome(const v1::ExecOutput::Ended& in) {
  api::ExecOutcome out;
  if (in.has_exit_code()) {
    out.exit_code = in.exit_code();
    out.shell_exit_code = in.exit_code();
  } else {
    out.signal = in.signal();
    out.shell_exit_code = 128 + in.signal();
  }
  out.error = in.error();
  return out;
}

}  // namespace

Status api::ExecSession::Impl::Begin(std::int64_t job, const ExecOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(const v1::ExecInput begin, ToProto(job, options));
  IgnoreError(Send(begin), "the read says why");
  GPULAYER_ASSIGN_OR_RETURN(const std::optional<v1::ExecOutput> first, stream_->Read());
  if (!first || first->kind_case() != v1::ExecOutput::KIND_NOT_SET) {
    return Internal("run a command in job " + std::to_string(job) +
                    ": the server's answer makes no sense");
  }
  return OkStatus();
}

Result<std::unique_ptr<api::ExecSession::Impl>> api::ExecSession::Impl::Open(
    std::shared_ptr<void> alive, std::unique_ptr<client::ExecStream> stream, std::int64_t job,
    const ExecOptions& options, std::chrono::milliseconds timeout) {
  std::unique_ptr<Impl> impl(new Impl(std::move(alive), std::move(stream)));
  const std::string what = "run a command in job " + std::to_string(job);
  Interrupt late;
  {
    const client::WakeScope hang_up(late.state(), [raw = impl.get()] { raw->HangUp(); });
    const client::Alarm alarm(late.state(), timeout);
    if (!alarm.set()) return ResourceExhausted(what + ": no thread is to be had. " + kRaiseLimits);
    const Status begun = impl->Begin(job, options);
    if (!begun.ok() && !alarm.rang()) return begun;
  }
  if (late.thrown()) return DeadlineExceeded(what + ": no answer in time. Try again");
  return impl;
}

Status api::ExecSession::Impl::Send(const v1::ExecInput& message) {
  {
    MutexLock lock(mutex_);
    while (writing_) turn_.Wait(mutex_);
    writing_ = true;
  }
  const bool taken = stream_->Write(message);
  {
    MutexLock lock(mutex_);
    writing_ = false;
  }
  turn_.NotifyOne();
  return taken ? OkStatus() : FailedPrecondition("exec: the command takes nothing any more");
}

Status api::ExecSession::Impl::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    v1::ExecInput message;
    const std::string_view piece = bytes.substr(0, limits::kExecPieceBytes);
    message.set_data(std::string(piece));
    GPULAYER_RETURN_IF_ERROR(Send(message));
    bytes.remove_prefix(piece.size());
  }
  return OkStatus();
}

Status api::ExecSession::Impl::EndInput() {
  v1::ExecInput message;
  message.set_end(true);
  return Send(message);
}

Status api::ExecSession::Impl::Resize(const TerminalSize& size) {
  v1::ExecInput message;
  ToProto(size, message.mutable_resize());
  return Send(message);
}

Result<std::optional<api::ExecPiece>> api::ExecSession::Impl::Read() {
  while (!over_) {
    GPULAYER_ASSIGN_OR_RETURN(std::optional<v1::ExecOutput> message, stream_->Read());
    if (!message) return Unavailable("exec: the server ended before the command");
    if (message->has_ended()) {
      outcome_ = ToOutcome(message->ended());
      over_ = true;
      IgnoreError(stream_->Read().status(),
                  "how it ended is known; this only ends the stream well");
    }
    ExecPiece piece;
    if (message->has_out()) piece.out = std::move(*message->mutable_out());
    if (message->has_err()) piece.err = std::move(*message->mutable_err());
    if (!piece.out.empty() || !piece.err.empty()) return std::optional<ExecPiece>(std::move(piece));
  }
  return std::optional<ExecPiece>();
}

api::ExecSession::ExecSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
api::ExecSession::ExecSession(ExecSession&&) noexcept = default;
api::ExecSession& api::ExecSession::operator=(ExecSession&&) noexcept = default;
api::ExecSession::~ExecSession() = default;

Status api::ExecSession::Write(std::string_view bytes) { return impl_->Write(bytes); }
Status api::ExecSession::EndInput() { return impl_->EndInput(); }
Status api::ExecSession::Resize(const TerminalSize& size) { return impl_->Resize(size); }
Result<std::optional<api::ExecPiece>> api::ExecSession::Read() { return impl_->Read(); }
const api::ExecOutcome& api::ExecSession::outcome() const { return impl_->outcome(); }
void api::ExecSession::HangUp() { impl_->HangUp(); }

}  // namespace gpulayer
