// fdatasync of a file that is still written, behind its writer: the one at the end then finds
// little left to wait for.
#ifndef GPULAYER_SERVER_BLOB_SYNC_BEHIND_H_
#define GPULAYER_SERVER_BLOB_SYNC_BEHIND_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <future>
#include <system_error>
#include <utility>

#include "base/fs.h"

namespace gpulayer::internal {

// Threads:   one at a time; the sync itself runs on another.
// Blocking:  Start() and Wait() wait for the sync under way, and so does the destructor.
// Errors:    the kernel tells of bytes that it could not write only once: from the first failure on
//            Wait() says so, whatever file it was.
class SyncBehind {
 public:
  bool busy() const {
    return running_.valid() &&
           running_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }

  // `fd` may be closed meanwhile.
  void Start(const UniqueFd& fd) {
    (void)Wait();
    UniqueFd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) return;  // the sync at the end has more to do
    try {
      running_ = std::async(std::launch::async, [copy = std::move(copy)] {
        return fdatasync(copy.get()) == 0 ? 0 : errno;
      });
    } catch (const std::system_error&) {
      // No thread to be had: as above.
    }
  }

  // 0, or the errno of the first sync that failed.
  int Wait() {
    if (running_.valid()) {
      const int error = running_.get();
      if (error_ == 0) error_ = error;
    }
    return error_;
  }

 private:
  std::future<int> running_;  // its destructor waits
  int error_ = 0;
};

}  // namespace gpulayer::internal

#endif  // GPULAYER_SERVER_BLOB_SYNC_BEHIND_H_
