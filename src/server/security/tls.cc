#include "server/security/tls.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <memory>

#include "base/hash.h"
#include "base/own_file.h"
#include "base/random.h"
#include "model/token.h"

namespace gpulayer::security {
namespace {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Cert = std::unique_ptr<X509, Freer<X509_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;
using BigNumber = std::unique_ptr<BIGNUM, Freer<BN_free>>;

constexpr auto kCaLife = std::chrono::hours(24 * 3652);
constexpr auto kLeafLife = std::chrono::hours(24 * 365);
constexpr auto kRenewBefore = std::chrono::hours(24 * 30);
constexpr auto kClockSkew =
    std::chrono::hours(24);  // certificates begin in the past: other clocks may be behind

Status SslError(std::string_view what) {
  char text[256] = "unknown error";
  if (const unsigned long code = ERR_get_error(); code != 0)
    ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return Internal(std::string(what) + ": " + text);
}

std::string Take(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<std::size_t>(size));
}

Result<std::string> ToPem(X509* cert) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), cert) != 1) return SslError("write certificate");
  return Take(bio.get());
}

Result<std::string> ToPem(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_secmem()));
  if (!bio ||
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return SslError("write key");
  }
  return Take(bio.get());
}

Cert ParseCert(std::string_view pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Cert cert(bio ? PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr) : nullptr);
  ERR_clear_error();
  return cert;
}

Key ParseKey(std::string_view pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr) : nullptr);
  ERR_clear_error();
  return key;
}

bool AddExtension(X509* cert, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  return extension && X509_add_ext(cert, extension.get(), -1) == 1;
}

// A certificate for `key`, signed by `ca_key`; `issuer` null: it signs itself and is a CA.
Result<Cert> MakeCert(EVP_PKEY* key, const std::string& common_name, X509* issuer, EVP_PKEY* ca_key,
                      WallTime now, std::chrono::seconds life) {
  Cert cert(X509_new());
  if (!cert) return SslError("make certificate");
  X509_set_version(cert.get(), 2);
  const std::string serial_bytes = RandomBytes(16);
  const BigNumber serial(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(serial_bytes.data()), 16, nullptr));
  BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(cert.get()));
  const std::time_t begin = std::chrono::system_clock::to_time_t(now - kClockSkew);
  const std::time_t end = std::chrono::system_clock::to_time_t(now + life);
  ASN1_TIME_set(X509_getm_notBefore(cert.get()), begin);
  ASN1_TIME_set(X509_getm_notAfter(cert.get()), end);
  X509_set_pubkey(cert.get(), key);
  X509_NAME* name = X509_get_subject_name(cert.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509* signer = issuer != nullptr ? issuer : cert.get();
  X509_set_issuer_name(cert.get(), X509_get_subject_name(signer));
  bool fine = AddExtension(cert.get(), signer, NID_subject_key_identifier, "hash");
  if (issuer == nullptr) {
    fine = fine &&
           AddExtension(cert.get(), signer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           AddExtension(cert.get(), signer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    fine = fine && AddExtension(cert.get(), signer, NID_basic_constraints, "critical,CA:FALSE") &&
           AddExtension(cert.get(), signer, NID_key_usage, "critical,digitalSignature") &&
           AddExtension(cert.get(), signer, NID_ext_key_usage, "serverAuth") &&
           AddExtension(cert.get(), signer, NID_authority_key_identifier, "keyid") &&
           AddExtension(cert.get(), signer, NID_subject_alt_name,
                        (std::string("DNS:") + kTlsServerName).c_str());
  }
  if (!fine || X509_sign(cert.get(), ca_key, EVP_sha256()) == 0)
    return SslError("make certificate");
  return cert;
}

bool Covers(X509* cert, WallTime moment) {
  std::time_t t = std::chrono::system_clock::to_time_t(moment);
  return X509_cmp_time(X509_get0_notAfter(cert), &t) > 0;
}

struct Pair {
  Cert cert;
  Key key;
};

// Missing files: an empty pair. The key is written first: a certificate on disk always has its key
// beside it.
Result<Pair> Load(const std::string& cert_path, const std::string& key_path) {
  Pair pair;
  if (!PathExists(cert_path)) return pair;
  GPULAYER_ASSIGN_OR_RETURN(const std::string cert_pem, ReadOwnFile(cert_path));
  Result<std::string> key_pem = ReadOwnFile(key_path);
  if (!key_pem.ok() && key_pem.status().code() != StatusCode::kNotFound) return key_pem.status();
  if (key_pem.ok()) pair.key = ParseKey(*key_pem);
  pair.cert = ParseCert(cert_pem);
  if (!pair.cert || !pair.key || X509_check_private_key(pair.cert.get(), pair.key.get()) != 1) {
    ERR_clear_error();
    return DataLoss(cert_path + " and " + key_path + ": damaged, or they do not belong together");
  }
  return pair;
}

Status Save(const Pair& pair, const std::string& cert_path, const std::string& key_path,
            Durability durability) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string cert_pem, ToPem(pair.cert.get()));
  GPULAYER_ASSIGN_OR_RETURN(const std::string key_pem, ToPem(pair.key.get()));
  GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(key_path, key_pem, 0600, durability));
  return WriteFileAtomic(cert_path, cert_pem, 0644, durability);
}

Result<std::string> Fingerprint(X509* cert) {
  unsigned char* der = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &der);
  if (size <= 0) return SslError("read public key");
  const std::string bytes(reinterpret_cast<char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return Hash::Of(bytes).hex();
}

}  // namespace

Result<std::string> PublicKeyFingerprint(std::string_view pem) {
  const Cert cert = ParseCert(pem);
  if (!cert) return InvalidArgument("certificate: not readable");
  return Fingerprint(cert.get());
}

Result<TlsIdentity> LoadOrMakeTls(const std::string& dir, WallTime now, Durability durability) {
  GPULAYER_RETURN_IF_ERROR(MakeDirs(dir, 0700));
  const std::string ca_path = JoinPath(dir, "ca.pem");
  const std::string ca_key_path = JoinPath(dir, "ca.key");
  Result<Pair> ca = Load(ca_path, ca_key_path);
  if (!ca.ok()) {
    return ca.status().code() == StatusCode::kDataLoss
               ? DataLoss("the server's certificate authority: " + ca.status().message() +
                          ". Restore both files from a backup, or remove " + dir +
                          " and log in and join again everywhere.")
               : ca.status();
  }
  if (!ca->cert) {
    ca->key = Key(EVP_EC_gen("P-256"));
    if (!ca->key) return SslError("make key");
    GPULAYER_ASSIGN_OR_RETURN(ca->cert, MakeCert(ca->key.get(), "gpulayer CA " + RandomHex(4),
                                                 nullptr, ca->key.get(), now, kCaLife));
    GPULAYER_RETURN_IF_ERROR(Save(*ca, ca_path, ca_key_path, durability));
  }

  const std::string leaf_path = JoinPath(dir, "server.pem");
  const std::string leaf_key_path = JoinPath(dir, "server.key");
  Result<Pair> leaf = Load(leaf_path, leaf_key_path);
  // Nobody pins the leaf: a damaged, foreign or old one is simply made again.
  const bool usable = leaf.ok() && leaf->cert && Covers(leaf->cert.get(), now + kRenewBefore) &&
                      X509_verify(leaf->cert.get(), ca->key.get()) == 1;
  ERR_clear_error();
  Pair fresh;
  if (!usable) {
    fresh.key = Key(EVP_EC_gen("P-256"));
    if (!fresh.key) return SslError("make key");
    GPULAYER_ASSIGN_OR_RETURN(fresh.cert, MakeCert(fresh.key.get(), kTlsServerName, ca->cert.get(),
                                                   ca->key.get(), now, kLeafLife));
    GPULAYER_RETURN_IF_ERROR(Save(fresh, leaf_path, leaf_key_path, durability));
  }
  const Pair& shown = usable ? *leaf : fresh;

  TlsIdentity identity;
  GPULAYER_ASSIGN_OR_RETURN(identity.ca_pem, ToPem(ca->cert.get()));
  GPULAYER_ASSIGN_OR_RETURN(identity.ca_fingerprint, Fingerprint(ca->cert.get()));
  GPULAYER_ASSIGN_OR_RETURN(const std::string leaf_pem, ToPem(shown.cert.get()));
  identity.chain_pem = leaf_pem + identity.ca_pem;
  GPULAYER_ASSIGN_OR_RETURN(identity.key_pem, ToPem(shown.key.get()));
  return identity;
}

}  // namespace gpulayer::security
