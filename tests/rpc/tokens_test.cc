#include "server/security/tokens.h"

#include <gtest/gtest.h>

#include "engine/gated_store.h"
#include "support/temp_dir.h"

namespace gpulayer::testing {
namespace {

using security::TokenAuthority;

TEST(TokensTest, ARevocationThatWasNotStoredIsStoredByTheRepeat) {
  TempDir dir;
  GatedStore store(dir / "server.db");
  auto tokens = *TokenAuthority::Open(store, Clock::System(), "ca");
  const auto made = *tokens->Create(Role::kClient, UserName("ann"), std::nullopt);
  store.FailWith(ResourceExhausted("disk full"));
  EXPECT_EQ(tokens->Revoke(made.id).code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(tokens->Authenticate(made.text).ok());  // it holds at once all the same
  EXPECT_FALSE(tokens->Revoke(made.id).ok());
  store.FailWith(OkStatus());
  EXPECT_TRUE(tokens->Revoke(made.id).ok());
  EXPECT_TRUE(tokens->Revoke(made.id).ok());
  tokens = *TokenAuthority::Open(store, Clock::System(), "ca");  // the server was restarted
  EXPECT_FALSE(tokens->Authenticate(made.text).ok());
}

}  // namespace
}  // namespace gpulayer::testing
