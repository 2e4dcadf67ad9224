#include "model/resources.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

WorkerProfile Box() {
  WorkerProfile w;
  w.id = WorkerId("w1");
  w.name = "gpu-box";
  w.zone = "eu";
  w.resources = {4, 16ll << 30, {{"GPU-1", AcceleratorKind::kCuda, "NVIDIA L4", 24ll << 30}}};
  return w;
}

TEST(ResourcesTest, WhatFitsHasNoReason) {
  Requirements need;
  need.secrets = true;
  EXPECT_EQ(NeverReasons(need, Box()).size(), 1U);
  WorkerProfile knows = Box();
  knows.takes_secrets = true;
  EXPECT_TRUE(NeverReasons(need, knows).empty());
  need = {};
  need.slots = 4;
  need.zone = "eu";
  need.workers = {"gpu-box"};
  EXPECT_TRUE(NeverReasons(need, Box()).empty());
}

TEST(ResourcesTest, NearestMissSaysWhatTheMachineHas) {
  Requirements need;
  need.memory_bytes = 900ll << 30;
  EXPECT_EQ(NeverReasons(need, Box()), std::vector<std::string>{"16GiB of memory"});
  need = {};
  need.devices = 1;
  need.accelerator = AcceleratorKind::kCuda;
  need.device_memory_bytes = 40ll << 30;
  EXPECT_EQ(NeverReasons(need, Box()), std::vector<std::string>{"cuda 24GiB"});
  EXPECT_EQ(Describe(need), "1 slot, cuda with 40GiB");
  need = {};
  need.labels = {{"disk", "ssd"}};
  EXPECT_EQ(NeverReasons(need, Box()), std::vector<std::string>{"no label disk"});
}

}  // namespace
}  // namespace gpulayer
