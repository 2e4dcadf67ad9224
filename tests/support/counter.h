// "It ran exactly once": a file that each run of a job appends one line to, with O_APPEND, so that
// lines of runs at the same time never mix. What a job has to do is `command()`.
#ifndef GPULAYER_TESTS_SUPPORT_COUNTER_H_
#define GPULAYER_TESTS_SUPPORT_COUNTER_H_

#include <fcntl.h>

#include <string>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/text.h"

namespace gpulayer::testing {

class Counter {
 public:
  explicit Counter(std::string path) : path_(std::move(path)) {}  // made by the first run
  const std::string& path() const { return path_; }

  // For `sh -c`: appends "<job id> <task> <attempt number>". The path must hold no quote.
  std::string command() const {
    return "echo \"$GPULAYER_JOB_ID $GPULAYER_TASK $GPULAYER_ATTEMPT\" >> '" + path_ + "'";
  }
  Status Append(std::string_view line) const {  // for code under test that is no job
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path_, O_WRONLY | O_APPEND | O_CREAT));
    return WriteAll(fd.get(), std::string(line) + "\n");
  }

  std::vector<std::string> lines() const {
    const Result<std::string> text = ReadFile(path_);
    if (!text.ok()) return {};
    std::vector<std::string> lines = Split(*text, '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    return lines;
  }
  std::size_t runs() const { return lines().size(); }

 private:
  std::string path_;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_COUNTER_H_
