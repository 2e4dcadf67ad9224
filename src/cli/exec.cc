// job exec: a command inside a running job, on this terminal or between pipes.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/args.h"
#include "cli/print.h"
#include "cli/raw_terminal.h"
#include "cli/session.h"
#include "cli/thread.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

// What the input thread is woken by.
constexpr char kResized = 'r';
constexpr char kStop = 's';
std::atomic<int> wake_fd{-1};  // for the handler

extern "C" void OnResize(int) {
  const int saved = errno;
  (void)!::write(wake_fd, &kResized, 1);  // full: it is awake already
  errno = saved;
}

TerminalSize SizeOfTerminal() {
  TerminalSize size;
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 0 && window.ws_col > 0) {
    size = {window.ws_row, window.ws_col};
  }
  return size;
}

// Passes standard input on to its end, and on a terminal that one's size.
class Input {
 public:
  Input(ExecSession& command, bool terminal) : command_(command), terminal_(terminal) {
    if (::pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) return;
    if (terminal_) {
      wake_fd = wake_[1];
      struct sigaction resize = {};
      resize.sa_handler = OnResize;
      resize.sa_flags = SA_RESTART;
      ::sigaction(SIGWINCH, &resize, &before_);
    }
    thread_ = TryThread([this] { Run(); });
  }
  ~Input() {
    if (thread_.joinable()) {
      (void)!::write(wake_[1], &kStop, 1);
      thread_.join();
    }
    if (wake_[0] < 0) return;
    if (terminal_) ::sigaction(SIGWINCH, &before_, nullptr);
    wake_fd = -1;
    ::close(wake_[0]);
    ::close(wake_[1]);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  bool started() const { return thread_.joinable(); }
  bool terminal_gone() const { return terminal_gone_; }

 private:
  void Run() {
    std::vector<char> buffer(std::size_t{64} << 10);
    pollfd sources[] = {{wake_[0], POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    for (;;) {
      if (::poll(sources, 2, -1) < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (sources[0].revents != 0 && !TakeWakes()) return;
      if (sources[1].revents == 0) continue;
      const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n > 0) {
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
        if (!command_.Write(bytes).ok()) return;  // the other thread is told why
        continue;
      }
      if (terminal_) {
        terminal_gone_ = true;
        return command_.HangUp();
      }
      if (!command_.EndInput().ok()) return;
      sources[1].fd = -1;
    }
  }

  // False: told to stop.
  bool TakeWakes() {
    char wakes[64];
    ssize_t n = 0;
    bool resized = false;
    while ((n = ::read(wake_[0], wakes, sizeof wakes)) > 0) {
      const std::string_view all(wakes, static_cast<std::size_t>(n));
      if (all.find(kStop) != std::string_view::npos) return false;
      resized = true;
    }
    return !resized || command_.Resize(SizeOfTerminal()).ok();
  }

  ExecSession& command_;
  const bool terminal_;
  int wake_[2] = {-1, -1};
  struct sigaction before_ = {};
  std::atomic<bool> terminal_gone_{false};
  std::thread thread_;
};

// The exit code, and what is to be said once the terminal is as it was.
struct End {
  int code = 0;
  std::vector<std::string> notes = {};
};

// `after`: what became of the command and the job when this leaves first.
End Follow(const Session& session, ExecSession& command, bool terminal, const std::string& after) {
  // A far terminal's bytes are for this one; elsewhere they are as those of `job logs`.
  ByteSink out = terminal ? ByteSink(STDOUT_FILENO, false) : ByteSink(STDOUT_FILENO);
  ByteSink err(STDERR_FILENO);
  Status failed;
  bool over = false;
  bool terminal_gone = false;
  {
    Input input(command, terminal);
    if (!input.started()) return {kCouldNot, {"no thread is to be had", after}};
    while (!over) {
      Result<std::optional<ExecPiece>> piece = command.Read();
      if (!piece.ok()) {
        failed = piece.status();
        break;
      }
      over = !piece->has_value();
      if (over) break;
      if (!out.Write((*piece)->out) || !err.Write((*piece)->err)) break;
    }
    if (!over) command.HangUp();
    terminal_gone = input.terminal_gone();
  }
  if (!terminal) out.Finish();
  err.Finish();
  if (session.left() != 0) return {128 + session.left(), {after}};
  if (terminal_gone) return {128 + SIGHUP, {after}};
  for (const ByteSink* sink : {&out, &err}) {
    if (sink->error() == 0) continue;
    // As with `job logs`: `| head` has seen enough.
    if (sink->error() == EPIPE) return {128 + SIGPIPE};
    return {kCouldNot, {WriteErrorText(sink->fd(), sink->error()), after}};
  }
  if (!failed.ok()) return {kCouldNot, {Printable(failed.message()), after}};
  const ExecOutcome& outcome = command.outcome();
  if (outcome.error.empty()) return {outcome.shell_exit_code};
  return {outcome.shell_exit_code, {Printable(outcome.error)}};
}

}  // namespace

int RunJobExec(const ExecArgs& args) {
  Session session;
  Result<Client> client = Client::Connect(session.Options(args.target));
  if (!client.ok()) {
    if (session.left() != 0) return 128 + session.left();
    PrintError(client.status());
    return kCouldNot;
  }
  ExecOptions options;
  options.task = args.task;
  options.command = args.command;
  const bool terminal = IsTerminal(STDIN_FILENO) && IsTerminal(STDOUT_FILENO);
  if (terminal) {
    options.terminal = SizeOfTerminal();
    if (const char* term = std::getenv("TERM")) options.term = term;
  }
  Result<ExecSession> command = client->Exec(args.job, options);
  if (!command.ok()) {
    if (session.left() != 0) return 128 + session.left();
    PrintError(command.status());
    return kCouldNot;
  }
  const std::string after = "the command was ended; job " + std::to_string(args.job) + " goes on";
  End end;
  {
    std::optional<RawTerminal> raw;
    if (terminal) raw.emplace();
    end = Follow(session, *command, terminal, after);
  }
  for (const std::string& note : end.notes) PrintNote(note);
  return end.code;
}

}  // namespace gpulayer::cli
