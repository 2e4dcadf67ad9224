#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>

namespace gpulayer {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: return spdlog::level::off;
  }
  return spdlog::level::info;
}

std::shared_ptr<spdlog::logger> Make(const std::string& program, spdlog::sink_ptr sink,
                                     LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>(program, std::move(sink));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %L %n[%P] %v");
  spdlog::level::level_enum chosen = ToSpdlog(level);
  if (const char* text = std::getenv("GPULAYER_LOG"); text != nullptr && *text != '\0') {
    const spdlog::level::level_enum said = spdlog::level::from_str(text);
    const bool known = said != spdlog::level::off || std::string_view(text) == "off";
    if (!known) {
      logger->warn("GPULAYER_LOG is no level: it is debug, info, warning, error or off");
    } else {
      chosen = said;
    }
  }
  logger->set_level(chosen);
  logger->flush_on(spdlog::level::debug);
  return logger;
}

std::atomic<bool> logs_to_file{false};

std::shared_ptr<spdlog::logger>& Logger() {
  // Of a program that keeps no log: its lines are a person's to read, like its other words.
  static auto& logger = *new std::shared_ptr<spdlog::logger>([] {
    auto made =
        Make("gpulayer", std::make_shared<spdlog::sinks::stderr_sink_mt>(), LogLevel::kWarning);
    made->set_pattern("%n: %v");
    return made;
  }());
  return logger;
}

}  // namespace

Status OpenLog(const std::string& program, const std::string& file, LogLevel level) {
  try {  // spdlog reports an unwritable file by throwing
    spdlog::sink_ptr sink;
    if (file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    }
    Logger() = Make(program, std::move(sink), level);
    logs_to_file = !file.empty();
  } catch (const spdlog::spdlog_ex& e) {
    return PermissionDenied("open log " + file + ": " + e.what());
  }
  return OkStatus();
}

bool LogsToFile() { return logs_to_file; }

void Log(LogLevel level, std::string_view line) {
  Logger()->log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace gpulayer
