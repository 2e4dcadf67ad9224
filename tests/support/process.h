// A program that a test starts and ends itself.
#ifndef GPULAYER_TESTS_SUPPORT_PROCESS_H_
#define GPULAYER_TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace gpulayer::testing {

// Threads: one at a time. The destructor kills what still runs and reaps it.
class Process {
 public:
  struct Options {
    std::vector<std::string> argv;
    std::vector<std::string> env;  // "K=V", added to (and before) this process's own
    std::string cwd;               // empty: this process's
    std::string stdout_file;       // empty: /dev/null
    std::string stderr_file;
    std::string stdin_file;  // empty: /dev/null
  };
  static Result<Process> Start(const Options& options);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  bool running();
  // Exit code, 128 + N after signal N; nullopt: still running when the time was over.
  std::optional<int> Wait(std::chrono::milliseconds patience = std::chrono::seconds(30));
  void Kill();  // SIGKILL, then reaps

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  bool Reap(int options);
  pid_t pid_ = -1;
  std::optional<int> code_;
};

// Runs to its end and gives what it wrote: for the command line as a person sees it.
struct Finished {
  int code = -1;  // -1: did not end in time and was killed
  std::string out;
  std::string err;
};
Finished RunToEnd(Process::Options options,
                  std::chrono::milliseconds patience = std::chrono::seconds(60));

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_PROCESS_H_
