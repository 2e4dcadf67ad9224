// What the services share, and the services themselves as gRPC sees them.
#ifndef GPULAYER_SERVER_RPC_SERVICES_H_
#define GPULAYER_SERVER_RPC_SERVICES_H_

#include <grpcpp/impl/service_type.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/line_file.h"
#include "server/blob/blob_store.h"
#include "server/blob/log_store.h"
#include "server/engine.h"
#include "server/rpc/exec_switch.h"
#include "server/rpc/guard.h"
#include "server/rpc/hub.h"
#include "server/rpc/pool.h"
#include "server/rpc/streams.h"
#include "server/rpc/timer.h"
#include "server/rpc/trees.h"
#include "server/security/secret_store.h"
#include "server/security/tokens.h"

namespace gpulayer::rpc {

// Safe to use from any thread; all of it outlives every call.
struct Parts {
  Engine& engine;
  BlobStore& blobs;
  LogStore& logs;
  security::TokenAuthority& tokens;
  security::SecretStore& secrets;
  Clock& clock;
  Guard& guard;
  Pool& io;             // blobs, logs, tokens, secrets: files
  ReaderPool& readers;  // rows, and logs for those who read them
  Timer& timer;
  LogHub& hub;
  StreamRegistry& streams;
  ExecSwitch& execs;
  Trees& trees;
  LineFiles& items;  // of jobs

  // Said by Status and Welcome.
  ServerIdentity identity;
  std::string data_dir;
  core::Options core;
  Duration exec_deadline;  // for a worker to come for a command inside an attempt
  WallTime started;
  std::vector<std::string> addresses;  // set before the first call is taken
  std::atomic<std::int64_t> blobs_received{0};
  std::atomic<std::int64_t> blob_bytes_received{0};
};

std::unique_ptr<grpc::Service> MakeJobsService(Parts& parts);
std::unique_ptr<grpc::Service> MakeLogsService(Parts& parts);
std::unique_ptr<grpc::Service> MakeArtifactsService(Parts& parts);
std::unique_ptr<grpc::Service> MakeWorkersService(Parts& parts);
std::unique_ptr<grpc::Service> MakeExecService(Parts& parts);
std::unique_ptr<grpc::Service> MakeAdminService(Parts& parts);

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_SERVICES_H_
