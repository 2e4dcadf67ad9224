// The caller's standard input.
#ifndef GPULAYER_CLIENT_STANDARD_INPUT_H_
#define GPULAYER_CLIENT_STANDARD_INPUT_H_

#include "base/status.h"

namespace gpulayer::client {

// FAILED_PRECONDITION: it was closed, and cannot be read.
Status CheckStandardInput();

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_STANDARD_INPUT_H_
