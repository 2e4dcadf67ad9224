#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "worker/exec/process_tree.h"

namespace gpulayer {
namespace {

constexpr std::size_t kMaxEnvironment = std::size_t{8} << 20;

// Up to `limit` bytes; false if it cannot be opened.
bool ReadProcFile(const std::string& path, std::size_t limit, std::string& out) {
  out.clear();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char buffer[4096];
  while (out.size() < limit) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    out.append(buffer, static_cast<std::size_t>(n));
  }
  close(fd);
  return true;
}

template <typename Visit>
void ForEachNumber(const std::string& folder, Visit visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  if (!dir) return;
  while (const dirent* entry = readdir(dir.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    visit(static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10)));
  }
}

// "pid (name) state ppid ...": the name may hold anything, so the last ')' ends it.
bool ReadStat(pid_t pid, std::string& name, char& state, pid_t& parent) {
  std::string text;
  if (!ReadProcFile("/proc/" + std::to_string(pid) + "/stat", 4096, text)) return false;
  const std::size_t open_at = text.find('(');
  const std::size_t close_at = text.rfind(')');
  if (open_at == std::string::npos || close_at == std::string::npos ||
      close_at + 4 >= text.size()) {
    return false;
  }
  name = text.substr(open_at + 1, close_at - open_at - 1);
  state = text[close_at + 2];
  parent = static_cast<pid_t>(std::strtol(text.c_str() + close_at + 4, nullptr, 10));
  return true;
}

bool KernelListsChildren() {
  static const bool listed = [] {
    const std::string self = std::to_string(getpid());
    return access(("/proc/" + self + "/task/" + self + "/children").c_str(), R_OK) == 0;
  }();
  return listed;
}

// Kernels without CONFIG_PROC_CHILDREN: everybody's parent is asked for.
std::vector<std::pair<pid_t, pid_t>> AllParents() {
  std::vector<std::pair<pid_t, pid_t>> list;
  ForEachNumber("/proc", [&](pid_t pid) {
    std::string name;
    char state = 0;
    pid_t parent = 0;
    if (ReadStat(pid, name, state, parent)) list.emplace_back(pid, parent);
  });
  return list;
}

void AppendListedChildren(pid_t pid, std::vector<pid_t>& out) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  ForEachNumber(tasks, [&](pid_t task) {
    std::string text;
    if (!ReadProcFile(tasks + "/" + std::to_string(task) + "/children", std::size_t{1} << 20,
                      text)) {
      return;
    }
    const char* at = text.c_str();
    for (;;) {
      char* end = nullptr;
      const long child = std::strtol(at, &end, 10);
      if (end == at) return;
      out.push_back(static_cast<pid_t>(child));
      at = end;
    }
  });
}

}  // namespace

bool BecomeSubreaper() { return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0; }

bool TieToParent(pid_t parent, int signal) {
  return prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) == 0 && getppid() == parent;
}

void NameProcess(const char* name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> out;
  if (KernelListsChildren()) {
    AppendListedChildren(pid, out);
    return out;
  }
  for (const auto& [child, parent] : AllParents()) {
    if (parent == pid) out.push_back(child);
  }
  return out;
}

std::vector<pid_t> DescendantsOf(pid_t pid) {
  std::vector<pid_t> out;
  if (KernelListsChildren()) {
    AppendListedChildren(pid, out);
    for (std::size_t i = 0; i < out.size(); ++i) AppendListedChildren(out[i], out);
    return out;
  }
  const auto parents = AllParents();
  for (std::size_t i = 0; i <= out.size(); ++i) {
    const pid_t of = i == 0 ? pid : out[i - 1];
    for (const auto& [child, parent] : parents) {
      if (parent == of && child != pid) out.push_back(child);
    }
  }
  return out;
}

bool ReadProcessInfo(pid_t pid, ProcessInfo& info) {
  char state = 0;
  pid_t parent = 0;
  if (!ReadStat(pid, info.name, state, parent)) return false;
  info.zombie = state == 'Z' || state == 'X';
  return true;
}

std::vector<pid_t> ProcessesWithEnvironment(const std::vector<std::string>& entries) {
  std::vector<pid_t> out;
  ForEachNumber("/proc", [&](pid_t pid) {
    std::string text;
    if (pid == getpid() ||
        !ReadProcFile("/proc/" + std::to_string(pid) + "/environ", kMaxEnvironment, text)) {
      return;
    }
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::string_view entry = rest.substr(0, rest.find('\0'));
      if (std::find(entries.begin(), entries.end(), entry) != entries.end()) {
        out.push_back(pid);
        return;
      }
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    }
  });
  return out;
}

}  // namespace gpulayer
