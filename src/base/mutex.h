// std::mutex with clang's thread-safety annotations; the clang build makes a broken promise an
// error. std::mutex underneath, not abseil's: the thread sanitizer understands it.
#ifndef GPULAYER_BASE_MUTEX_H_
#define GPULAYER_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define GPULAYER_TSA_(x) __attribute__((x))
#else
#define GPULAYER_TSA_(x)
#endif

#define GPULAYER_GUARDED_BY(m) GPULAYER_TSA_(guarded_by(m))
#define GPULAYER_REQUIRES(...) GPULAYER_TSA_(requires_capability(__VA_ARGS__))
#define GPULAYER_EXCLUDES(...) GPULAYER_TSA_(locks_excluded(__VA_ARGS__))

namespace gpulayer {

class GPULAYER_TSA_(capability("mutex")) Mutex {
 public:
  void Lock() GPULAYER_TSA_(acquire_capability()) { mutex_.lock(); }
  void Unlock() GPULAYER_TSA_(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class GPULAYER_TSA_(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GPULAYER_TSA_(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() GPULAYER_TSA_(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

  void Wait(Mutex& mutex) GPULAYER_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False: the time was over first.
  template <class Rep, class Period>
  bool WaitFor(Mutex& mutex, std::chrono::duration<Rep, Period> d) GPULAYER_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool notified = cv_.wait_for(lock, d) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }

 private:
  std::condition_variable cv_;
};

}  // namespace gpulayer

#endif  // GPULAYER_BASE_MUTEX_H_
