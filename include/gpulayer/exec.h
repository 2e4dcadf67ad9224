// A command inside a running job: in its folder, with its environment and its devices.
//
//   gpulayer::ExecOptions options;
//   options.command = {"nvidia-smi"};
//   gpulayer::Result<gpulayer::ExecSession> session = client.Exec(42, options);
//   for (;;) {
//     gpulayer::Result<std::optional<gpulayer::ExecPiece>> piece = session->Read();
//     if (!piece.ok() || !piece->has_value()) break;
//     std::cout << (*piece)->out;
//   }
#ifndef GPULAYER_EXEC_H_
#define GPULAYER_EXEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulayer/export.h"
#include "gpulayer/status.h"

namespace gpulayer {
GPULAYER_API_BEGIN

struct TerminalSize {
  std::int32_t rows = 24;
  std::int32_t columns = 80;
};

struct ExecOptions {
  std::optional<std::int64_t> task;      // none: the job's only one
  std::vector<std::string> command;      // program and arguments, bytes
  std::optional<TerminalSize> terminal;  // it has a terminal of that size; none: pipes
  std::string term;                      // with a terminal: the TERM there; empty: the job's own
};

// What it wrote: one of the two is empty. On a terminal all of it is `out`.
struct ExecPiece {
  std::string out;
  std::string err;
};

struct ExecOutcome {
  std::optional<std::int32_t> exit_code;  // none after a signal
  std::optional<std::int32_t> signal;
  // Not empty: it was not started, or its end is not known; why. exit_code is 125, 126 or 127 then.
  std::string error;
  std::int32_t shell_exit_code = 0;  // exit_code, or 128 + signal
};

// A command that runs. Whoever lets go of it ends the command; the job goes on.
// Threads:   Read from one thread at a time; meanwhile all others, but move and destruction, from
//            any. Not moved while another thread is in it.
// Ownership: keeps the connection alive.
// Blocking:  Read waits for output or the end; Write, EndInput and Resize until the connection takes
//            it: as long as the command does not read. HangUp and the interrupt of ClientOptions end
//            any wait.
// Errors:    of Read: UNAVAILABLE: the connection, the server or the worker was lost; CANCELLED:
//            hung up or interrupted. After one the same again. Of the writing calls:
//            FAILED_PRECONDITION: nothing is taken any more, Read says why.
class GPULAYER_EXPORT ExecSession {
 public:
  ExecSession(ExecSession&&) noexcept;
  ExecSession& operator=(ExecSession&&) noexcept;
  ~ExecSession();  // HangUp

  Status Write(std::string_view bytes);  // to its standard input
  Status EndInput();                     // once; nothing may be written after
  Status Resize(const TerminalSize& size);
  // The next piece, as written; nullopt: the command is over, outcome() says how.
  Result<std::optional<ExecPiece>> Read();
  const ExecOutcome& outcome() const;  // REQUIRES: Read returned nullopt
  void HangUp();                       // ends the command; may be called again

  class Impl;

 private:
  friend class Client;
  explicit ExecSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_EXEC_H_
