#include "cli/raw_terminal.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>

namespace gpulayer::cli {
namespace {

termios before;
std::atomic<bool> raw{false};
struct sigaction quit_before = {};

extern "C" void RestoreAndQuit(int signal) {
  RawTerminal::Restore();
  ::raise(signal);  // its action is the default one again
}

}  // namespace

RawTerminal::RawTerminal() {
  if (::tcgetattr(STDIN_FILENO, &before) != 0) return;
  // The other signals are heard by the Session, which leaves by way of us.
  struct sigaction quit = {};
  quit.sa_handler = RestoreAndQuit;
  quit.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  ::sigaction(SIGQUIT, &quit, &quit_before);
  raw = true;
  termios keys = before;
  ::cfmakeraw(&keys);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
}

RawTerminal::~RawTerminal() {
  if (!raw) return;
  Restore();
  ::sigaction(SIGQUIT, &quit_before, nullptr);
}

void RawTerminal::Restore() {
  if (raw.exchange(false)) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

}  // namespace gpulayer::cli
