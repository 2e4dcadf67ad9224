// One worker's connection: Workers.Session.
#ifndef GPULAYER_SERVER_RPC_SESSION_H_
#define GPULAYER_SERVER_RPC_SESSION_H_

#include "gpulayer/v1/workers.grpc.pb.h"
#include "server/rpc/services.h"

namespace gpulayer::rpc {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>* StartSession(
    Parts& parts, grpc::CallbackServerContext* context, const Principal& caller);

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_SESSION_H_
