#include "base/hash.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

TEST(HashTest, IsSha256) {  // FIPS 180-2, appendix B.1
  EXPECT_EQ(Hash::Of("abc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Hasher hasher;
  hasher.Update("a");
  hasher.Update("bc");
  EXPECT_EQ(hasher.Finish(), Hash::Of("abc"));
  EXPECT_EQ(hasher.Finish(), Hash::Of(""));
}

TEST(HashTest, RoundTrips) {
  const Hash h = Hash::Of("x");
  EXPECT_EQ(*Hash::FromHex(h.hex()), h);
  EXPECT_EQ(*Hash::FromBytes(h.bytes()), h);
  EXPECT_FALSE(Hash::FromHex("12").ok());
  EXPECT_TRUE(Hash().empty());
}

}  // namespace
}  // namespace gpulayer
