// What gRPC has to say, in the log of the daemon it runs in.
#ifndef GPULAYER_WORKER_SESSION_GRPC_LOG_H_
#define GPULAYER_WORKER_SESSION_GRPC_LOG_H_

namespace gpulayer::worker {

// Its errors become warnings, all else is for debugging. Once in each daemon, after OpenLog() and
// before gRPC is used: it holds for the whole process.
// For a daemon: also takes out the search for deadlocks at each of gRPC's locks.
void LogGrpcLines();

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_SESSION_GRPC_LOG_H_
