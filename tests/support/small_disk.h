// A file system of a few MiB that fills up for real. Where none can be mounted (it takes root) a test skips with
// SkipReason().
#ifndef GPULAYER_TESTS_SUPPORT_SMALL_DISK_H_
#define GPULAYER_TESTS_SUPPORT_SMALL_DISK_H_

#include <fcntl.h>
#include <sys/mount.h>

#include <cerrno>
#include <string>

#include "support/temp_dir.h"

namespace gpulayer::testing {

class SmallDisk {
 public:
  explicit SmallDisk(const std::string& size) {
    mounted_ = mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    if (!mounted_) why_ = ErrnoStatus("mount a small file system", errno).message();
  }
  ~SmallDisk() {
    if (mounted_) umount2(dir_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& SkipReason() const { return why_; }  // what mount() said
  std::string operator/(std::string_view name) const { return dir_ / name; }

  // Takes all the room that is left but `left_bytes`; MakeRoom() gives it back.
  Status Fill(std::int64_t left_bytes = 0) {
    GPULAYER_ASSIGN_OR_RETURN(const std::int64_t free, FreeBytes(dir_.path()));
    const std::string block(4096, 'x');
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(dir_ / "filler", O_WRONLY | O_CREAT));
    for (std::int64_t n = 0; n + 4096 <= free - left_bytes; n += 4096) {
      GPULAYER_RETURN_IF_ERROR(WriteAll(fd.get(), block));
    }
    return OkStatus();
  }
  Status MakeRoom() { return RemoveTree(dir_ / "filler"); }

 private:
  TempDir dir_;
  bool mounted_ = false;
  std::string why_;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_SMALL_DISK_H_
