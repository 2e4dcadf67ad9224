#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "worker/exec/memory_cgroup.h"

namespace gpulayer {
namespace {

constexpr char kAside[] = "gpulayer-exec";

std::string ReadText(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(fd);
  return text;
}

bool WriteText(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool good = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(fd);
  errno = error;
  return good;
}

std::vector<std::string> Words(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) out.push_back(word);
  return out;
}

// Of the line that begins with `name`, which ends in a blank; 0: there is none.
std::int64_t ValueOf(const std::string& text, const std::string& name) {
  for (const std::string& line : Words(text, '\n')) {
    if (line.compare(0, name.size(), name) != 0) continue;
    return std::strtoll(line.c_str() + name.size(), nullptr, 10);
  }
  return 0;
}

bool HasWord(const std::string& text, char separator, const std::string& wanted) {
  for (std::string word : Words(text, separator)) {
    while (!word.empty() && word.back() == '\n') word.pop_back();
    if (word == wanted) return true;
  }
  return false;
}

// The path of our group in the hierarchy that has `controller`; empty controller: version 2.
std::string OwnGroup(const std::string& root, const std::string& controller) {
  for (const std::string& line : Words(ReadText(root + "/proc/self/cgroup"), '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const bool ours = controller.empty() ? names.empty() : HasWord(names, ',', controller);
    if (ours) return line.substr(second + 1);
  }
  return {};
}

// Its folder: where the hierarchy is mounted (of which that may be a part) and the path below it.
std::string OwnFolder(const std::string& root, const std::string& controller) {
  const std::string group = OwnGroup(root, controller);
  if (group.empty()) return {};
  for (const std::string& line : Words(ReadText(root + "/proc/self/mountinfo"), '\n')) {
    // 36 35 98:0 /part /where options tags - type source super
    const std::vector<std::string> words = Words(line, ' ');
    std::size_t dash = 6;
    while (dash < words.size() && words[dash] != "-") ++dash;
    if (dash + 3 >= words.size()) continue;
    const bool wanted = controller.empty() ? words[dash + 1] == "cgroup2"
                                           : words[dash + 1] == "cgroup" &&
                                                 HasWord(words[dash + 3], ',', controller);
    if (!wanted) continue;
    const std::string part = words[3] == "/" ? "" : words[3];
    if (group.compare(0, part.size(), part) != 0) continue;
    const std::string below = group.substr(part.size());
    return root + words[4] + (below == "/" ? "" : below);
  }
  return {};
}

std::string ControlOf(const CgroupPlace& place) { return place.dir + "/cgroup.subtree_control"; }

std::string Error(const std::string& path) { return path + ": " + std::strerror(errno); }

}  // namespace

CgroupPlace FindCgroupPlace(const std::string& root) {
  CgroupPlace place;
  std::string dir = OwnFolder(root, "memory");
  if (dir.empty()) {
    dir = OwnFolder(root, "");
    place.unified = true;
    if (!dir.empty() && !HasWord(ReadText(dir + "/cgroup.controllers"), ' ', "memory")) dir.clear();
  }
  if (dir.empty()) {
    place.why_not = "there is no memory cgroup";
  } else if (access(dir.c_str(), W_OK) != 0) {
    place.why_not = Error(dir);
  } else {
    place.dir = dir;
  }
  return place;
}

std::string WhyNoMemoryLimit(const CgroupPlace& place) {
  if (place.dir.empty()) return place.why_not;
  if (!place.unified || HasWord(ReadText(ControlOf(place)), ' ', "memory")) return {};
  return "its cgroup is of version 2 and holds other processes";
}

void MoveAside(CgroupPlace& place) {
  if (WhyNoMemoryLimit(place).empty() || place.dir.empty()) return;
  const std::string control = ControlOf(place);
  const std::string aside = place.dir + "/" + kAside;
  const std::string self = std::to_string(getpid());
  const bool made = mkdir(aside.c_str(), 0755) == 0 || errno == EEXIST;
  if (made && WriteText(aside + "/cgroup.procs", self) && WriteText(control, "+memory")) return;
  place.why_not = Error(control);  // others are in our group
  WriteText(place.dir + "/cgroup.procs", self);
  rmdir(aside.c_str());
  place.dir.clear();
}

int MemoryCgroup::Make(std::int64_t bytes) {
  if (mkdir(path_.c_str(), 0755) != 0) return -1;
  const std::string limit = std::to_string(bytes);
  const bool limited = unified_ ? WriteText(path_ + "/memory.max", limit)
                                : WriteText(path_ + "/memory.limit_in_bytes", limit);
  // A machine without swap accounting has no such file.
  if (unified_) {
    (void)WriteText(path_ + "/memory.swap.max", "0");
  } else {
    (void)WriteText(path_ + "/memory.memsw.limit_in_bytes", limit);
  }
  const int fd = limited ? Open() : -1;
  if (fd < 0) Remove();
  return fd;
}

int MemoryCgroup::Open() const {
  return open((path_ + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
}

// A machine without memory kills in a group too, whatever the group's limit: only where that was
// reached it is to blame. Version 1 does not tell: its failcnt stays 0 under some kernels (6.18).
bool MemoryCgroup::ReachedItsLimit() const {
  return !unified_ || ValueOf(ReadText(path_ + "/memory.events"), "oom ") > 0;
}

std::int64_t MemoryCgroup::OomKills() const {
  if (!ReachedItsLimit()) return 0;
  return ValueOf(ReadText(path_ + (unified_ ? "/memory.events" : "/memory.oom_control")),
                 "oom_kill ");
}

void MemoryCgroup::Remove() const { rmdir(path_.c_str()); }

std::string CgroupPrefix() {
  struct stat st{};
  if (stat(".", &st) != 0) return "gpulayer-0-";
  std::ostringstream out;
  out << "gpulayer-" << std::hex << st.st_dev << "." << st.st_ino << "-";
  return out.str();
}

void SweepCgroups(const CgroupPlace& place, const std::string& prefix) {
  DIR* dir = place.dir.empty() ? nullptr : opendir(place.dir.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) != 0) continue;
    rmdir((place.dir + "/" + entry->d_name).c_str());
  }
  closedir(dir);
}

}  // namespace gpulayer
