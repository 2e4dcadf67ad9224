#include "client/token.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/fs.h"
#include "gpulayer/host.h"
#include "support/temp_dir.h"

namespace gpulayer::client {
namespace {

const std::string kKey(64, 'a');
const std::string kText = "gl1.client.3f9c.s3cr3t." + kKey;

TEST(ParseTokenTest, TakesItApart) {
  const Result<Token> token = ParseToken(kText);
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(token->role, "client");
  EXPECT_EQ(token->id, "3f9c");
  EXPECT_EQ(token->ca_key.hex(), kKey);
}

TEST(ParseTokenTest, RefusesWithoutRepeatingTheSecret) {
  for (const std::string& text :
       {std::string(), std::string("gl1"), "gl2.client.3f9c.s3cr3t." + kKey,
        "gl1.client.3f9c.s3cr3t." + kKey.substr(1), "gl1.client..s3cr3t." + kKey,
        "gl1.client.3f9c.s3cr3t.x" + kKey.substr(1), kText + ".more",
        "gl1.client.3f\n9c.s3cr3t." + kKey}) {
    const Status status = ParseToken(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.message().find("s3cr3t"), std::string::npos);
  }
}

TEST(ReadTokenTest, FromItselfAFileOrTheEnvironment) {
  testing::TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.path() + "/token", kText + "\n").ok());
  EXPECT_EQ(*api::ReadToken(kText), kText);
  EXPECT_EQ(*api::ReadToken("@" + dir.path() + "/token"), kText);
  EXPECT_EQ(api::ReadToken("@" + dir.path() + "/none").status().code(), StatusCode::kNotFound);
  ::unsetenv("GPULAYER_TOKEN");
  EXPECT_EQ(api::ReadToken("").status().code(), StatusCode::kInvalidArgument);
  ::setenv("GPULAYER_TOKEN", kText.c_str(), 1);
  EXPECT_EQ(*api::ReadToken(""), kText);
  ::unsetenv("GPULAYER_TOKEN");
}

TEST(CredentialIdTest, IsTheThirdPart) {
  EXPECT_EQ(CredentialId("glc1.client.77.s"), "77");
  EXPECT_EQ(CredentialId(kText), "");
}

}  // namespace
}  // namespace gpulayer::client
