#include "base/fault_point.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "base/mutex.h"
#include "base/text.h"

namespace gpulayer {
namespace internal {

std::atomic<bool> fault_points_armed{false};

namespace {
struct Armed {
  std::string action;
  long at = 0;  // 0: every pass
  long passes = 0;
};
struct Table {
  Mutex mutex;
  std::map<std::string, Armed, std::less<>> points GPULAYER_GUARDED_BY(mutex);
};
Table& TheTable() {
  static auto& table = *new Table;
  return table;
}
}  // namespace

bool HitFaultPoint(const char* name) {
  std::string action;
  {
    Table& table = TheTable();
    MutexLock lock(table.mutex);
    const auto it = table.points.find(name);
    if (it == table.points.end()) return false;
    ++it->second.passes;
    if (it->second.at != 0 && it->second.passes != it->second.at) return false;
    action = it->second.action;
  }
  if (action == "kill") kill(getpid(), SIGKILL);
  if (action == "stop") kill(getpid(), SIGSTOP);
  if (action == "exit") _exit(kFaultExitCode);
  return action == "fail";
}

}  // namespace internal

void ArmFaultPointsForTest(const char* text) {
  internal::Table& table = internal::TheTable();
  MutexLock lock(table.mutex);
  table.points.clear();
  for (const std::string& item : Split(text, ';')) {
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    internal::Armed armed;
    armed.action = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (const std::size_t colon = armed.action.find(':'); colon != std::string::npos) {
      armed.at = std::strtol(armed.action.c_str() + colon + 1, nullptr, 10);
      armed.action.resize(colon);
    }
    if (armed.action != "kill" && armed.action != "stop" && armed.action != "exit" &&
        armed.action != "fail") {
      std::fprintf(stderr,
                   "gpulayer: GPULAYER_FAULT: \"%s\" is not point=kill|exit|stop|fail[:N]\n",
                   item.c_str());
      std::abort();
    }
    table.points[item.substr(0, equals)] = armed;
  }
  internal::fault_points_armed.store(!table.points.empty(), std::memory_order_relaxed);
}

void ArmFaultPointsFromEnvironment() {
  if (const char* text = std::getenv("GPULAYER_FAULT")) ArmFaultPointsForTest(text);
}

}  // namespace gpulayer
