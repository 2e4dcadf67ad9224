#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "base/account_limits.h"
#include "base/fault_point.h"
#include "base/heap.h"
#include "cli/args.h"
#include "cli/print.h"

namespace {

constexpr std::uint64_t kLeastAddressBytes = std::uint64_t{512} << 20;
constexpr std::uint64_t kLeastFiles = 8;

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
  ::signal(SIGXFSZ, SIG_IGN);  // a file too large is an error of write()
  gpulayer::KeepFreedBuffers();
  gpulayer::ArmFaultPointsFromEnvironment();
  const Parsed parsed = Parse(argc, argv);
  if (const gpulayer::Status enough = gpulayer::CheckAccountLimits(kLeastAddressBytes, kLeastFiles);
      parsed.run && !enough.ok()) {
    PrintError(enough);
    return parsed.failed;
  }
  const int code = parsed.run ? parsed.run() : parsed.exit_code;
  const gpulayer::Status written = OutputError();
  if (written.ok()) return code;
  PrintError(written);
  return code == 0 ? parsed.failed : code;
}
