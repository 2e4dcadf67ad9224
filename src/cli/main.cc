#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fault_point.h"
#include "base/heap.h"
#include "cli/args.h"
#include "cli/print.h"

namespace {

// A standard descriptor that is closed would be given to the next file or socket, and what is
// printed would go there. Opened the wrong way round, so that using it stays an error. Before
// anything else: libraries open files when they are loaded.
void HoldStandardDescriptors(int, char**, char**) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) {
      (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

[[gnu::used,
  gnu::section(".preinit_array")]] void (*const kFirst)(int, char**,
                                                        char**) = HoldStandardDescriptors;

}  // namespace

int main(int argc, char** argv) {
  using namespace gpulayer::cli;
  // Of what goes wrong on a link we say more ourselves than gRPC's own lines. No daemon inherits it.
  ::setenv("GRPC_VERBOSITY", "NONE", 0);
  gpulayer::KeepFreedBuffers();
  gpulayer::ArmFaultPointsFromEnvironment();
  const Parsed parsed = Parse(argc, argv);
  const int code = parsed.run ? parsed.run() : parsed.exit_code;
  const gpulayer::Status written = OutputError();
  if (written.ok()) return code;
  PrintError(written);
  return code == 0 ? parsed.failed : code;
}
