// Text of a caller's on its way into a message.
#ifndef GPULAYER_CLIENT_PROTO_TEXT_H_
#define GPULAYER_CLIENT_PROTO_TEXT_H_

#include <google/protobuf/message_lite.h>

#include "base/status.h"

namespace gpulayer::client {

// Whether what a message holds in `string` fields is text, as protobuf wants it: the other side
// cannot parse anything else, and would say so in words that nobody understands.
// INVALID_ARGUMENT names the field. Threads: any.
Status CheckText(const google::protobuf::MessageLite& message);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_PROTO_TEXT_H_
