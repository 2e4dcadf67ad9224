// base/thread.h, which is all in its header: of the rest of base the programs that link the client
// library see nothing.
#ifndef GPULAYER_CLI_THREAD_H_
#define GPULAYER_CLI_THREAD_H_

#include "base/thread.h"

#endif  // GPULAYER_CLI_THREAD_H_
