// A limit on the memory of one attempt, where the kernel lets us set one: a cgroup of version 1 or 2
// below our own one, so that no limit from above is escaped. Anywhere else nothing happens, and the
// memory of a job is a reservation.
//
// Threads: one. Blocking: a few files of the kernel's. Links the C++ library only.
#ifndef GPULAYER_WORKER_EXEC_MEMORY_CGROUP_H_
#define GPULAYER_WORKER_EXEC_MEMORY_CGROUP_H_

#include <cstdint>
#include <string>

namespace gpulayer {

// Where attempts' cgroups are made.
struct CgroupPlace {
  std::string dir;       // empty: nowhere
  std::string why_not;   // then
  bool unified = false;  // version 2
};

// Of this process. Of version 2 what the kernel says once MoveAside() has succeeded.
// `root`: in front of /proc and of mount points, for tests.
CgroupPlace FindCgroupPlace(const std::string& root = "");
// Why an attempt that a worker of this process's group starts has no limit; empty: it has.
std::string WhyNoMemoryLimit(const CgroupPlace& place);
// Version 2 gives memory limits only below a group without processes: moves this process into a group
// of its own there. No effect of version 1, and where it cannot be done: then the place is nowhere.
void MoveAside(CgroupPlace& place);

class MemoryCgroup {
 public:
  // None yet. `path`: in the place, and of no other attempt.
  explicit MemoryCgroup(std::string path, bool unified)
      : path_(std::move(path)), unified_(unified) {}

  // Makes it, limited to so many bytes of memory and swap. A descriptor (close-on-exec) by which a
  // process that writes "0" joins; -1: there is no limit, and no group.
  int Make(std::int64_t bytes);
  int Open() const;               // another such descriptor; -1: there is no group
  std::int64_t OomKills() const;  // processes that the kernel ended in it, at its limit
  void Remove() const;            // if nothing is in it

 private:
  bool ReachedItsLimit() const;

  std::string path_;
  bool unified_ = false;
};

// "gpulayer-", and what tells the data directory (the working directory) from others on this machine.
std::string CgroupPrefix();
// Removes the empty groups of that prefix.
void SweepCgroups(const CgroupPlace& place, const std::string& prefix);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_MEMORY_CGROUP_H_
