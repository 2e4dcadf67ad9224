#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/args.h"

namespace gpulayer::cli {
namespace {

struct Said {
  Parsed parsed;
  std::string err;
  std::string out;
};

Said Type(std::vector<std::string> words) {
  words.insert(words.begin(), "gpulayer");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Said said;
  said.parsed = Parse(static_cast<int>(argv.size()), argv.data());
  said.out = testing::internal::GetCapturedStdout();
  said.err = testing::internal::GetCapturedStderr();
  return said;
}

TEST(ParseTest, WrongUsageIsTwoForEveryVerb) {
  const std::vector<std::vector<std::string>> kWrong = {
      {},
      {"nonsense"},
      {"submit"},
      {"submit", "true"},
      {"submit", "--nonsense", "--", "true"},
      {"submit", "--memory", "x", "--", "true"},
      {"submit", "--slots", "0", "--", "true"},
      {"submit", "--time", "", "--", "true"},
      {"submit", "--memory", "", "--", "true"},
      {"submit", "--output", "", "--", "true"},
      {"submit", "--target", "", "--", "true"},
      {"up", "--listen", ""},
      {"logout", ""},
      {"submit", "--env", "novalue", "--", "true"},
      {"submit", "--shell", "x", "--", "true"},
      {"submit", "--source", ".", "--no-source", "--", "true"},
      {"submit", "--target", "local", "--detach", "--", "true"},
      {"run", "--detach", "--", "true"},
      {"job"},
      {"job", "show"},
      {"job", "show", "x"},
      {"job", "show", "1.2"},
      {"job", "list", "--state", "x"},
      {"job", "wait"},
      {"job", "cancel"},
      {"job", "list", "--", "true"},
      {"logs"},
      {"worker", "show"},
      {"token", "create"},
      {"token", "create", "--role", "king"},
      {"token", "revoke"},
      {"target", "use"},
      {"join"},
      {"login"},
      {"up", "--slots", "x"},
      {"up", "--slots", "0"},
      {"join", "box", "--slots", "0"},
      {"job", "list", "--before", "0"},
      {"logs", "--tail", "-1", "7"},
      {"completion"},
      {"completion", "tcsh"},
  };
  for (const auto& words : kWrong) {
    const Said said = Type(words);
    EXPECT_FALSE(said.parsed.run) << testing::PrintToString(words);
    EXPECT_EQ(said.parsed.exit_code, 2) << testing::PrintToString(words);
    EXPECT_EQ(said.err.rfind("gpulayer: ", 0), 0u) << said.err;
    EXPECT_EQ(said.out, "");
  }
}

TEST(ParseTest, WhatIsNotBuiltYetSaysSo) {
  const std::vector<std::vector<std::string>> kLater = {
      {"submit", "--array", "0-9", "--", "true"},
      {"submit", "--retries=2", "--", "true"},
      {"submit", "--fence", "--", "true"},
      {"run", "--accelerator", "cuda", "--", "true"},
      {"up", "--http", "off"},
      {"up", "--service"},
      {"down", "--drain=10m"},
      {"down", "--drain"},
      {"job", "retry", "7"},
      {"job", "set", "7", "--priority", "1"},
      {"job", "exec", "7", "--", "sh"},
      {"top"},
      {"doctor", "--help"},
      {"server", "backup", "x"},
      {"worker", "drain", "box"},
      {"job", "cancel", "--mine"},
      {"join", "box", "--advertise-address", "10.0.0.5"},
      {"logs", "--rank", "1", "7"}};
  for (const auto& words : kLater) {
    const Said said = Type(words);
    EXPECT_EQ(said.parsed.exit_code, 2) << testing::PrintToString(words);
    EXPECT_FALSE(said.parsed.run);
    EXPECT_NE(said.err.find("is not built yet in this version"), std::string::npos)
        << testing::PrintToString(words) << said.err;
  }
  EXPECT_EQ(Type({"submit", "--array", "0-9", "--", "true"})
                .err.rfind("gpulayer: --array is not built yet", 0),
            0u);
}

TEST(ParseTest, RightUsageGivesSomethingToRun) {
  const std::vector<std::vector<std::string>> kRight = {
      {"submit", "--", "true"},
      {"submit", "--shell", "echo x"},
      {"submit", "--source", ".", "--dry-run"},
      {"run", "--", "--array"},
      {"ps"},
      {"job", "list", "--state", "running", "--limit", "5"},
      {"logs", "-f", "7.0"},
      {"job", "wait", "7", "8"},
      {"cancel", "7", "8.1", "--now"},
      {"token", "create", "--role", "client", "--expires", "1d"},
      {"up", "--listen", "127.0.0.1:0", "--no-worker"},
      {"down"},
      {"join", "box:7461", "--token", "-", "--label", "a=b"},
      {"login", "box:7461", "--token", "@file"},
      {"logout"},
      {"version"},
  };
  for (const auto& words : kRight) {
    const Said said = Type(words);
    EXPECT_TRUE(said.parsed.run) << testing::PrintToString(words) << said.err;
  }
}

TEST(ParseTest, EveryVerbsHelpHasAnExample) {
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{"up"},
                                             {"down"},
                                             {"join"},
                                             {"login"},
                                             {"logout"},
                                             {"target", "list"},
                                             {"target", "use"},
                                             {"submit"},
                                             {"run"},
                                             {"job", "list"},
                                             {"job", "show"},
                                             {"job", "explain"},
                                             {"job", "logs"},
                                             {"job", "wait"},
                                             {"job", "attach"},
                                             {"job", "cancel"},
                                             {"job", "result"},
                                             {"ps"},
                                             {"logs"},
                                             {"cancel"},
                                             {"worker", "list"},
                                             {"worker", "show"},
                                             {"resources", "detect"},
                                             {"token", "create"},
                                             {"token", "list"},
                                             {"token", "revoke"},
                                             {"status"},
                                             {"version"},
                                             {"completion"}}) {
    std::vector<std::string> words = verb;
    words.push_back("--help");
    const Said said = Type(words);
    EXPECT_EQ(said.parsed.exit_code, 0);
    EXPECT_NE(said.out.find("Example:\n  "), std::string::npos)
        << testing::PrintToString(verb) << said.out;
  }
}

TEST(CompletionTest, NamesVerbsAndOptions) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Said said = Type({"completion", shell});
    ASSERT_TRUE(said.parsed.run);
    testing::internal::CaptureStdout();
    EXPECT_EQ(said.parsed.run(), 0);
    const std::string text = testing::internal::GetCapturedStdout();
    EXPECT_NE(text.find("submit"), std::string::npos);
    EXPECT_NE(text.find(std::string(shell) == "fish" ? "-l source-limit" : "--source-limit"),
              std::string::npos);
    EXPECT_EQ(text.find("--array"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpulayer::cli
