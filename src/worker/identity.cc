#include "worker/identity.h"

#include <nlohmann/json.hpp>

#include "base/own_file.h"
#include "base/random.h"
#include "base/text.h"

namespace gpulayer::worker {
namespace {

constexpr std::size_t kIdBytes = 16;

}  // namespace

Result<FileLock> LockDataDir(const std::string& data_dir) {
  std::string pid;
  Result<FileLock> lock = FileLock::AcquireWithPid(JoinPath(data_dir, "worker.lock"), &pid);
  if (lock.status().code() == StatusCode::kFailedPrecondition) {
    return FailedPrecondition("data directory " + data_dir + " is in use by another worker" +
                              (pid.empty() ? "" : " (process " + pid + ")") +
                              ". Stop it first, or give this one another --data-dir");
  }
  return lock;
}

Result<WorkerId> LoadIdentity(const std::string& data_dir) {
  const std::string path = JoinPath(data_dir, "worker.json");
  if (!PathExists(path)) {
    const std::string id = RandomHex(kIdBytes);
    const nlohmann::json out = {{"worker_id", id}};
    GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(path, out.dump(2) + "\n"));
    return WorkerId(id);
  }
  GPULAYER_ASSIGN_OR_RETURN(const std::string text, ReadOwnFile(path));
  const nlohmann::json in = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (in.is_object()) {
    const auto id = in.find("worker_id");
    if (id != in.end() && id->is_string()) {
      const std::string hex = id->get<std::string>();
      const Result<std::string> bytes = HexDecode(hex);
      if (bytes.ok() && bytes->size() == kIdBytes) return WorkerId(hex);
    }
  }
  return DataLoss(path +
                  ": it does not hold this worker's id: the file is damaged. Restore it, or "
                  "remove it to become a new worker");
}

}  // namespace gpulayer::worker
