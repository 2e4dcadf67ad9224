#include "base/random.h"

#include <openssl/rand.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.h"

namespace gpulayer {

std::string RandomBytes(std::size_t n) {
  std::string bytes(n, '\0');
  if (n > 0 &&
      RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(n)) != 1) {
    std::fputs("gpulayer: no entropy from the system\n", stderr);
    std::abort();
  }
  return bytes;
}

std::string RandomHex(std::size_t n_bytes) { return HexEncode(RandomBytes(n_bytes)); }

}  // namespace gpulayer
