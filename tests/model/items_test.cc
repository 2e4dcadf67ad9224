#include "model/items.h"

#include <gtest/gtest.h>

#include "model/limits.h"

namespace gpulayer {
namespace {

using Words = std::vector<std::string>;

TEST(ItemsTest, TheItemStandsWithinWords) {
  EXPECT_EQ(WithItem({"cp", "{}", "out/{}.{}", "{", "}"}, "a b"),
            (Words{"cp", "a b", "out/a b.a b", "{", "}"}));
  EXPECT_EQ(WithItem({"{}"}, "{}"), Words{"{}"}) << "what is put in is not looked at again";
  EXPECT_EQ(WithItem({"x{}y"}, ""), Words{"xy"});
}

TEST(ItemsTest, WhatNoProgramCanReceiveIsRefused) {
  JobSpec spec;
  spec.command = {"x", "{}{}"};
  spec.tasks.count = 2;
  EXPECT_TRUE(CheckItems(spec, 2, 10, false).ok());
  EXPECT_FALSE(CheckItems(spec, 3, 10, false).ok());
  EXPECT_FALSE(CheckItems(spec, 2, 10, true).ok());
  const auto half = static_cast<std::int64_t>(limits::kMaxArgBytes / 2);
  EXPECT_TRUE(CheckItems(spec, 2, half - 4, false).ok());
  EXPECT_NE(CheckItems(spec, 2, half + 1, false).message().find("131071"), std::string::npos);
  spec.command.assign(100, "{}");  // each is fine, all of them are not
  EXPECT_EQ(CheckItems(spec, 2, half, false).code(), StatusCode::kResourceExhausted);
}

TEST(TaskNumbersTest, PositionsAndNumbers) {
  const TaskNumbers tasks{.first = 5, .step = 3, .count = 3};
  EXPECT_EQ(tasks.At(2), TaskIndex(11));
  EXPECT_EQ(tasks.PositionOf(TaskIndex(8)), 1);
  for (const int n : {5, 8, 11}) EXPECT_TRUE(tasks.Contains(TaskIndex(n)));
  for (const int n : {-1, 2, 4, 6, 14}) EXPECT_FALSE(tasks.Contains(TaskIndex(n)));
}

}  // namespace
}  // namespace gpulayer
