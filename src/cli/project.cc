#include "cli/project.h"

#include <sys/stat.h>
#include <toml++/toml.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

namespace fs = std::filesystem;

enum class Kind { kText, kNumber, kFlag, kTexts, kTable, kPath, kPaths };
struct Key {
  const char* name;
  Kind kind;
};
// What every job of a project may share; --array, --stdin and the like are of one job.
constexpr Key kKeys[] = {
    {"target", Kind::kText},       {"name", Kind::kText},         {"source", Kind::kPath},
    {"source-limit", Kind::kText}, {"env", Kind::kTable},         {"env-file", Kind::kPaths},
    {"time", Kind::kText},         {"grace", Kind::kText},        {"slots", Kind::kNumber},
    {"memory", Kind::kText},       {"label", Kind::kTable},       {"zone", Kind::kText},
    {"region", Kind::kText},       {"worker", Kind::kTexts},      {"output", Kind::kTexts},
    {"no-outputs", Kind::kFlag},   {"output-limit", Kind::kText}, {"wait-for-worker", Kind::kFlag},
    {"log-limit", Kind::kText},    {"keep", Kind::kFlag},
};

std::string KnownKeys() {
  std::string out;
  for (const Key& key : kKeys) out += (out.empty() ? "" : ", ") + std::string(key.name);
  return out;
}

class Reader {
 public:
  explicit Reader(fs::path file) : file_(std::move(file)) {}

  Status Bad(const toml::node& node, const std::string& what) const {
    return Bad(node.source().begin.line, what);
  }
  Status Bad(std::size_t line, const std::string& what) const {
    return Status(StatusCode::kInvalidArgument,
                  Printable(file_.string()) + ":" + std::to_string(line) + ": " + what);
  }

  Result<ProjectDefaults> Table(const toml::table& table) const {
    ProjectDefaults out;
    out.file = file_.string();
    for (const auto& [k, node] : table) {
      const std::string name(k.str());
      const Key* known = nullptr;
      for (const Key& key : kKeys) {
        if (name == key.name) known = &key;
      }
      if (known == nullptr) {
        return Bad(node, "\"" + Printable(name) +
                             "\" is no default of [tool.gpulayer]. There are " + KnownKeys());
      }
      Result<std::vector<std::string>> texts = Texts(*known, node);
      if (!texts.ok()) return texts.status();
      out.values[name] = {*std::move(texts), static_cast<int>(node.source().begin.line)};
    }
    return out;
  }

 private:
  Result<std::vector<std::string>> Texts(const Key& key, const toml::node& node) const {
    const std::string name = key.name;
    std::vector<std::string> out;
    switch (key.kind) {
      case Kind::kText:
      case Kind::kPath:
        if (const auto text = node.value_exact<std::string>()) {
          return std::vector{key.kind == Kind::kPath ? Path(*text) : *text};
        }
        return Bad(node, name + " must be text in quotes");
      case Kind::kNumber:
        if (const auto n = node.value_exact<std::int64_t>()) return std::vector{std::to_string(*n)};
        return Bad(node, name + " must be a whole number");
      case Kind::kFlag:
        if (const auto set = node.value_exact<bool>()) {
          return *set ? std::vector<std::string>{"true"} : std::vector<std::string>{};
        }
        return Bad(node, name + " must be true or false");
      case Kind::kTexts:
      case Kind::kPaths: {
        const toml::array* list = node.as_array();
        const Status wrong = Bad(node, name + " must be a list of texts, as [\"a\", \"b\"]");
        if (list == nullptr) return wrong;
        for (const toml::node& element : *list) {
          const auto text = element.value_exact<std::string>();
          if (!text) return wrong;
          out.push_back(key.kind == Kind::kPaths ? Path(*text) : *text);
        }
        return out;
      }
      case Kind::kTable: {
        const toml::table* pairs = node.as_table();
        if (pairs == nullptr) return Bad(node, name + " must be a table, as {K = \"V\"}");
        for (const auto& [k, value] : *pairs) {
          const auto text = value.value_exact<std::string>();
          if (!text) {
            return Bad(value, name + "." + Printable(k.str()) + " must be text in quotes");
          }
          if (k.str().empty() || k.str().find('=') != std::string_view::npos) {
            return Bad(value, "\"" + Printable(k.str()) + "\" is no name for " + name);
          }
          out.push_back(std::string(k.str()) + "=" + *text);
        }
        return out;
      }
    }
    return out;
  }

  // As it is meant: from the file's folder on. A ~ is for the option's own check.
  std::string Path(const std::string& text) const {
    if (text.empty() || text[0] == '~') return text;
    return (file_.parent_path() / text).lexically_normal().string();
  }

  fs::path file_;
};

// The library reads and frees a dotted key by recursion, a level for each part, without a bound. The line of
// a key that has more than anybody writes; 0: there is none.
std::size_t LineOfDeepKey(std::string_view text) {
  constexpr int kMaxParts = 1000;
  std::size_t line = 1;
  int parts = 0;
  for (const char c : text) {
    const bool of_key = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                        std::string_view("._-\"' \t").find(c) != std::string_view::npos;
    if (c == '\n') ++line;
    if (c == '.' && ++parts > kMaxParts) return line;
    if (!of_key) parts = 0;
  }
  return 0;
}

// Of the file: none if it has not the table.
Result<ProjectDefaults> ReadFile(const fs::path& file) {
  const Reader reader(file);
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    return Status(StatusCode::kInvalidArgument,
                  Printable(file.string()) + ": it cannot be read. Let this account read it");
  }
  const std::string content = std::move(text).str();
  if (const std::size_t line = LineOfDeepKey(content); line > 0) {
    return reader.Bad(line, "a key of more than 1000 parts");
  }
  try {  // the compiled library of the distribution is the one that throws
    const toml::table root = toml::parse(content);
    const toml::node_view<const toml::node> ours = root["tool"]["gpulayer"];
    if (!ours) return ProjectDefaults{};
    if (!ours.is_table())
      return reader.Bad(*ours.node(), "gpulayer must be a table: [tool.gpulayer]");
    return reader.Table(*ours.as_table());
  } catch (const toml::parse_error& error) {
    return reader.Bad(error.source().begin.line, std::string(error.description()));
  }
}

bool MayBeAnybodys(const fs::path& folder) {
  struct stat info{};
  return ::stat(folder.c_str(), &info) != 0 || (info.st_mode & S_IWOTH) != 0;
}

}  // namespace

Result<ProjectDefaults> ReadProjectDefaults(const std::string& folder) {
  std::error_code error;
  const fs::path start = fs::canonical(folder, error);
  if (error) return ProjectDefaults{};  // who uses the folder says what is wrong with it
  const char* env = std::getenv("HOME");
  const fs::path home = env == nullptr ? fs::path() : fs::weakly_canonical(env, error);
  for (fs::path at = start;; at = at.parent_path()) {
    if (at != start && (at == home || MayBeAnybodys(at))) break;
    const fs::path file = at / "pyproject.toml";
    if (fs::is_regular_file(file, error)) {
      Result<ProjectDefaults> found = ReadFile(file);
      if (!found.ok() || !found->file.empty()) return found;
    }
    if (fs::exists(at / ".git", error) || !at.has_relative_path()) break;
  }
  return ProjectDefaults{};
}

}  // namespace gpulayer::cli
