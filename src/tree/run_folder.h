// Where outputs come home: a folder under gpulayer_runs/ that belongs to one job of one server.
#ifndef GPULAYER_TREE_RUN_FOLDER_H_
#define GPULAYER_TREE_RUN_FOLDER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/ids.h"
#include "tree/unpack.h"

namespace gpulayer::tree {

struct RunFolderRequest {
  std::string base_dir = ".";  // gpulayer_runs/ is made in it
  std::string server_uuid;     // 32 hex digits
  JobId job;
  // Which name the folder gets: <id> for the login in use, <target>-<id> for another target,
  // local-<n> for a local run, or `to` itself (made if absent).
  enum class Naming { kLoginInUse, kOtherTarget, kLocal, kTo } naming = Naming::kLoginInUse;
  std::string target;  // kOtherTarget
  std::string to;      // kTo
};

inline constexpr const char* kRunMarker = ".gpulayer.json";

// Makes the folder, or finds the one of the same job (a second download goes to the same place;
// kLocal always takes the next free number, so call it once a job). Call it only when there is
// something to put in it. A folder of another server or job, or one without a marker that is not
// empty, is never taken: then <name>-<server, 6 hex>. For kTo that is an error, and no marker is
// written there. Safe against other processes doing the same.
// Returns the folder's path as given (relative to the current directory if base_dir is).
// Errors: FAILED_PRECONDITION if the folder is another job's; the file system's.
Result<std::string> MakeRunFolder(const RunFolderRequest& request);

// Whether folders could be made under `base_dir` now, without making one. FAILED_PRECONDITION: no,
// and why.
Status CheckRunsPlace(const std::string& base_dir);

// What stands in the folder of a kTo request and has other content than the tree would put there: paths
// below it, at most `most`. None in the run folder of this very job, whose files are its own.
std::vector<std::string> FindOthers(const RunFolderRequest& request, const std::string& subfolder,
                                    const Tree& tree, std::size_t most);

// Unpack for a run folder: replaces files, never the marker. `subfolder` ("", "7", "node-1") is
// made if absent.
Status UnpackInto(const std::string& run_folder, const std::string& subfolder, const Tree& tree,
                  const BlobOpener& open_blob);

}  // namespace gpulayer::tree

#endif  // GPULAYER_TREE_RUN_FOLDER_H_
