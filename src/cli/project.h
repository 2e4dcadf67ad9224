// [tool.gpulayer] of a pyproject.toml: what a project's submits have unless something else is typed.
#ifndef GPULAYER_CLI_PROJECT_H_
#define GPULAYER_CLI_PROJECT_H_

#include <map>
#include <string>
#include <vector>

#include "gpulayer/status.h"

namespace gpulayer::cli {

struct ProjectDefaults {
  struct Value {
    std::vector<std::string> texts;  // as they would be typed: "K=V" of a table, "true" of a flag
    int line = 0;
  };
  std::string file;                     // empty: there is none
  std::map<std::string, Value> values;  // by option, without its dashes
};

// Of the pyproject.toml with that table that is nearest to the folder, at or above it. It is looked
// for up to the top of a repository, the home folder (which is not looked at, unless it is where we
// start) and a folder that everybody may write to, where it could be anybody's.
// INVALID_ARGUMENT, with file and line: not TOML, a key that is no default, or of another type.
Result<ProjectDefaults> ReadProjectDefaults(const std::string& folder);

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_PROJECT_H_
