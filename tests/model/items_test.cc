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

Status WithCommand(Words command) {
  JobSpec spec;
  spec.command = std::move(command);
  return CheckItems(spec, 1, 10, false);
}

TEST(ItemsTest, NoShellReadsAnItemAsItsScript) {
  for (const Words& command : std::vector<Words>{
           {"sh", "-c", "echo {}"},
           {"/bin/sh", "-c", "echo \"{}\""},
           {"bash", "-lc", "echo {}"},
           {"bash", "-ec", "echo {}", "x"},
           {"bash", "-o", "pipefail", "-c", "echo {}"},
           {"bash", "-c", "-e", "--", "echo {}"},
           {"bash", "--norc", "--rcfile", "f", "-c", "{}"},
           {"fish", "--command=echo {}"},
           {"zsh", "-c", "{}"},
           {"dash", "-c", "{}"},
           {"ksh", "-c", "{}"},
           {"timeout", "10", "bash", "-c", "echo {}"},
           {"env", "A=1", "sh", "-c", "echo {}"},
       }) {
    const Status status = WithCommand(command);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << command.front();
    EXPECT_NE(status.message().find("\"$GPULAYER_ITEM\""), std::string::npos) << status.message();
  }
  for (const Words& command : std::vector<Words>{
           {"bash", "-c", "echo \"$1\"", "x", "{}"},
           {"sh", "-c", "echo \"$GPULAYER_ITEM\""},
           {"sh", "script.sh", "{}"},
           {"sh", "script.sh", "-c", "{}"},
           {"bash", "-x", "script.sh", "{}"},
           {"sh", "{}"},
           {"tar", "-c", "{}"},
           {"tool", "--shell", "sh", "-c", "{}"},
           {"timeout", "10", "tool", "-c", "{}"},
           {},
       }) {
    EXPECT_TRUE(WithCommand(command).ok()) << WithCommand(command).message();
  }
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
