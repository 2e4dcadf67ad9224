#include "server/security/tokens.h"

#include <gtest/gtest.h>

#include "engine/gated_store.h"
#include "support/temp_dir.h"

namespace gpulayer::testing {
namespace {

using security::TokenAuthority;

const std::string kCa(64, 'a');  // a token without its fingerprint is none

TEST(TokensTest, ARevocationThatWasNotStoredIsStoredByTheRepeat) {
  TempDir dir;
  GatedStore store(dir / "server.db");
  auto tokens = *TokenAuthority::Open(store, Clock::System(), kCa);
  const auto made = *tokens->Create(Role::kClient, UserName("ann"), std::nullopt);
  EXPECT_TRUE(tokens->Authenticate(made.text).ok());
  store.FailWith(ResourceExhausted("disk full"));
  EXPECT_EQ(tokens->Revoke(made.id).code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(tokens->Authenticate(made.text).ok());  // it holds at once all the same
  EXPECT_FALSE(tokens->Revoke(made.id).ok());
  store.FailWith(OkStatus());
  EXPECT_TRUE(tokens->Revoke(made.id).ok());
  EXPECT_TRUE(tokens->Revoke(made.id).ok());
  tokens = *TokenAuthority::Open(store, Clock::System(), kCa);  // the server was restarted
  EXPECT_FALSE(tokens->Authenticate(made.text).ok());
}

TEST(TokensTest, WithATokenGoesWhatWasMadeOfIt) {
  TempDir dir;
  GatedStore store(dir / "server.db");
  auto tokens = *TokenAuthority::Open(store, Clock::System(), kCa);
  const auto token = *tokens->Create(Role::kClient, UserName("ann"), std::nullopt);
  const auto other = *tokens->Create(Role::kClient, UserName("ann"), std::nullopt);
  const auto exchange = [&](const TokenAuthority::Made& from) {
    return *tokens->Exchange(*tokens->Authenticate(from.text), Role::kClient, "laptop");
  };
  const auto first = exchange(token);
  const auto second = exchange(token);
  const auto stays = exchange(other);
  // One credential alone.
  ASSERT_TRUE(tokens->Revoke(first.id).ok());
  EXPECT_TRUE(tokens->Authenticate(token.text).ok());
  EXPECT_TRUE(tokens->Authenticate(second.text).ok());

  store.FailWith(ResourceExhausted("disk full"));
  EXPECT_FALSE(tokens->Revoke(token.id).ok());
  EXPECT_FALSE(tokens->Authenticate(second.text).ok());
  store.FailWith(OkStatus());
  EXPECT_TRUE(tokens->Revoke(token.id).ok());
  tokens = *TokenAuthority::Open(store, Clock::System(), kCa);  // the server was restarted
  EXPECT_FALSE(tokens->Authenticate(token.text).ok());
  EXPECT_FALSE(tokens->Authenticate(second.text).ok());
  EXPECT_TRUE(tokens->Authenticate(stays.text).ok());
}

TEST(TokensTest, ATokenRevokedWhileItIsExchangedGivesNothing) {
  TempDir dir;
  GatedStore store(dir / "server.db");
  auto tokens = *TokenAuthority::Open(store, Clock::System(), kCa);
  const auto token = *tokens->Create(Role::kClient, UserName("ann"), std::nullopt);
  const auto caller = *tokens->Authenticate(token.text);
  ASSERT_TRUE(tokens->Revoke(token.id).ok());
  EXPECT_EQ(tokens->Exchange(caller, Role::kClient, "laptop").status().code(),
            StatusCode::kUnauthenticated);
  for (const TokenRecord& record : tokens->List()) EXPECT_TRUE(record.revoked) << record.id;
}

}  // namespace
}  // namespace gpulayer::testing
