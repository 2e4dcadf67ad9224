// The daemons' own log: one line an event, to standard error or a file. Never put a token, a secret
// or a whole environment into a line.
#ifndef GPULAYER_BASE_LOG_H_
#define GPULAYER_BASE_LOG_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace gpulayer {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Threads: Log() from any thread; OpenLog() once, before others log. Without OpenLog, lines of
// kWarning and above go to standard error. `file` empty: standard error.
// GPULAYER_LOG=debug|info|warning|error|off overrides `level`.
Status OpenLog(const std::string& program, const std::string& file, LogLevel level);
bool LogsToFile();
void Log(LogLevel level, std::string_view line);

inline void LogDebug(std::string_view line) { Log(LogLevel::kDebug, line); }
inline void LogInfo(std::string_view line) { Log(LogLevel::kInfo, line); }
inline void LogWarning(std::string_view line) { Log(LogLevel::kWarning, line); }
inline void LogError(std::string_view line) { Log(LogLevel::kError, line); }

}  // namespace gpulayer

#endif  // GPULAYER_BASE_LOG_H_
