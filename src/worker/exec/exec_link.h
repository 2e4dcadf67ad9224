// Reaching gpulayer-exec: its socket, and starting it.
#ifndef GPULAYER_WORKER_EXEC_EXEC_LINK_H_
#define GPULAYER_WORKER_EXEC_EXEC_LINK_H_

#include <string>

#include "base/clock.h"
#include "base/fs.h"
#include "worker/exec/protocol.h"

namespace gpulayer {

// A connection that has been welcomed, non-blocking. UNAVAILABLE: none listens, or it did not
// answer in time; FAILED_PRECONDITION: it speaks another version. `knows`: what it knows besides
// (protocol.h), may be null.
Result<UniqueFd> ConnectExec(const std::string& data_dir, Duration patience,
                             std::string* knows = nullptr);

// Starts `program` in the background and waits until it listens. `life`, if valid, becomes its
// standard input and it ends when that ends. ALREADY_EXISTS: one runs there already.
Status SpawnExec(const std::string& program, const std::string& data_dir, const UniqueFd& life,
                 Duration patience);

// gpulayer-exec in the folder of the running program.
Result<std::string> ExecBesideUs();

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_EXEC_LINK_H_
