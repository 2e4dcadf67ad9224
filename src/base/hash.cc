#include "base/hash.h"

#include <openssl/evp.h>

#include <cstring>

#include "base/text.h"

namespace gpulayer {

Result<Hash> Hash::FromBytes(std::string_view bytes) {
  if (bytes.size() != kSize) {
    return InvalidArgument("hash: " + std::to_string(bytes.size()) + " bytes, expected 32");
  }
  Hash h;
  std::memcpy(h.bytes_.data(), bytes.data(), kSize);
  return h;
}

Result<Hash> Hash::FromHex(std::string_view hex) {
  Result<std::string> bytes = HexDecode(hex);
  if (!bytes.ok()) return bytes.status();
  return FromBytes(*bytes);
}

Hash Hash::Of(std::string_view data) {
  Hasher hasher;
  hasher.Update(data);
  return hasher.Finish();
}

std::string Hash::hex() const { return HexEncode(bytes()); }

struct Hasher::State {
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  State() { Reset(); }
  ~State() { EVP_MD_CTX_free(ctx); }
  void Reset() const { EVP_DigestInit_ex(ctx, EVP_sha256(), nullptr); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::Update(std::string_view data) {
  EVP_DigestUpdate(state_->ctx, data.data(), data.size());
}

Hash Hasher::Finish() {
  Hash h;
  EVP_DigestFinal_ex(state_->ctx, h.bytes_.data(), nullptr);
  state_->Reset();
  return h;
}

}  // namespace gpulayer
