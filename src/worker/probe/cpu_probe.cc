#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "base/fs.h"
#include "base/text.h"
#include "worker/probe/probe.h"

namespace gpulayer {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number in front of `text`; nothing for "max" and other words.
std::optional<std::int64_t> LeadingNumber(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const long long n = std::strtoll(copy.c_str(), &end, 10);
  if (end == copy.c_str()) return std::nullopt;
  return n;
}

std::optional<std::int64_t> NumberIn(const std::string& file) {
  const Result<std::string> text = ReadFile(file);
  return text.ok() ? LeadingNumber(*text) : std::nullopt;
}

// CPUs that the scheduler lets this process use.
std::int32_t AffinityCpus() {
  // Machines of more than 1024 CPUs need a larger mask than the default one.
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 18; cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    const int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<std::int32_t>(std::thread::hardware_concurrency()));
}

// A line of /proc/self/cgroup, "4:memory,hugetlb:/a/b"; version 2 has "0::/a/b".
struct CgroupLine {
  std::vector<std::string> controllers;  // empty: version 2
  std::string path;
};

std::vector<CgroupLine> ReadCgroups(const std::string& root) {
  std::vector<CgroupLine> lines;
  const Result<std::string> text = ReadFile(root + "/proc/self/cgroup");
  if (!text.ok()) return lines;
  for (const std::string& line : Split(*text, '\n')) {
    const std::size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    CgroupLine parsed;
    if (second > first + 1) {
      parsed.controllers = Split(line.substr(first + 1, second - first - 1), ',');
    }
    parsed.path = line.substr(second + 1);
    lines.push_back(std::move(parsed));
  }
  return lines;
}

// The folders of this process's cgroup and of all above it, where `controller` (version 1) or the
// unified hierarchy (empty) is mounted. In a container the path may be the host's and not be there;
// then the mount's root is our own group.
std::vector<std::string> CgroupFolders(const std::string& root, const std::string& controller) {
  std::vector<std::string> folders;
  std::vector<std::string> mounts;
  if (controller.empty()) {
    mounts = {root + "/sys/fs/cgroup", root + "/sys/fs/cgroup/unified"};
  } else {
    mounts = {root + "/sys/fs/cgroup/" + controller};
  }
  for (const CgroupLine& line : ReadCgroups(root)) {
    const bool ours = controller.empty()
                          ? line.controllers.empty()
                          : std::find(line.controllers.begin(), line.controllers.end(),
                                      controller) != line.controllers.end();
    if (!ours) continue;
    for (const std::string& mount : mounts) {
      std::string path = line.path;
      for (;;) {
        folders.push_back(path == "/" ? mount : mount + path);
        if (path.empty() || path == "/") break;
        path = DirName(path);
      }
    }
  }
  return folders;
}

// CPUs' worth of time that the quotas leave; nothing: no quota.
std::optional<double> QuotaCpus(const std::string& root) {
  std::optional<double> least;
  const auto take = [&](std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;  // -1 and "max": none
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    least = std::min(least.value_or(cpus), cpus);
  };
  for (const std::string& folder : CgroupFolders(root, "")) {
    const Result<std::string> text =
        ReadFile(folder + "/cpu.max");  // "200000 100000", "max 100000"
    if (!text.ok()) continue;
    const std::vector<std::string> words = Split(*text, ' ');
    if (words.size() == 2) take(LeadingNumber(words[0]), LeadingNumber(words[1]));
  }
  for (const std::string& folder : CgroupFolders(root, "cpu")) {
    take(NumberIn(folder + "/cpu.cfs_quota_us"), NumberIn(folder + "/cpu.cfs_period_us"));
  }
  return least;
}

Result<std::int64_t> TotalMemory(const std::string& root) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string text, ReadFile(root + "/proc/meminfo"));
  for (const std::string& line : Split(text, '\n')) {
    if (line.compare(0, 9, "MemTotal:") != 0) continue;
    const std::optional<std::int64_t> kib = LeadingNumber(std::string_view(line).substr(9));
    if (kib && *kib > 0) return *kib * 1024;
  }
  return DataLoss("detect memory: no MemTotal in " + root + "/proc/meminfo");
}

std::int64_t MemoryLimit(const std::string& root) {
  std::int64_t least = kNoLimit;
  const auto take = [&](std::optional<std::int64_t> limit) {
    if (limit && *limit > 0) least = std::min(least, *limit);
  };
  for (const std::string& folder : CgroupFolders(root, "")) take(NumberIn(folder + "/memory.max"));
  for (const std::string& folder : CgroupFolders(root, "memory")) {
    take(NumberIn(folder + "/memory.limit_in_bytes"));
  }
  return least;
}

}  // namespace

Result<Resources> CpuProbe::Detect() {
  Resources found;
  if (options_.slots) {
    found.slots = *options_.slots;
  } else {
    found.slots = AffinityCpus();
    if (const std::optional<double> quota = QuotaCpus(options_.root)) {
      found.slots = std::min(found.slots, static_cast<std::int32_t>(std::ceil(*quota)));
    }
    found.slots = std::max(found.slots, 1);
  }
  if (options_.memory_bytes) {
    found.memory_bytes = *options_.memory_bytes;
  } else {
    GPULAYER_ASSIGN_OR_RETURN(const std::int64_t total, TotalMemory(options_.root));
    found.memory_bytes = std::min(total, MemoryLimit(options_.root));
  }
  return found;
}

}  // namespace gpulayer
