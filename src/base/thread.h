// A thread, or that there is none to be had.
#ifndef GPULAYER_BASE_THREAD_H_
#define GPULAYER_BASE_THREAD_H_

#include <system_error>
#include <thread>
#include <utility>

namespace gpulayer {

// std::thread throws where an account may have no more of them, and nothing of ours throws. Not
// joinable: there is none, and the caller does the work itself.
template <typename Work>
std::thread TryThread(Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace gpulayer

#endif  // GPULAYER_BASE_THREAD_H_
