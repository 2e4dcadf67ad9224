#include "client/local_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.h"
#include "client/paths.h"
#include "client/spawn.h"

namespace gpulayer::client {
namespace {

constexpr auto kStartPatience = std::chrono::seconds(10);
constexpr auto kStopPatience = std::chrono::seconds(8);
// One line of what a descriptor gives; empty: it ended, or nothing came in time.
Result<std::string> ReadLine(int fd, const InterruptPtr& interrupt) {
  const auto end = std::chrono::steady_clock::now() + kStartPatience;
  std::string line;
  while (std::chrono::steady_clock::now() < end) {
    if (Thrown(interrupt)) return Cancelled("local server: interrupted");
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, 50) <= 0) continue;
    char c = 0;
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n, ReadSome(fd, &c, 1));
    if (n == 0) break;
    if (c == '\n') return line;
    line += c;
  }
  return std::string();
}

std::string LastLine(int fd) {
  char buffer[4096];
  const ssize_t n = ::pread(fd, buffer, sizeof buffer, 0);
  if (n <= 0) return "it does not answer";
  std::vector<std::string> lines =
      Split(std::string_view(buffer, static_cast<std::size_t>(n)), '\n');
  while (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  const std::string line = Printable(lines.back());
  const std::string own = "gpulayer-server: ";
  return line.rfind(own, 0) == 0 ? line.substr(own.size()) : line;
}

}  // namespace

Result<std::unique_ptr<LocalServer>> LocalServer::Start(const InterruptPtr& interrupt) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string program, FindProgram("gpulayer-server"));
  std::unique_ptr<LocalServer> server(new LocalServer());
  GPULAYER_ASSIGN_OR_RETURN(Pipe to, MakePipe());
  GPULAYER_ASSIGN_OR_RETURN(Pipe from, MakePipe());
  // What it says of a failed start; later lines are few and nobody's.
  const UniqueFd words(::memfd_create("gpulayer-local", MFD_CLOEXEC));
  if (!words.valid()) return ErrnoStatus("local server", errno);
  SpawnOptions spawn;
  spawn.argv = {program, "--ephemeral"};
  spawn.stdin_fd = to.read_end.get();
  spawn.stdout_fd = from.write_end.get();
  spawn.stderr_fd = words.get();
  GPULAYER_ASSIGN_OR_RETURN(server->pid_, Spawn(spawn));
  server->stdin_ = std::move(to.write_end);
  from.write_end.Reset();
  GPULAYER_ASSIGN_OR_RETURN(const std::string line, ReadLine(from.read_end.get(), interrupt));
  const nlohmann::json ready = nlohmann::json::parse(line, nullptr, false);
  if (!ready.is_object() || !ready.contains("socket") || !ready["socket"].is_string()) {
    return Unavailable("local server: " + LastLine(words.get()));
  }
  server->socket_ = ready["socket"].get<std::string>();
  return server;
}

LocalServer::~LocalServer() {
  stdin_.Reset();  // tells it to end
  const auto end = std::chrono::steady_clock::now() + kStopPatience;
  bool killed = false;
  while (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (!killed && std::chrono::steady_clock::now() >= end) {
      ::kill(pid_, SIGKILL);
      killed = true;
    }
    ::usleep(5000);
  }
}

}  // namespace gpulayer::client
