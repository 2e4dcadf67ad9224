// Status and Result<T>: how every call of this library says whether it worked.
//
// Threads:   values; a single object is not to be changed by two threads at once.
// Errors:    nothing here throws (but std::bad_alloc). Result<T>::value() of a failed result aborts
//            with the status printed: check ok() first.
// The numbers of StatusCode travel on the wire and are stored: do not change them.
#ifndef GPULAYER_STATUS_H_
#define GPULAYER_STATUS_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace gpulayer {

// What a program may do about a failure. The message is for a person.
enum class StatusCode : std::int32_t {
  kOk = 0,
  kCancelled = 1,           // somebody asked for it to stop
  kUnknown = 2,             // the other side failed and did not say how
  kInvalidArgument = 3,     // the request is wrong whatever the state of things
  kDeadlineExceeded = 4,    // the caller's patience ended first
  kNotFound = 5,            // no such job, worker, blob, file
  kAlreadyExists = 6,       // it is there and must not be
  kPermissionDenied = 7,    // known caller, not allowed
  kResourceExhausted = 8,   // a limit, named in the message, or a full disk or queue
  kFailedPrecondition = 9,  // right request, wrong moment
  kAborted = 10,            // lost a race; repeat from the start
  kOutOfRange = 11,         // past the end
  kUnimplemented = 12,      // this build or this peer does not have it
  kInternal = 13,           // a bug of ours
  kUnavailable = 14,        // cannot be reached now; repeat as it is
  kDataLoss = 15,           // stored bytes are damaged
  kUnauthenticated = 16,    // no, wrong, expired or revoked token
  kRejected = 100,          // no known worker can ever run this; the message lists nearest misses
};

// "INVALID_ARGUMENT" and so on; "CODE_<n>" for a number this version does not know.
inline std::string StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "OK";
    case StatusCode::kCancelled: return "CANCELLED";
    case StatusCode::kUnknown: return "UNKNOWN";
    case StatusCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound: return "NOT_FOUND";
    case StatusCode::kAlreadyExists: return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied: return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case StatusCode::kAborted: return "ABORTED";
    case StatusCode::kOutOfRange: return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented: return "UNIMPLEMENTED";
    case StatusCode::kInternal: return "INTERNAL";
    case StatusCode::kUnavailable: return "UNAVAILABLE";
    case StatusCode::kDataLoss: return "DATA_LOSS";
    case StatusCode::kUnauthenticated: return "UNAUTHENTICATED";
    case StatusCode::kRejected: return "REJECTED";
  }
  return "CODE_" + std::to_string(static_cast<std::int32_t>(code));
}

// Success, or a code with a message of the form "what failed: why. What to do."
class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "OK", or "NOT_FOUND: job 7: no such job".
  std::string ToString() const { return ok() ? "OK" : StatusCodeName(code_) + ": " + message_; }

  // The same failure seen from one layer further up: "start job 41: " is put in front.
  Status Prefixed(std::string_view context) const {
    return ok() ? *this : Status(code_, std::string(context) + ": " + message_);
  }

  friend bool operator==(const Status& a, const Status& b) {
    return a.code_ == b.code_ && a.message_ == b.message_;
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }

// A T, or the reason why there is none. Never holds an OK status without a value.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<1>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {  // NOLINT
    if (std::get<0>(state_).ok()) Die("an OK status without a value");
  }

  bool ok() const { return state_.index() == 1; }
  Status status() const { return ok() ? Status() : std::get<0>(state_); }

  // REQUIRES: ok()
  T& value() & { return Get(*this); }
  const T& value() const& { return Get(*this); }
  T&& value() && { return std::move(Get(*this)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  T value_or(T fallback) const& { return ok() ? value() : std::move(fallback); }

 private:
  template <typename Self>
  static auto& Get(Self& self) {
    if (!self.ok()) Die(std::get<0>(self.state_).ToString().c_str());
    return std::get<1>(self.state_);
  }
  [[noreturn]] static void Die(const char* what) {
    std::fprintf(stderr, "gpulayer: value() of a failed Result: %s\n", what);
    std::abort();
  }

  std::variant<Status, T> state_;
};

}  // namespace gpulayer

#endif  // GPULAYER_STATUS_H_
