#include "model/names.h"

#include <gtest/gtest.h>

namespace gpulayer {
namespace {

WorkerProfile Box() {
  WorkerProfile w;
  w.name = "gpu-box";
  w.zone = "eu";
  w.labels = {{"disk", "fast"}};
  return w;
}

TEST(CheckNamesTest, WhatNobodyCouldTypeOrReadIsRefused) {
  EXPECT_TRUE(CheckNames(Box()).ok());
  for (const std::string& bad : {std::string("a\nb"), std::string("\xff"), std::string(300, 'x')}) {
    for (std::string WorkerProfile::* field :
         {&WorkerProfile::name, &WorkerProfile::zone, &WorkerProfile::region}) {
      WorkerProfile w = Box();
      w.*field = bad;
      EXPECT_EQ(CheckNames(w).code(), StatusCode::kInvalidArgument);
    }
    WorkerProfile w = Box();
    w.labels = {{bad, "v"}};
    EXPECT_EQ(CheckNames(w).code(), StatusCode::kInvalidArgument);
    w.labels = {{"k", bad}};
    EXPECT_EQ(CheckNames(w).message(), "label k: 0 to 200 bytes of printable UTF-8 are needed");
  }
  WorkerProfile w = Box();
  w.name = "";
  EXPECT_FALSE(CheckNames(w).ok());
  w = Box();
  w.zone = w.region = "";
  EXPECT_TRUE(CheckNames(w).ok());
}

}  // namespace
}  // namespace gpulayer
