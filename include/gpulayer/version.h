// Which version a program was compiled with, and which it runs with. Source compatible within a
// major version, binary compatible within a minor one (the library's file name carries both
// numbers).
#ifndef GPULAYER_VERSION_H_
#define GPULAYER_VERSION_H_

#include "gpulayer/export.h"

#define GPULAYER_VERSION_MAJOR 0
#define GPULAYER_VERSION_MINOR 1
#define GPULAYER_VERSION_PATCH 0

namespace gpulayer {
GPULAYER_API_BEGIN

// "0.1.0" of the library that is loaded. Never fails, never waits; any thread.
GPULAYER_EXPORT const char* Version();

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_VERSION_H_
