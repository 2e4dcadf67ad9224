#include "server/security/secret_store.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/log.h"
#include "base/own_file.h"
#include "base/random.h"
#include "base/thread.h"

namespace gpulayer::security {
namespace {

// Do not change: in front of each file, and part of what is sealed.
constexpr std::string_view kMagic = "GLSEAL1\n";
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kTagBytes = 16;
constexpr std::size_t kReferenceBytes = 16;
constexpr std::size_t kMostErases = 1 << 16;  // over it they are done at once
constexpr auto kForEver = std::chrono::hours(24);

struct CipherFree {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, CipherFree>;

const unsigned char* In(std::string_view s) {
  return reinterpret_cast<const unsigned char*>(s.data());
}
unsigned char* Out(std::string& s, std::size_t at = 0) {
  return reinterpret_cast<unsigned char*>(s.data() + at);
}

bool IsReference(std::string_view text) {
  return text.size() == 2 * kReferenceBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// A file under another's name, or of another kind, does not open.
std::string Bound(const std::string& reference) { return std::string(kMagic) + reference; }

Result<std::string> Seal(const std::string& key, const std::string& reference,
                         const std::string& plain) {
  const std::string nonce = RandomBytes(kNonceBytes);
  const std::string bound = Bound(reference);
  std::string sealed(plain.size(), '\0');
  std::string tag(kTagBytes, '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int size = 0;
  const bool good =
      cipher != nullptr &&
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, In(key), In(nonce)) == 1 &&
      EVP_EncryptUpdate(cipher.get(), nullptr, &size, In(bound), static_cast<int>(bound.size())) ==
          1 &&
      EVP_EncryptUpdate(cipher.get(), Out(sealed), &size, In(plain),
                        static_cast<int>(plain.size())) == 1 &&
      EVP_EncryptFinal_ex(cipher.get(), Out(tag), &size) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()) == 1;
  if (!good) return Internal("seal secrets: the cipher failed");
  return std::string(kMagic) + nonce + tag + sealed;
}

std::optional<std::string> Unseal(const std::string& key, const std::string& reference,
                                  std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) return std::nullopt;
  bytes.remove_prefix(kMagic.size());
  if (bytes.size() < kNonceBytes + kTagBytes) return std::nullopt;
  const std::string_view nonce = bytes.substr(0, kNonceBytes);
  std::string tag(bytes.substr(kNonceBytes, kTagBytes));
  const std::string_view sealed = bytes.substr(kNonceBytes + kTagBytes);
  const std::string bound = Bound(reference);
  std::string plain(sealed.size(), '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int size = 0;
  const bool good =
      cipher != nullptr &&
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, In(key), In(nonce)) == 1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &size, In(bound), static_cast<int>(bound.size())) ==
          1 &&
      EVP_DecryptUpdate(cipher.get(), Out(plain), &size, In(sealed),
                        static_cast<int>(sealed.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), Out(plain, plain.size()), &size) == 1;
  return good ? std::optional(std::move(plain)) : std::nullopt;
}

void PutString(std::string& out, std::string_view s) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(s.size() >> (8 * i) & 255));
  out += s;
}

bool TakeString(std::string_view& in, std::string& out) {
  if (in.size() < 4) return false;
  std::size_t size = 0;
  for (int i = 3; i >= 0; --i) {
    size = size << 8 | static_cast<unsigned char>(in[static_cast<std::size_t>(i)]);
  }
  in.remove_prefix(4);
  if (size > in.size()) return false;
  out = in.substr(0, size);
  in.remove_prefix(size);
  return true;
}

}  // namespace

SecretStore::SecretStore(std::string dir, std::string key_file, Durability durability)
    : dir_(std::move(dir)),
      key_file_(std::move(key_file)),
      durability_(durability),
      erase_(kMostErases),
      eraser_(TryThread([this] { Run(); })) {}

SecretStore::~SecretStore() {
  erase_.Close();
  if (eraser_.joinable()) eraser_.join();
}

Result<std::unique_ptr<SecretStore>> SecretStore::Open(std::string dir, std::string key_file,
                                                       Durability durability) {
  GPULAYER_RETURN_IF_ERROR(MakeDirs(dir, 0700).Prefixed("secrets"));
  return std::unique_ptr<SecretStore>(
      new SecretStore(std::move(dir), std::move(key_file), durability));
}

std::string SecretStore::PathOf(const std::string& reference) const {
  return JoinPath(dir_, reference);
}

Result<std::string> SecretStore::LoadKey() const {
  GPULAYER_ASSIGN_OR_RETURN(std::string key, ReadOwnFile(key_file_));
  if (key.size() != kKeyBytes) return DataLoss(key_file_ + ": damaged");
  return key;
}

Result<std::string> SecretStore::LoadOrMakeKey() {
  MutexLock lock(key_mutex_);
  Result<std::string> known = LoadKey();
  if (known.status().code() != StatusCode::kNotFound) return known;
  std::string key = RandomBytes(kKeyBytes);
  GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(key_file_, key, 0600, durability_));
  return key;
}

Result<std::string> SecretStore::Put(const std::vector<EnvVar>& values) {
  Result<std::string> key = LoadOrMakeKey();
  if (!key.ok()) return key.status().Prefixed("seal secrets");
  std::string reference = RandomHex(kReferenceBytes);
  std::string plain;
  for (const EnvVar& value : values) {
    PutString(plain, value.name);
    PutString(plain, value.value);
  }
  GPULAYER_ASSIGN_OR_RETURN(const std::string sealed, Seal(*key, reference, plain));
  GPULAYER_RETURN_IF_ERROR(
      WriteFileAtomic(PathOf(reference), sealed, 0600, durability_).Prefixed("seal secrets"));
  return reference;
}

Result<std::vector<EnvVar>> SecretStore::Get(const std::string& reference) const {
  if (!IsReference(reference)) return NotFound("secrets: nothing is sealed");
  const Result<std::string> bytes = ReadOwnFile(PathOf(reference));
  if (!bytes.ok()) return bytes.status().Prefixed("secrets");
  const Result<std::string> key = LoadKey();
  if (!key.ok()) return key.status().Prefixed("secrets");
  const std::optional<std::string> plain = Unseal(*key, reference, *bytes);
  if (!plain) {
    return DataLoss("secrets: " + PathOf(reference) +
                    " was changed, or sealed under another key than " + key_file_);
  }
  std::vector<EnvVar> values;
  for (std::string_view rest = *plain; !rest.empty();) {
    EnvVar& value = values.emplace_back();
    if (!TakeString(rest, value.name) || !TakeString(rest, value.value)) {
      return DataLoss("secrets: " + PathOf(reference) + ": damaged");
    }
  }
  return values;
}

void SecretStore::Erase(const std::string& reference) {
  if (!IsReference(reference)) return;
  if (eraser_.joinable() && erase_.TryPush(reference).ok()) return;
  EraseNow(reference);
}

void SecretStore::KeepOnly(const std::set<std::string>& references) {
  const Result<std::vector<std::string>> names = ListDir(dir_);
  if (!names.ok()) return LogWarning("secrets: " + names.status().message());
  for (const std::string& name : *names) {
    // Ours, and the temporary ones of a Put() that was cut off.
    if (!references.contains(name)) EraseNow(name);
  }
}

void SecretStore::EraseNow(const std::string& reference) const {
  const std::string path = PathOf(reference);
  struct stat st{};
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  // What a disk keeps of it is sealed all the same.
  if (fd.valid() && fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode)) {
    const std::string zeros(static_cast<std::size_t>(st.st_size), '\0');
    if (WriteAll(fd.get(), zeros).ok() && durability_ == Durability::kSync) fdatasync(fd.get());
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    LogWarning(ErrnoStatus("erase secrets " + path, errno).message());
  }
}

void SecretStore::Run() {
  for (;;) {
    const bool closed = erase_.closed();  // asked first: what came before is then in what is taken
    const std::vector<std::string> references = erase_.TakeUpTo(kMostErases, kForEver);
    for (const std::string& reference : references) EraseNow(reference);
    if (references.empty() && closed) return;
  }
}

}  // namespace gpulayer::security
