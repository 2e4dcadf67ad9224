// Jobs.Watch: the job as it is, again after changes, and a last time in its final state; or the
// final states alone, of some jobs.
#ifndef GPULAYER_SERVER_RPC_WATCH_H_
#define GPULAYER_SERVER_RPC_WATCH_H_

#include "gpulayer/v1/jobs.grpc.pb.h"
#include "server/rpc/services.h"

namespace gpulayer::rpc {

grpc::ServerWriteReactor<v1::GetJobReply>* StartWatch(Parts& parts, const Principal& caller,
                                                      const v1::WatchRequest& request);

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_WATCH_H_
