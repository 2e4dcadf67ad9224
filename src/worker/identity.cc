#include "worker/identity.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/text.h"

namespace gpulayer::worker {
namespace {

constexpr std::size_t kIdBytes = 16;

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

Result<FileLock> LockDataDir(const std::string& data_dir) {
  const std::string path = JoinPath(data_dir, "worker.lock");
  Result<FileLock> lock = FileLock::Acquire(path);
  if (!lock.ok() && lock.status().code() == StatusCode::kFailedPrecondition) {
    const std::string pid = Trimmed(ReadFile(path).value_or(""));
    return FailedPrecondition("data directory " + data_dir + " is in use by another worker" +
                              (pid.empty() ? "" : " (process " + Printable(pid) + ")") +
                              ". Stop it first, or give this one another --data-dir");
  }
  if (!lock.ok()) return lock;
  if (ftruncate(lock->fd().get(), 0) != 0) return ErrnoStatus("write " + path, errno);
  GPULAYER_RETURN_IF_ERROR(WriteAll(lock->fd().get(), std::to_string(getpid()) + "\n"));
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
  GPULAYER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
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

std::string BootId() {
  const Result<std::string> id = ReadFile("/proc/sys/kernel/random/boot_id");
  return id.ok() ? Trimmed(*id) : "";
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "worker";
  const std::string full = name;
  return full.substr(0, full.find('.'));
}

}  // namespace gpulayer::worker
