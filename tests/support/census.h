// CENSUS: who is alive of an attempt. Processes are known by GPULAYER_ATTEMPT_ID in their
// environment as it was at their start; one that wiped it is found by a pid it noted itself.
#ifndef GPULAYER_TESTS_SUPPORT_CENSUS_H_
#define GPULAYER_TESTS_SUPPORT_CENSUS_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/fs.h"

namespace gpulayer::testing {

enum class CensusMatch { kWhole, kPrefix };

// Living processes (no zombies) of the attempt, or of all attempts whose ids begin so. The calling
// process does not count.
inline std::vector<pid_t> Census(const std::string& attempt_id,
                                 CensusMatch match = CensusMatch::kWhole) {
  const std::string name = "GPULAYER_ATTEMPT_ID=";
  std::vector<pid_t> out;
  const Result<std::vector<std::string>> entries = ListDir("/proc");
  if (!entries.ok()) return out;
  for (const std::string& entry : *entries) {
    if (entry.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto pid = static_cast<pid_t>(std::strtol(entry.c_str(), nullptr, 10));
    if (pid == getpid()) continue;
    // A zombie's environment is empty; another user's cannot be read and is none of ours.
    Result<std::string> environ_bytes = ReadFile("/proc/" + entry + "/environ");
    if (!environ_bytes.ok()) continue;
    const std::string all = std::string(1, '\0') + *environ_bytes;
    const std::string wanted = std::string(1, '\0') + name + attempt_id;
    const std::size_t at = all.find(wanted);
    if (at == std::string::npos) continue;
    const std::size_t end = at + wanted.size();
    if (match == CensusMatch::kPrefix || end == all.size() || all[end] == '\0') out.push_back(pid);
  }
  return out;
}

// Whether that process is there and not a zombie.
inline bool IsAlive(pid_t pid) {
  const Result<std::string> stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  if (!stat.ok()) return false;
  const std::size_t at = stat->rfind(')');
  return at != std::string::npos && at + 2 < stat->size() && (*stat)[at + 2] != 'Z' &&
         (*stat)[at + 2] != 'X';
}

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_CENSUS_H_
