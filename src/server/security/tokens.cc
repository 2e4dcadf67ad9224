#include "server/security/tokens.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/random.h"
#include "model/token.h"

namespace gpulayer::security {
namespace {

constexpr std::size_t kIdBytes = 6;
constexpr std::size_t kSecretBytes = 32;

std::string LocalTime(WallTime t) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(t);
  std::tm parts{};
  char text[40] = "";
  if (localtime_r(&seconds, &parts) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &parts);
  std::string out = text;
  if (out.size() > 2) out.insert(out.size() - 2, ":");  // as the command line writes times
  return out;
}

bool SameHash(const Hash& a, const Hash& b) {
  return CRYPTO_memcmp(a.bytes().data(), b.bytes().data(), Hash::kSize) == 0;
}

}  // namespace

std::optional<Role> RoleFromString(std::string_view text) {
  for (const Role role : {Role::kClient, Role::kWorker, Role::kAdmin}) {
    if (ToString(role) == text) return role;
  }
  return std::nullopt;
}

TokenAuthority::TokenAuthority(Store& store, Clock& clock, std::string ca_fingerprint)
    : store_(store), clock_(clock), ca_fingerprint_(std::move(ca_fingerprint)) {}

Result<std::unique_ptr<TokenAuthority>> TokenAuthority::Open(Store& store, Clock& clock,
                                                             std::string ca_fingerprint) {
  GPULAYER_ASSIGN_OR_RETURN(std::vector<TokenRecord> records, store.ListTokens());
  std::unique_ptr<TokenAuthority> authority(
      new TokenAuthority(store, clock, std::move(ca_fingerprint)));
  MutexLock lock(authority->mutex_);
  for (TokenRecord& record : records) {
    std::string id = record.id;
    authority->records_.emplace(std::move(id), std::move(record));
  }
  return authority;
}

Result<TokenAuthority::Made> TokenAuthority::Put(TokenRecord record, bool credential) {
  record.id = RandomHex(kIdBytes);
  record.created = clock_.Now().wall;
  record.kind = credential ? TokenRecord::Kind::kCredential : TokenRecord::Kind::kToken;
  TokenText text;
  text.credential = credential;
  text.role = ToString(record.role);
  text.id = record.id;
  text.secret = RandomHex(kSecretBytes);
  if (!credential) text.ca_fingerprint = ca_fingerprint_;
  record.secret_hash = Hash::Of(text.secret);
  GPULAYER_RETURN_IF_ERROR(store_.PutToken(record));
  Made made{FormatToken(text), record.id};
  MutexLock lock(mutex_);
  records_[record.id] = std::move(record);
  return made;
}

Result<TokenAuthority::Made> TokenAuthority::Create(Role role, UserName user,
                                                    std::optional<Duration> life) {
  if (user.value().empty()) return InvalidArgument("token: a user is needed. Add --user NAME.");
  if (life && *life <= Duration::zero())
    return InvalidArgument("token: its life must be more than 0");
  TokenRecord record;
  record.role = role;
  record.user = std::move(user);
  if (life) {
    // A life beyond what the clock can count is a token without an end.
    constexpr auto kLongest = std::chrono::hours(24 * 365 * 100);
    if (*life < kLongest) {
      record.expires =
          clock_.Now().wall + std::chrono::duration_cast<std::chrono::microseconds>(*life);
    }
  }
  return Put(std::move(record), false);
}

Result<TokenAuthority::Made> TokenAuthority::Exchange(const Principal& token, Role wanted,
                                                      std::string subject) {
  if (token.local() || token.credential) {
    return FailedPrecondition(
        "exchange: only a token can be exchanged, and the caller is known already");
  }
  if (token.role != Role::kAdmin && token.role != wanted) {
    return PermissionDenied("this is a " + std::string(ToString(token.role)) + "'s token; " +
                            (wanted == Role::kWorker ? "joining" : "logging in") + " needs a " +
                            std::string(ToString(wanted)) +
                            " token. Make one with `gpulayer token create --role " +
                            std::string(ToString(wanted)) + "`.");
  }
  TokenRecord record;
  record.role = wanted;
  record.user = token.user;
  record.parent = token.token_id;
  record.subject = std::move(subject);
  GPULAYER_ASSIGN_OR_RETURN(Made made, Put(std::move(record), true));
  bool revoked = false;
  {
    MutexLock lock(mutex_);
    const auto parent = records_.find(token.token_id);
    revoked = parent != records_.end() && parent->second.revoked.has_value();
  }
  if (!revoked) return made;
  // While this went on: whoever revoked the token did not see the credential.
  GPULAYER_RETURN_IF_ERROR(Revoke(made.id));
  return Unauthenticated("token was revoked. Ask for a new one (`gpulayer token create`).");
}

Status TokenAuthority::Revoke(const std::string& id) {
  std::vector<TokenRecord> changed;
  {
    MutexLock lock(mutex_);
    if (!records_.contains(id))
      return NotFound("token " + id + ": no such token. See `gpulayer token list`.");
    for (auto& [each, record] : records_) {
      if (each != id && record.parent != id) continue;
      if (record.revoked && !unstored_.contains(each)) continue;
      // Holds at once, also if the disk below is slow.
      if (!record.revoked) record.revoked = clock_.Now().wall;
      unstored_.insert(each);
      changed.push_back(record);
    }
  }
  for (const TokenRecord& record : changed) {
    const Status stored = store_.PutToken(record);
    if (!stored.ok()) {
      return stored.Prefixed("token " + id +
                             " is revoked until the server restarts, not stored. Revoke it again");
    }
    MutexLock lock(mutex_);
    unstored_.erase(record.id);
  }
  return OkStatus();
}

std::optional<WorkerId> TokenAuthority::ShutOut(const std::string& id) {
  const auto is_workers = [](const TokenRecord& record) {
    return record.kind == TokenRecord::Kind::kCredential && record.role == Role::kWorker;
  };
  MutexLock lock(mutex_);
  const auto it = records_.find(id);
  if (it == records_.end() || !it->second.revoked || !is_workers(it->second)) return std::nullopt;
  const std::string& worker = it->second.subject;
  const bool has_another = std::any_of(records_.begin(), records_.end(), [&](const auto& entry) {
    const TokenRecord& other = entry.second;
    return is_workers(other) && !other.revoked && other.subject == worker;
  });
  return has_another ? std::nullopt : std::optional(WorkerId(worker));
}

std::vector<TokenRecord> TokenAuthority::List() {
  std::vector<TokenRecord> records;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, record] : records_) {
      records.push_back(record);
      records.back().secret_hash = Hash();
    }
  }
  std::stable_sort(records.begin(), records.end(), [](const TokenRecord& a, const TokenRecord& b) {
    return a.created < b.created;
  });
  return records;
}

Result<Principal> TokenAuthority::Authenticate(std::string_view bearer) {
  const Status wrong = Unauthenticated(
      "token is wrong: this server did not make it. Ask its owner for one (`gpulayer token "
      "create`).");
  Result<TokenText> text = ParseToken(bearer);
  if (!text.ok()) return wrong;
  const Hash hash = Hash::Of(text->secret);
  const WallTime now = clock_.Now().wall;
  MutexLock lock(mutex_);
  const auto it = records_.find(text->id);
  if (it == records_.end() || !SameHash(it->second.secret_hash, hash)) return wrong;
  const TokenRecord& record = it->second;
  const bool credential = record.kind == TokenRecord::Kind::kCredential;
  if (credential != text->credential || ToString(record.role) != text->role) return wrong;
  if (record.revoked) {
    return Unauthenticated("token was revoked at " + LocalTime(*record.revoked) +
                           ". Ask for a new one (`gpulayer token create`).");
  }
  if (record.expires && *record.expires <= now) {
    return Unauthenticated("token expired at " + LocalTime(*record.expires) +
                           ". Ask for a new one (`gpulayer token create`).");
  }
  return Principal{record.role, record.user, record.id, credential, record.subject};
}

}  // namespace gpulayer::security
