// Our status codes as numbers of the wire, both ways: the one table. The numbers 0..16 are gRPC's
// own.
#ifndef GPULAYER_WIRE_STATUS_CODE_H_
#define GPULAYER_WIRE_STATUS_CODE_H_

#include <string>

#include "base/status.h"

namespace gpulayer::wire {

// kRejected travels inside SubmitReply; elsewhere it becomes FAILED_PRECONDITION (9).
int ToWireCode(StatusCode code);
// An unknown number is kUnknown.
StatusCode FromWireCode(int code);

}  // namespace gpulayer::wire

#endif  // GPULAYER_WIRE_STATUS_CODE_H_
