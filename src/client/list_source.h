// What of a source folder ships, and what of it a command names that does not.
#ifndef GPULAYER_CLIENT_LIST_SOURCE_H_
#define GPULAYER_CLIENT_LIST_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tree/scan.h"

namespace gpulayer::client {

struct SourceRules {
  std::int64_t limit_bytes = 0;
  std::int64_t limit_files = 0;
  // Of all jobs that it ships for: words that name a file which does not ship are warned of.
  std::vector<std::vector<std::string>> commands;
  std::vector<std::string> never;  // folders that do not ship: our own
  bool name_ignored = false;       // fill Listing::ignored
};

// Our configuration, and the data of this account's server and worker: they hold keys.
std::vector<std::string> OwnFolders(const std::string& config_dir, const std::string& data_dir);

// As tree::Scan. RESOURCE_EXHAUSTED: over a limit. FAILED_PRECONDITION too: it is a folder of our own.
Result<tree::Listing> ListSource(const std::string& dir, const SourceRules& rules);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_LIST_SOURCE_H_
