#include "client/retry.h"

#include <algorithm>

#include "base/random.h"

namespace gpulayer::client {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kFirstDelay{100};
constexpr milliseconds kLongestDelay{2000};

}  // namespace

Sleeper InterruptibleSleeper(InterruptPtr interrupt) {
  // Without an interrupt of the caller's there is still something to wait on.
  if (!interrupt) interrupt = std::make_shared<api::Interrupt::State>();
  return [interrupt](Duration d) {
    return interrupt->SleepFor(d) ? OkStatus() : Cancelled("interrupted");
  };
}

std::string RetryNotice(const Status& status) {
  const std::string& text = status.message();
  std::string what = text.substr(0, text.find(". "));
  while (!what.empty() && what.back() == '.') what.pop_back();
  return what + ". Trying again.";
}

bool RetryPolicy::Allows(const Status& status) {
  if (status.code() != StatusCode::kUnavailable) return false;
  const TimePoint now = clock_.Now().mono;
  if (!failing_) since_ = now;
  failing_ = true;
  return now - since_ < patience_;
}

Duration RetryPolicy::NextDelay() {
  const auto full = std::min(kFirstDelay * (1 << std::min(failures_, 10)), kLongestDelay);
  ++failures_;
  const auto byte = static_cast<unsigned char>(RandomBytes(1)[0]);
  return full - full * byte / (4 * 255);  // not all clients of a restarted server at one moment
}

void RetryPolicy::Reset() {
  failing_ = false;
  failures_ = 0;
}

Status RetryTransport::Call(Method method, const google::protobuf::MessageLite& request,
                            google::protobuf::MessageLite* reply, const CallOptions& options) {
  const Sleeper sleep = make_sleeper_(options.interrupt);
  RetryPolicy policy(clock_, options.deadline - std::chrono::steady_clock::now());
  for (;;) {
    const Status status = inner_->Call(method, request, reply, options);
    if (status.code() != StatusCode::kUnavailable) {
      // A server that could not be asked (another CA, for one) has not answered.
      if (status.code() != StatusCode::kCancelled) answered_ = true;
      return status;
    }
    if (!answered_ || !IsIdempotent(method) || !policy.Allows(status)) return status;
    const Duration delay = policy.NextDelay();
    if (std::chrono::steady_clock::now() + delay >= options.deadline) return status;
    GPULAYER_RETURN_IF_ERROR(sleep(delay));
  }
}

}  // namespace gpulayer::client
