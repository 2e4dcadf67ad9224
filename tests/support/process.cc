#include "support/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/fs.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

extern char** environ;

namespace gpulayer::testing {

Result<Process> Process::Start(const Options& options) {
  std::vector<std::string> env = options.env;
  for (char** entry = environ; *entry != nullptr; ++entry) env.emplace_back(*entry);
  // The first of two equal names wins in what follows: drop the inherited ones that are set anew.
  std::vector<char*> envp;
  for (std::size_t i = 0; i < env.size(); ++i) {
    const std::string name = env[i].substr(0, env[i].find('=') + 1);
    bool repeated = false;
    for (std::size_t j = 0; j < i && j < options.env.size(); ++j) {
      repeated = repeated || env[j].starts_with(name);
    }
    if (!repeated) envp.push_back(env[i].data());
  }
  envp.push_back(nullptr);
  std::vector<std::string> args = options.argv;
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const auto open_as = [&](int fd, const std::string& file, int flags) {
    posix_spawn_file_actions_addopen(&actions, fd, file.empty() ? "/dev/null" : file.c_str(), flags,
                                     0600);
  };
  open_as(0, options.stdin_file, O_RDONLY);
  open_as(1, options.stdout_file, O_WRONLY | O_CREAT | O_APPEND);
  open_as(2, options.stderr_file, O_WRONLY | O_CREAT | O_APPEND);
  if (!options.cwd.empty()) posix_spawn_file_actions_addchdir_np(&actions, options.cwd.c_str());
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus("start " + options.argv[0], error);
  return Process(pid);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), code_(other.code_) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    if (pid_ > 0) Kill();
    pid_ = std::exchange(other.pid_, -1);
    code_ = other.code_;
  }
  return *this;
}

Process::~Process() {
  if (pid_ > 0) Kill();
}

void Process::Signal(int signal) const {
  if (pid_ > 0 && !code_) kill(pid_, signal);
}

bool Process::Reap(int options) {
  if (code_ || pid_ <= 0) return true;
  int status = 0;
  if (waitpid(pid_, &status, options) != pid_) return false;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

bool Process::running() { return !Reap(WNOHANG); }

std::optional<int> Process::Wait(std::chrono::milliseconds patience) {
  Eventually([this] { return Reap(WNOHANG); }, patience);
  return code_;
}

void Process::Kill() {
  Signal(SIGKILL);
  Reap(0);
}

Finished RunToEnd(Process::Options options, std::chrono::milliseconds patience) {
  TempDir dir;
  options.stdout_file = dir / "out";
  options.stderr_file = dir / "err";
  Finished finished;
  Result<Process> process = Process::Start(options);
  if (!process.ok()) {
    finished.err = process.status().ToString();
    return finished;
  }
  finished.code = process->Wait(patience).value_or(-1);
  process->Kill();
  finished.out = ReadFile(options.stdout_file).value_or("");
  finished.err = ReadFile(options.stderr_file).value_or("");
  return finished;
}

}  // namespace gpulayer::testing
