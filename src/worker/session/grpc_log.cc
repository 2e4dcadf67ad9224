#include "worker/session/grpc_log.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>

#include <string>
#include <string_view>

#include "base/log.h"

namespace gpulayer::worker {
namespace {

// Whoever knocks on the port without TLS would fill the log; of our own links we say more ourselves.
bool IsHandshake(const gpr_log_func_args& line) {
  return std::string_view(line.file).find("ssl_transport_security") != std::string_view::npos;
}

}  // namespace

void LogGrpcLines() {
  // Debian's build looks for a deadlock at each lock that gRPC takes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  gpr_set_log_function([](gpr_log_func_args* line) {
    const bool is_error = line->severity == GPR_LOG_SEVERITY_ERROR && !IsHandshake(*line);
    Log(is_error ? LogLevel::kWarning : LogLevel::kDebug, std::string("gRPC: ") + line->message);
  });
}

}  // namespace gpulayer::worker
