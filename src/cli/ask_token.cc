#include "cli/ask_token.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cstddef>
#include <iostream>
#include <iterator>

#include "gpulayer/host.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
termios before;  // for the handler

extern "C" void RestoreAndEnd(int signal) {
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
  ::raise(signal);  // its action is the default one again
}

// While it lives the terminal of standard input shows nothing but the line's end.
class NoEcho {
 public:
  NoEcho() : off_(::tcgetattr(STDIN_FILENO, &before) == 0) {
    if (!off_) return;
    struct sigaction restore = {};
    restore.sa_handler = RestoreAndEnd;
    restore.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      ::sigaction(kSignals[i], nullptr, &actions_[i]);
      if (actions_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &restore, nullptr);
    }
    termios quiet = before;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    quiet.c_lflag |= ECHONL;
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
  }
  ~NoEcho() {
    if (!off_) return;
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      ::sigaction(kSignals[i], &actions_[i], nullptr);
    }
  }
  NoEcho(const NoEcho&) = delete;
  NoEcho& operator=(const NoEcho&) = delete;

 private:
  const bool off_;
  struct sigaction actions_[std::size(kSignals)] = {};
};

}  // namespace

Result<std::string> AskToken(const std::string& given) {
  if (given != "-" || ::isatty(STDIN_FILENO) == 0) return ReadToken(given);
  const NoEcho hidden;
  std::cerr << "token (not shown): " << std::flush;
  return ReadToken(given);
}

Result<std::pair<std::string, std::string>> AskSecret(const std::string& given) {
  if (::isatty(STDIN_FILENO) == 0) return ReadSecret(given);
  const NoEcho hidden;
  std::cerr << Printable(given.substr(0, given.find('='))) << " (not shown): " << std::flush;
  return ReadSecret(given);
}

}  // namespace gpulayer::cli
