// The terminal of standard input for a program far away: each key goes there as it is, Ctrl-C too.
//
// Threads: made and destroyed by one; Restore() from any, and from a signal handler.
#ifndef GPULAYER_CLI_RAW_TERMINAL_H_
#define GPULAYER_CLI_RAW_TERMINAL_H_

namespace gpulayer::cli {

class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // For who ends the process: as it was before. Nothing happens if there is no such object.
  static void Restore();
};

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_RAW_TERMINAL_H_
