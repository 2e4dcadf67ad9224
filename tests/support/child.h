// A process of the test's own, whose lines it reads; killed and reaped at the end at the latest.
#ifndef GPULAYER_TESTS_SUPPORT_CHILD_H_
#define GPULAYER_TESTS_SUPPORT_CHILD_H_

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/fs.h"

extern char** environ;

namespace gpulayer::testing {

class Child {
 public:
  // `extra_env`: "NAME=value". A program that cannot be started gives no lines.
  explicit Child(const std::vector<std::string>& argv,
                 const std::vector<std::string>& extra_env = {}) {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    output_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    std::vector<char*> args;
    for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
    args.push_back(nullptr);
    std::vector<char*> env;
    for (const std::string& var : extra_env) env.push_back(const_cast<char*>(var.c_str()));
    for (char** var = environ; *var != nullptr; ++var) env.push_back(*var);
    env.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    if (posix_spawn(&pid_, args[0], &actions, nullptr, args.data(), env.data()) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

  // The next whole line without its end; empty once there is none.
  std::string ReadLine() {
    for (;;) {
      if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      char piece[4096];
      const Result<std::size_t> n = ReadSome(output_.get(), piece, sizeof piece);
      if (!n.ok() || *n == 0) return "";
      buffer_.append(piece, *n);
    }
  }

  // SIGKILL, then Wait(). What it wrote before can still be read.
  int Kill() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    return Wait();
  }

  // The wait status; -1 if there is no process (any more).
  int Wait() {
    if (pid_ <= 0) return -1;
    int status = -1;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
  std::string buffer_;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_CHILD_H_
