#include "base/status.h"

#include <cstring>
#include <system_error>

namespace gpulayer {
namespace {

StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return StatusCode::kNotFound;
    case EEXIST: return StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS: return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return StatusCode::kResourceExhausted;
    case EINVAL:
    case ENAMETOOLONG: return StatusCode::kInvalidArgument;
    case EAGAIN:
    case EINTR:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return StatusCode::kUnavailable;
    case EIO: return StatusCode::kDataLoss;
    default: return StatusCode::kUnknown;
  }
}

}  // namespace

Status ErrnoStatus(std::string_view what, int error) {
  return {CodeOf(error), std::string(what) + ": " + std::generic_category().message(error)};
}

}  // namespace gpulayer
