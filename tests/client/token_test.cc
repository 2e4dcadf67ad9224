#include <gtest/gtest.h>

#include <cstdlib>

#include "base/fs.h"
#include "client/handshake.h"
#include "gpulayer/host.h"
#include "support/temp_dir.h"

namespace gpulayer::client {
namespace {

const std::string kKey(64, 'a');
const std::string kText = "gl1.client.3f9c0000." + std::string(32, 'c') + "." + kKey;

TEST(ReadTokenTest, FromItselfAFileOrTheEnvironment) {
  testing::TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.path() + "/token", kText + "\n").ok());
  EXPECT_EQ(*api::ReadToken(kText), kText);
  EXPECT_EQ(*api::ReadToken("@" + dir.path() + "/token"), kText);
  EXPECT_EQ(api::ReadToken("@" + dir.path() + "/none").status().code(), StatusCode::kNotFound);
  const std::string said = api::ReadToken(dir.path() + "/token").status().message();
  EXPECT_NE(said.find("Did you mean --token @" + dir.path() + "/token?"), std::string::npos)
      << said;
  ::unsetenv("GPULAYER_TOKEN");
  EXPECT_EQ(api::ReadToken("").status().code(), StatusCode::kInvalidArgument);
  ::setenv("GPULAYER_TOKEN", kText.c_str(), 1);
  EXPECT_EQ(*api::ReadToken(""), kText);
  ::unsetenv("GPULAYER_TOKEN");
}

TEST(IntroduceTest, ACredentialIsNoToken) {
  const Status status =
      Introduce("box:7461", "glc1.client.3f9c0000." + std::string(32, 'b'), "client", "here")
          .status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("credential"), std::string::npos);
  EXPECT_EQ(status.message().find("bbbb"), std::string::npos);
}

}  // namespace
}  // namespace gpulayer::client
