// Logs.Read: the bytes of a task's attempts as they come.
#ifndef GPULAYER_SERVER_RPC_LOG_STREAM_H_
#define GPULAYER_SERVER_RPC_LOG_STREAM_H_

#include "gpulayer/v1/logs.grpc.pb.h"
#include "server/rpc/services.h"

namespace gpulayer::rpc {

grpc::ServerWriteReactor<v1::LogChunk>* StartLogStream(Parts& parts, const Principal& caller,
                                                       const v1::ReadLogsRequest& request);

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_LOG_STREAM_H_
