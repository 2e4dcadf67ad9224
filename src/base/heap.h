// The heap of a program that moves many bytes.
#ifndef GPULAYER_BASE_HEAP_H_
#define GPULAYER_BASE_HEAP_H_

namespace gpulayer {

// Keeps up to 32 MiB of freed memory at the end of each of malloc's arenas (glibc has up to eight a
// processor) for the next message. Else glibc gives the buffers of each message back to the kernel
// and takes them anew, page fault by page fault: a third of the time of a 1 GiB transfer. For
// main() of a program of ours, before threads start; a library leaves its user's heap alone.
// Nothing where there is no such setting.
void KeepFreedBuffers();

}  // namespace gpulayer

#endif  // GPULAYER_BASE_HEAP_H_
