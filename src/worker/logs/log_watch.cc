#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <unordered_map>

#include "base/log.h"
#include "base/mutex.h"
#include "worker/exec/attempt_dir.h"
#include "worker/logs/log_tail.h"

namespace gpulayer {
namespace {

using std::chrono::milliseconds;

// How late a log may be noticed that inotify does not watch.
constexpr milliseconds kPollPause{20};
constexpr std::uint32_t kEvents = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;

class InotifyWatch final : public LogWatch {
 public:
  InotifyWatch()
      : inotify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!inotify_.valid()) {
      LogWarning(std::string("watch logs: inotify: ") + std::strerror(errno) +
                 ". Looking at them every 20 ms.");
    }
  }

  void Add(const AttemptId& id, const std::string& attempt_dir) override {
    // Adding a watch may look up a path on a slow disk, so no lock is held. Nobody else adds this
    // id meanwhile.
    const int watch =
        inotify_.valid() ? inotify_add_watch(inotify_.get(), attempt_dir.c_str(), kEvents) : -1;
    {
      MutexLock lock(mutex_);
      if (watch >= 0) {
        watched_[watch] = id;
        watches_[id] = watch;
      } else {
        polled_.insert(id);
      }
      news_.insert(id);  // what happened before the watch
    }
    Wake();
  }

  void Remove(const AttemptId& id) override {
    int watch = -1;
    {
      MutexLock lock(mutex_);
      news_.erase(id);
      polled_.erase(id);
      const auto it = watches_.find(id);
      if (it == watches_.end()) return;
      watch = it->second;
      watches_.erase(it);
      watched_.erase(watch);
    }
    inotify_rm_watch(inotify_.get(), watch);  // fails if the folder is gone, and the watch with it
  }

  Result<std::vector<AttemptId>> Wait(Duration patience) override {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
      TakeEvents();
      bool polled = false;
      {
        MutexLock lock(mutex_);
        if (closed_) return Cancelled("watch logs: closed");
        if (!news_.empty()) {
          std::vector<AttemptId> out(news_.begin(), news_.end());
          news_.clear();
          return out;
        }
        polled = !polled_.empty();
      }
      auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left <= milliseconds::zero()) return std::vector<AttemptId>();
      if (polled) left = std::min(left, kPollPause);
      pollfd fds[] = {{inotify_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      const auto ms = std::min<std::int64_t>(left.count(), 1'000'000'000);
      const int ready = poll(fds, 2, static_cast<int>(ms));
      std::uint64_t count = 0;
      if (fds[1].revents != 0) {
        [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof(count));
      }
      if (ready == 0 && polled) {
        MutexLock lock(mutex_);
        news_.insert(polled_.begin(), polled_.end());
      }
    }
  }

  void Close() override {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    Wake();
  }

 private:
  void Wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof(one));
  }

  void TakeEvents() {
    alignas(inotify_event) char buffer[16 * 1024];
    for (;;) {
      const ssize_t n = read(inotify_.get(), buffer, sizeof(buffer));
      if (n <= 0) return;
      MutexLock lock(mutex_);
      for (ssize_t at = 0; at < n;) {
        inotify_event event{};
        std::memcpy(&event, buffer + at, sizeof(event));
        const char* name = event.len > 0 ? buffer + at + sizeof(event) : "";
        at += static_cast<ssize_t>(sizeof(event) + event.len);
        Note(event, name);
      }
    }
  }

  void Note(const inotify_event& event, const char* name) GPULAYER_REQUIRES(mutex_) {
    if (event.mask & IN_Q_OVERFLOW) {  // anything may have happened
      for (const auto& [id, watch] : watches_) news_.insert(id);
      return;
    }
    const auto it = watched_.find(event.wd);
    if (it == watched_.end()) return;
    // The log bears a longer name until its writer has made it known.
    const bool log = std::strncmp(name, kLogFile, std::strlen(kLogFile)) == 0;
    if (log || std::strcmp(name, kStatusFile) == 0) news_.insert(it->second);
  }

  const UniqueFd inotify_;
  const UniqueFd wake_;
  Mutex mutex_;
  std::unordered_map<int, AttemptId> watched_ GPULAYER_GUARDED_BY(mutex_);
  std::unordered_map<AttemptId, int> watches_ GPULAYER_GUARDED_BY(mutex_);
  std::set<AttemptId> polled_ GPULAYER_GUARDED_BY(mutex_);  // for which there was no watch
  std::set<AttemptId> news_ GPULAYER_GUARDED_BY(mutex_);
  bool closed_ GPULAYER_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<LogWatch> LogWatch::Create() { return std::make_unique<InotifyWatch>(); }

}  // namespace gpulayer
