// What a program is started from: the attempt's `spec` and its secrets. For whoever starts one in
// it.
//
// Errors: as errno; 0: none. The C++ library only.
#ifndef GPULAYER_WORKER_EXEC_SPEC_INPUT_H_
#define GPULAYER_WORKER_EXEC_SPEC_INPUT_H_

#include <string>

#include "worker/exec/attempt_format.h"

namespace gpulayer {

int ReadSpecAt(int dir_fd, AttemptSpec& spec);  // EBADMSG: damaged

// Into its environment, from a descriptor of EncodeSecrets, which may be read again; -1: none came.
// ENOKEY: not those that the spec has.
int AddSecrets(int secrets_fd, AttemptSpec& spec);

// "NAME=value", in the place of what has that name.
void SetVariable(AttemptSpec& spec, std::string entry);

void WipeEnvironment(AttemptSpec& spec);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_SPEC_INPUT_H_
