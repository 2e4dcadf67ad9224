// The library's Status and Result, and what our own code adds to them.
#ifndef GPULAYER_BASE_STATUS_H_
#define GPULAYER_BASE_STATUS_H_

#include <cerrno>
#include <string>
#include <string_view>

#include "gpulayer/status.h"

namespace gpulayer {

// Drops a status on purpose; `why` says why that is safe.
inline void IgnoreError(const Status& /*status*/, std::string_view /*why*/) {}

inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status AlreadyExists(std::string m) { return {StatusCode::kAlreadyExists, std::move(m)}; }
inline Status PermissionDenied(std::string m) {
  return {StatusCode::kPermissionDenied, std::move(m)};
}
inline Status ResourceExhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status FailedPrecondition(std::string m) {
  return {StatusCode::kFailedPrecondition, std::move(m)};
}
inline Status DeadlineExceeded(std::string m) {
  return {StatusCode::kDeadlineExceeded, std::move(m)};
}
inline Status OutOfRange(std::string m) { return {StatusCode::kOutOfRange, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status Unauthenticated(std::string m) {
  return {StatusCode::kUnauthenticated, std::move(m)};
}
inline Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status DataLoss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }
inline Status Unimplemented(std::string m) { return {StatusCode::kUnimplemented, std::move(m)}; }

// For what errno says of files that are this program's own: whoever asked is not to take "no such
// file" for an answer to what it asked. Want of room or of descriptors stays what it is: it passes.
inline Status AsInternal(const Status& status) {
  const bool as_it_is = status.ok() || status.code() == StatusCode::kResourceExhausted;
  return as_it_is ? status : Internal(status.message());
}

// "open /x: No such file or directory" with the code that fits `error` (an errno value).
Status ErrnoStatus(std::string_view what, int error);

}  // namespace gpulayer

#define GPULAYER_CONCAT_INNER_(a, b) a##b
#define GPULAYER_CONCAT_(a, b) GPULAYER_CONCAT_INNER_(a, b)

// Leaves the function with the status if it is not OK.
#define GPULAYER_RETURN_IF_ERROR(expr)                                        \
  do {                                                                        \
    if (::gpulayer::Status gpulayer_status_ = (expr); !gpulayer_status_.ok()) \
      return gpulayer_status_;                                                \
  } while (false)

// GPULAYER_ASSIGN_OR_RETURN(Foo foo, MakeFoo());
#define GPULAYER_ASSIGN_OR_RETURN(lhs, expr) \
  GPULAYER_ASSIGN_OR_RETURN_(GPULAYER_CONCAT_(gpulayer_result_, __LINE__), lhs, expr)
#define GPULAYER_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.status();              \
  lhs = *std::move(tmp)

#endif  // GPULAYER_BASE_STATUS_H_
