#include "model/records.h"

namespace gpulayer {

std::string_view ToString(WorkerState state) {
  switch (state) {
    case WorkerState::kOnline: return "online";
    case WorkerState::kSuspect: return "suspect";
    case WorkerState::kOffline: return "offline";
  }
  return "unknown";
}

}  // namespace gpulayer
