#include "server/store/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/text.h"
#include "store/random_records.h"

namespace gpulayer {
namespace {

TEST(CodecTest, WhatGoesInComesOut) {
  EXPECT_TRUE(rc::check([] {
    const JobSpec spec = testing::RandomSpec();
    RC_ASSERT(*codec::Decode<JobSpec>(codec::Encode(spec)) == spec);
    const OutputResult outputs = testing::RandomOutputs();
    RC_ASSERT(*codec::Decode<OutputResult>(codec::Encode(outputs)) == outputs);
    const Allocation allocation = testing::RandomAllocation();
    RC_ASSERT(*codec::Decode<Allocation>(codec::Encode(allocation)) == allocation);
    const WorkerProfile profile = testing::RandomProfile();
    RC_ASSERT(*codec::Decode<WorkerProfile>(codec::Encode(profile)) == profile);
  }));
}

// A spec as the first version wrote it. If this fails, old databases can no longer be read.
TEST(CodecTest, TheFormatDoesNotChange) {
  Allocation allocation{3, 1 << 20, {"GPU-1", ""}};
  const std::string bytes = codec::Encode(allocation);
  EXPECT_EQ(HexEncode(bytes),
            "01"
            "910b03cc4fc55d3d"
            "010106"
            "020480808001"
            "03054750552d31"
            "0300");
}

// With the check sum of its body set right.
std::string Sealed(const std::string& body) {
  std::uint64_t sum = 0xCBF29CE484222325ULL;
  for (const char c : body) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  std::string out = "\x01";
  for (int i = 0; i < 8; ++i, sum >>= 8) out += static_cast<char>(sum & 0xFF);
  return out + body;
}

TEST(CodecTest, AnUnknownTagIsSkippedAndAnAbsentFieldKeepsItsDefault) {
  std::string later = codec::Encode(JobSpec{.name = "n", .command = {"true"}}).substr(9);
  later += std::string("\xC8\x01\x03xyz", 6);  // tag 200, three bytes
  Result<JobSpec> spec = codec::Decode<JobSpec>(Sealed(later));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(*spec, (JobSpec{.name = "n", .command = {"true"}}));
  EXPECT_EQ(*codec::Decode<JobSpec>(Sealed("")), JobSpec());
}

TEST(CodecTest, DamageIsSaid) {
  const std::string good = codec::Encode(JobSpec{.name = "name", .command = {"true"}});
  for (std::size_t i = 1; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_EQ(codec::Decode<JobSpec>(bad).status().code(), StatusCode::kDataLoss) << i;
    EXPECT_FALSE(codec::Decode<JobSpec>(good.substr(0, i)).ok()) << i;
  }
  EXPECT_EQ(codec::Decode<JobSpec>("").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(codec::Decode<JobSpec>(std::string(100, '\0')).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(codec::Decode<JobSpec>("\x02" + good.substr(1)).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(CodecTest, NoBytesWithARightCheckSumCrashIt) {
  EXPECT_TRUE(rc::check([](const std::string& body) {
    (void)codec::Decode<JobSpec>(Sealed(body)).ok();
    (void)codec::Decode<WorkerProfile>(Sealed(body)).ok();
  }));
  EXPECT_TRUE(rc::check([] {
    std::string body = codec::Encode(testing::RandomSpec()).substr(9);
    for (int n = 0; n < 3 && !body.empty(); ++n) {
      body[*rc::gen::inRange<std::size_t>(0, body.size())] = *rc::gen::arbitrary<char>();
    }
    (void)codec::Decode<JobSpec>(Sealed(body)).ok();
  }));
}

}  // namespace
}  // namespace gpulayer
