#include "worker/session/grpc_log.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>

#include <string_view>

#include "base/log.h"

namespace gpulayer::worker {
namespace {

constexpr auto kPause = std::chrono::minutes(1);

// Whoever knocks on the port without TLS would fill the log; of our own links we say more ourselves.
bool IsHandshake(const gpr_log_func_args& line) {
  return std::string_view(line.file).find("ssl_transport_security") != std::string_view::npos;
}

void LogLine(gpr_log_func_args* line) {
  static auto& limit = *new LineLimit();  // gRPC's threads may outlive main()
  const std::string text = std::string("gRPC: ") + line->message;
  if (line->severity != GPR_LOG_SEVERITY_ERROR || IsHandshake(*line)) return LogDebug(text);
  const std::optional<std::int64_t> held_back =
      limit.Admit({line->file, line->line}, Clock::System().Now().mono);
  if (!held_back) return LogDebug(text);
  const std::string more = " (" + std::to_string(*held_back) + " more like it before)";
  LogWarning(*held_back == 0 ? text : text + more);
}

}  // namespace

std::optional<std::int64_t> LineLimit::Admit(const Kind& kind, TimePoint now) {
  MutexLock lock(mutex_);
  const auto [it, is_new] = seen_.try_emplace(kind, Seen{now, 0});
  Seen& seen = it->second;
  if (!is_new && now - seen.passed < kPause) {
    ++seen.held_back;
    return std::nullopt;
  }
  seen.passed = now;
  return std::exchange(seen.held_back, 0);
}

void LogGrpcLines() {
  // Debian's build looks for a deadlock at each lock that gRPC takes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  gpr_set_log_function(LogLine);
}

}  // namespace gpulayer::worker
