#include "base/heap.h"

#include <cstdlib>  // defines __GLIBC__ where the library is glibc

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace gpulayer {

void KeepFreedBuffers() {
#ifdef __GLIBC__
  constexpr int kBytes = 32 << 20;  // glibc takes no larger threshold for mmap
  mallopt(M_MMAP_THRESHOLD, kBytes);
  mallopt(M_TRIM_THRESHOLD, kBytes);
#endif
}

}  // namespace gpulayer
