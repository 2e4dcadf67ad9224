#include "wire/convert.h"

#include <gtest/gtest.h>

#include "model/limits.h"
#include "wire/status_code.h"
#include "wire/tree.h"
#include "wire/version.h"

namespace gpulayer::wire {
namespace {

using namespace std::chrono_literals;

JobSpec FullSpec() {
  JobSpec spec;
  spec.name = "gr\xC3\xBC\xC3\x9F";
  spec.command = {"./run", "a b", "", "\x80\xFF", "n\nl"};
  spec.env = {{"K", "v=\x80"}};
  spec.requirements.slots = 2;
  spec.requirements.labels = {{"disk", "ssd"}};
  spec.requirements.workers = {"a", "b"};
  spec.source_tree = Hash::Of("tree");
  spec.outputs.globs = {"*.mp4"};
  spec.time_limit = 90s;
  spec.log_limit_bytes = 1 << 20;
  spec.keep = true;
  spec.array = true;
  spec.tasks = {3, 2, 7};
  spec.max_parallel = 4;
  spec.only.Add(1);
  spec.only.Add(6);
  spec.retry_of = JobId(3);
  spec.request_id = RequestId("r1");
  return spec;
}

TEST(ConvertTest, SpecRoundTripsByteForByte) {
  pb::JobSpec proto;
  ToProto(FullSpec(), &proto);
  pb::JobSpec again;
  ASSERT_TRUE(again.ParseFromString(proto.SerializeAsString()));
  const Result<JobSpec> back = FromProto(again);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(*back, FullSpec());
}

TEST(ConvertTest, TasksThatAreNotInTheRangeAreRefused) {
  pb::JobSpec proto;
  for (const char* only : {"0-9223372036854775807", "7", "0-7", "9223372036854775806"}) {
    ToProto(FullSpec(), &proto);  // 7 tasks: positions 0 to 6
    proto.set_only(only);
    EXPECT_FALSE(FromProto(proto).ok()) << only;
  }
  ToProto(FullSpec(), &proto);
  proto.set_task_step(1'000'000'000'000);
  EXPECT_FALSE(FromProto(proto).ok());
}

TEST(ConvertTest, TasksInTooManyRunsAreRefusedWithTheLimit) {
  JobSpec spec = FullSpec();
  spec.tasks.count = 30'000;
  for (std::int64_t i = 0; i < 10'000; ++i) spec.only.Add(10 + 2 * i);
  EXPECT_NE(CheckSpec(spec).message().find("the limit is 10000"), std::string::npos);
  spec.only = IntervalSet();
  for (std::int64_t i = 0; i < 10'000; ++i) spec.only.Add(10 + 2 * i);
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec).ToString();
}

TEST(ConvertTest, WhatNoKernelTakesIsRefusedWithTheLimit) {
  JobSpec spec = FullSpec();
  spec.command.push_back(std::string(limits::kMaxArgBytes + 1, 'x'));
  EXPECT_NE(CheckSpec(spec).message().find("131071"), std::string::npos);
  EXPECT_EQ(CheckSpec(spec).code(), StatusCode::kResourceExhausted);
  spec.command.back().pop_back();
  EXPECT_TRUE(CheckSpec(spec).ok());
  spec.env.push_back({"V", std::string(limits::kMaxArgBytes - 1, 'x')});
  EXPECT_EQ(CheckSpec(spec).code(), StatusCode::kResourceExhausted);
  spec.env.assign(17, {"V", std::string(limits::kMaxArgBytes - 2, 'x')});
  EXPECT_EQ(CheckSpec(spec).code(), StatusCode::kResourceExhausted);
  spec = FullSpec();
  spec.command = {};
  EXPECT_EQ(CheckSpec(spec).code(), StatusCode::kInvalidArgument);
  spec = FullSpec();
  spec.env = {{"A=B", ""}};
  EXPECT_EQ(CheckSpec(spec).code(), StatusCode::kInvalidArgument);
  spec = FullSpec();
  spec.name = "\x80";
  EXPECT_EQ(CheckSpec(spec).code(), StatusCode::kInvalidArgument);
  spec = FullSpec();
  spec.requirements.zone = "\x1b[31mred";  // shown by who refuses it
  EXPECT_EQ(CheckSpec(spec).message(), "job: --zone: 0 to 200 bytes of printable UTF-8 are needed");
  spec = FullSpec();
  spec.requirements.workers = {"a\nb"};
  EXPECT_EQ(CheckSpec(spec).code(), StatusCode::kInvalidArgument);
}

TEST(ConvertTest, AttemptIdsAreFitForFileNames) {
  pb::AttemptKey key;
  key.set_job(1);
  key.set_number(1);
  for (const char* bad : {"", ".", "..", "a/b", "a\nb"}) {
    key.set_id(bad);
    EXPECT_FALSE(FromProto(key).ok()) << bad;
  }
  key.set_id("3f2a-1-42.0-1");
  EXPECT_TRUE(FromProto(key).ok());
}

// Texts quote file names and targets of links, which are bytes.
TEST(ConvertTest, TextsOfAnyBytesArrive) {
  pb::Outcome outcome;
  ToProto(Outcome{{}, {}, {CauseKind::kPreparation, "a\xFF"}}, &outcome);
  pb::Outcome outcome_again;
  ASSERT_TRUE(outcome_again.ParseFromString(outcome.SerializeAsString()));
  EXPECT_EQ(FromProto(outcome_again).cause.text, "a\xEF\xBF\xBD");

  OutputResult result;
  result.left_out = {{"name\x80", 1, "a link (to \xFF)"}, {"b", 2, "gr\xC3\xBC\xC3\x9F\n"}};
  pb::OutputResult outputs;
  ToProto(result, &outputs);
  pb::OutputResult outputs_again;
  ASSERT_TRUE(outputs_again.ParseFromString(outputs.SerializeAsString()));
  const Result<OutputResult> back = FromProto(outputs_again);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->left_out[0].path, "name\x80");
  EXPECT_EQ(back->left_out[0].reason, "a link (to \xEF\xBF\xBD)");
  EXPECT_EQ(back->left_out[1].reason, "gr\xC3\xBC\xC3\x9F\n");

  Resources resources;
  resources.devices = {{"0", AcceleratorKind::kCuda, "odd\xFF", 1}};
  pb::Resources machine;
  ToProto(resources, &machine);
  pb::Resources machine_again;
  ASSERT_TRUE(machine_again.ParseFromString(machine.SerializeAsString()));
}

TEST(ConvertTest, EveryCodeTravels) {
  for (int i = 0; i <= 16; ++i) EXPECT_EQ(ToWireCode(FromWireCode(i)), i);
  EXPECT_EQ(ToWireCode(StatusCode::kRejected), 9);
  EXPECT_EQ(FromWireCode(99), StatusCode::kUnknown);
}

TEST(ConvertTest, TreesHaveOneName) {
  Tree tree;
  tree.entries = {{"a", EntryType::kFile, 0755, 3, Hash::Of("abc"), ""},
                  {"a\x80", EntryType::kLink, 0, 0, Hash(), "a"}};
  tree.ignore.overriding = "*.log\n";
  tree.ignore.nested_roots = {"third/party"};
  tree.ignore.fold_case = true;
  const std::string bytes = SerializeTree(tree);
  EXPECT_EQ(*ParseTree(bytes), tree);
  EXPECT_EQ(SerializeTree(*ParseTree(bytes)), bytes);
  EXPECT_FALSE(ParseTree("nonsense").ok());
  std::swap(tree.entries[0], tree.entries[1]);
  EXPECT_FALSE(ParseTree(SerializeTree(tree)).ok());
}

TEST(ConvertTest, PeersOfAnotherMajorAreToldWhoUpgrades) {
  pb::Version peer = OwnVersion();
  EXPECT_TRUE(CheckPeerVersion(peer, "the worker").ok());
  peer.set_major(2);
  EXPECT_NE(CheckPeerVersion(peer, "the worker").message().find("Upgrade this side"),
            std::string::npos);
}

}  // namespace
}  // namespace gpulayer::wire
