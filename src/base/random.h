// Randomness from the system's entropy: ids, secrets, jitter. Never used for a scheduling decision.
#ifndef GPULAYER_BASE_RANDOM_H_
#define GPULAYER_BASE_RANDOM_H_

#include <cstddef>
#include <string>

namespace gpulayer {

std::string RandomBytes(std::size_t n);  // aborts if the system has no entropy to give
std::string RandomHex(std::size_t n_bytes);

}  // namespace gpulayer

#endif  // GPULAYER_BASE_RANDOM_H_
