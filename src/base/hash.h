// SHA-256: the name of every blob and tree.
#ifndef GPULAYER_BASE_HASH_H_
#define GPULAYER_BASE_HASH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gpulayer {

// 32 bytes. All zero means "none".
class Hash {
 public:
  static constexpr std::size_t kSize = 32;
  Hash() = default;

  // INVALID_ARGUMENT unless exactly 32 bytes / 64 hex digits.
  static Result<Hash> FromBytes(std::string_view bytes);
  static Result<Hash> FromHex(std::string_view hex);
  static Hash Of(std::string_view data);

  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  std::string hex() const;
  bool empty() const { return *this == Hash(); }

  friend auto operator<=>(const Hash&, const Hash&) = default;
  friend bool operator==(const Hash&, const Hash&) = default;

 private:
  friend class Hasher;
  std::array<std::uint8_t, kSize> bytes_{};
};

// Hashes a stream piece by piece. One thread at a time.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void Update(std::string_view data);
  Hash Finish();  // the object then starts anew

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gpulayer

template <>
struct std::hash<gpulayer::Hash> {
  std::size_t operator()(const gpulayer::Hash& h) const noexcept {
    return std::hash<std::string_view>()(h.bytes());
  }
};

#endif  // GPULAYER_BASE_HASH_H_
