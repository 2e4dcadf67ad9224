#include "cli/project.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace gpulayer::cli {
namespace {

namespace fs = std::filesystem;

class ProjectTest : public testing::Test {
 protected:
  ProjectTest() {
    std::string name = fs::canonical(fs::temp_directory_path()) / "gpulayer-project-XXXXXX";
    root_ = ::mkdtemp(name.data());
    fs::create_directories(root_ / "a/b/c");
    // Not in a repository, and beside the home folder.
    ::setenv("HOME", (root_ / "home").c_str(), 1);
  }
  ~ProjectTest() override {
    fs::remove_all(root_);
    home_.empty() ? ::unsetenv("HOME") : ::setenv("HOME", home_.c_str(), 1);
  }

  void Write(const std::string& folder, const std::string& text) {
    std::ofstream(root_ / folder / "pyproject.toml") << text;
  }
  // The file that is found from a/b/c on, relative to the root; empty: none.
  std::string Found() {
    const Result<ProjectDefaults> found = ReadProjectDefaults(root_ / "a/b/c");
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found->file.empty() ? "" : fs::path(found->file).lexically_relative(root_).string();
  }
  std::string ErrorOf(const std::string& text) {
    Write("a/b/c", text);
    const Result<ProjectDefaults> found = ReadProjectDefaults(root_ / "a/b/c");
    EXPECT_FALSE(found.ok()) << text;
    if (found.ok()) return "";
    EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
    const std::string at = (root_ / "a/b/c/pyproject.toml:").string();
    EXPECT_EQ(found.status().message().rfind(at, 0), 0U) << found.status().message();
    return found.status().message().substr(at.size());
  }

  const std::string home_ = ::getenv("HOME") == nullptr ? "" : ::getenv("HOME");
  fs::path root_;
};

constexpr char kSome[] = "[tool.gpulayer]\nslots = 2\n";

TEST_F(ProjectTest, TheNearestFileWithTheTableCounts) {
  EXPECT_EQ(Found(), "");
  Write("a", kSome);
  EXPECT_EQ(Found(), "a/pyproject.toml");
  Write("a/b", "[project]\nname = \"x\"\n[tool.other]\nx = 1\n");
  EXPECT_EQ(Found(), "a/pyproject.toml");
  Write("a/b", "[tool.gpulayer]\n");
  EXPECT_EQ(Found(), "a/b/pyproject.toml");
}

TEST_F(ProjectTest, LookingEndsWhereTheProjectDoes) {
  Write("a", kSome);
  fs::create_directories(root_ / "a/b/.git");
  EXPECT_EQ(Found(), "");
  fs::remove(root_ / "a/b/.git");
  std::ofstream(root_ / "a/b/.git") << "gitdir: x\n";  // a worktree's
  EXPECT_EQ(Found(), "");
  Write("a/b", kSome);  // the top of the repository is in it
  EXPECT_EQ(Found(), "a/b/pyproject.toml");
  fs::remove_all(root_ / "a/b/.git");
  fs::remove(root_ / "a/b/pyproject.toml");
  ::setenv("HOME", (root_ / "a").c_str(), 1);
  EXPECT_EQ(Found(), "");
  ::setenv("HOME", (root_ / "a/b").c_str(), 1);
  EXPECT_EQ(Found(), "");
  ::setenv("HOME", (root_ / "home").c_str(), 1);
  EXPECT_EQ(Found(), "a/pyproject.toml");
  fs::permissions(root_ / "a", fs::perms::all | fs::perms::sticky_bit);  // as /tmp
  EXPECT_EQ(Found(), "");
  fs::permissions(root_ / "a", fs::perms::owner_all);
}

TEST_F(ProjectTest, ValuesAreAsTheyWouldBeTyped) {
  Write("a/b", R"([tool.gpulayer]
memory = "4GiB"
slots = 2
source = "."
env-file = ["../vars", "/abs"]
output = ["*.png", "./top"]
wait-for-worker = true
no-outputs = false

[tool.gpulayer.env]
A = "1"
B = "x=y"
)");
  const Result<ProjectDefaults> found = ReadProjectDefaults(root_ / "a/b/c");
  ASSERT_TRUE(found.ok());
  using Texts = std::vector<std::string>;
  const auto texts = [&](const char* key) { return found->values.at(key).texts; };
  EXPECT_EQ(texts("memory"), Texts{"4GiB"});
  EXPECT_EQ(found->values.at("memory").line, 2);
  EXPECT_EQ(texts("slots"), Texts{"2"});
  EXPECT_EQ(fs::path(texts("source").front()), (root_ / "a/b/").lexically_normal());
  EXPECT_EQ(texts("env-file"), (Texts{(root_ / "a/vars").string(), "/abs"}));
  EXPECT_EQ(texts("output"), (Texts{"*.png", "./top"}));
  EXPECT_EQ(texts("wait-for-worker"), Texts{"true"});
  EXPECT_EQ(texts("no-outputs"), Texts{});
  EXPECT_EQ(texts("env"), (Texts{"A=1", "B=x=y"}));
}

TEST_F(ProjectTest, MistakesAreSaidWithTheirLine) {
  const std::string table = "[tool.gpulayer]\n";
  EXPECT_EQ(ErrorOf(table + "memry = \"4GiB\"\n")
                .rfind("2: \"memry\" is no default of [tool.gpulayer]. There are ", 0),
            0U);
  EXPECT_EQ(ErrorOf(table + "\nmemory = 4\n"), "3: memory must be text in quotes");
  EXPECT_EQ(ErrorOf(table + "slots = \"4\"\n"), "2: slots must be a whole number");
  EXPECT_EQ(ErrorOf(table + "no-outputs = 1\n"), "2: no-outputs must be true or false");
  EXPECT_EQ(ErrorOf(table + "output = \"*.png\"\n"),
            "2: output must be a list of texts, as [\"a\", \"b\"]");
  EXPECT_EQ(ErrorOf(table + "output = [1]\n"),
            "2: output must be a list of texts, as [\"a\", \"b\"]");
  EXPECT_EQ(ErrorOf(table + "env = [\"A=1\"]\n"), "2: env must be a table, as {K = \"V\"}");
  EXPECT_EQ(ErrorOf(table + "[tool.gpulayer.env]\nA = 1\n"), "3: env.A must be text in quotes");
  EXPECT_EQ(ErrorOf(table + "[tool.gpulayer.env]\n\"A=B\" = \"1\"\n"),
            "3: \"A=B\" is no name for env");
  EXPECT_EQ(ErrorOf("[tool]\ngpulayer = 7\n"), "2: gpulayer must be a table: [tool.gpulayer]");
  EXPECT_EQ(ErrorOf("[tool.gpulayer\n").rfind("1: ", 0), 0U);
  std::string deep;  // the library would run out of stack
  for (int i = 0; i < 100'000; ++i) deep += "a.";
  EXPECT_EQ(ErrorOf("\n" + deep + "b = 1\n"), "2: a key of more than 1000 parts");
  EXPECT_EQ(ErrorOf("[" + deep + "b]\n"), "1: a key of more than 1000 parts");
}

}  // namespace
}  // namespace gpulayer::cli
