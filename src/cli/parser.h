// A table of what can be typed: verbs, their options, and where each value goes. One .cc for each
// group of verbs fills it (verbs.h).
//
//   auto args = std::make_shared<DownArgs>();
//   Verb verb = parser.Add("down", "Stop what up or join started here.", "gpulayer down");
//   verb.Text("--data-dir", kFolder, &args->options.data_dir, "as given to up or join");
//   verb.NotBuilt({"--drain"});
//   verb.Runs([args] { return RunDown(*args); });
//
// Threads:   one.
// Ownership: what is bound has to live until the verb has run: share it with what Runs() keeps.
// Errors:    wrong usage is said on standard error and becomes an exit code. Usage() gets there by
//            an exception, as the library behind does; it does not leave Parser::Run().
#ifndef GPULAYER_CLI_PARSER_H_
#define GPULAYER_CLI_PARSER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/args.h"
#include "gpulayer/status.h"

namespace gpulayer::cli {

// For conversions and checks only, which Parser::Run() calls: ends it with this text.
[[noreturn]] void Usage(const std::string& what);
void Need(const Status& status);
template <typename T>
T Need(Result<T> result, const std::string& what) {
  if (!result.ok()) Usage(what + ": " + result.status().message());
  return *std::move(result);
}

// Values as they were typed, converted; `option` is for the error.
std::int64_t ToSize(const std::string& option, const std::string& text);
std::pair<std::string, std::string> ToKeyValue(const std::string& option, const std::string& text);

// What a value is, for the help. A path that begins with ~ is refused, in a token's file too.
inline constexpr char kFolder[] = "DIR";
inline constexpr char kFile[] = "FILE";
inline constexpr char kToken[] = "TOKEN";
inline constexpr char kNumber[] = "N";

// A value for an option that was not typed. `at`, as "pyproject.toml:7", leads what is wrong with it.
struct Preset {
  std::string option;
  std::vector<std::string> values;
  std::string at;
  bool with_typed = false;  // of one that takes many: before those that were typed
};

// One verb. The help shows its options in the order of these calls. An empty value is refused, and
// so is a second one unless the name says Many. Conversions (of what was typed) and checks run in
// this order, too, once all words have been read.
class Verb {
 public:
  using Convert = std::function<void(const std::string& text)>;

  void Flag(const std::string& name, bool* set, const std::string& help);
  void HiddenFlag(const std::string& name, bool* set, const std::string& help);
  void Text(const std::string& name, const std::string& type, std::string* value,
            const std::string& help);
  void Text(const std::string& name, const std::string& type, Convert convert,
            const std::string& help);
  // int32_t, int64_t, or an optional of them.
  template <typename T>
  void Number(const std::string& name, const std::string& type, T* value, const std::string& help);
  void Size(const std::string& name, std::int64_t* bytes, const std::string& help);
  // milliseconds, or an optional of them.
  template <typename T>
  void Duration(const std::string& name, T* value, const std::string& help) {
    Text(name, "DURATION", Into(value, name), help);
  }
  void Many(const std::string& name, const std::string& type, std::vector<std::string>* values,
            const std::string& help);
  void ManyPairs(const std::string& name, std::map<std::string, std::string>* pairs,
                 const std::string& help);
  // A word without an option before it. The usage shows that it is needed, and Check() has to say
  // so if it is missing.
  void Word(const std::string& name, std::string* value, const std::string& help);
  void Word(const std::string& name, Convert convert, const std::string& help);
  void OptionalWord(const std::string& name, std::string* value, const std::string& help);
  void Words(const std::string& name, Convert convert, const std::string& help);  // for each
  // The verb takes what stands after `--`.
  void Command(std::vector<std::string>* command);
  void OptionalCommand(std::vector<std::string>* command);  // after all words
  // Of an option that is there: the help and completion do not show it.
  void Hide(const std::string& name);
  // Options of the contract that this version does not have: said so, never taken and ignored.
  void NotBuilt(const std::vector<std::string>& names);

  // Called before all conversions and checks that stand here, with what was typed.
  using IsTyped = std::function<bool(const std::string& option)>;
  void Presets(std::function<std::vector<Preset>(const IsTyped& typed)> presets);
  // Exits with kCouldNot instead of kFailed if its answer could not be written.
  void StandsForAProgram();
  void Check(std::function<void()> check);  // what no single value shows; ends in Usage() or not
  void Runs(std::function<int()> run);

 private:
  friend class Parser;
  struct State;
  explicit Verb(State* state) : state_(state) {}
  static Convert Into(std::chrono::milliseconds* value, const std::string& name);
  static Convert Into(std::optional<std::chrono::milliseconds>* value, const std::string& name);

  State* state_;  // owned by the parser
};

class Parser {
 public:
  Parser(const std::string& about, const std::string& example);
  ~Parser();

  // Verbs are named with their group: "job", then "job list". The help has them in this order.
  void Group(const std::string& name, const std::string& help, const std::string& example);
  Verb Add(const std::string& path, const std::string& help, const std::string& example);
  void NotBuilt(const std::vector<std::string>& paths);

  std::vector<VerbInfo> Describe() const;
  Parsed Run(int argc, char** argv);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_PARSER_H_
