// Following a job of several tasks: how far it is, the end of each failure's log, or all logs with
// the task before each line.
#ifndef GPULAYER_CLI_FOLLOW_ARRAY_H_
#define GPULAYER_CLI_FOLLOW_ARRAY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cli/session.h"
#include "gpulayer/client.h"

namespace gpulayer::cli {

struct FollowArrayOptions {
  bool all_logs = false;
  bool json = false;  // standard output belongs to a document: logs go to standard error
  // A log could not be printed; from any thread, perhaps more than once. Is to end the client's calls.
  std::function<void()> on_unwritten;
  // Logs that are read at the same time, fewer where threads are short. Tasks beyond are read as
  // others end, without any when the job is over: later, not less.
  std::size_t log_readers = 64;
};

// Until the job is over. Errors as Client::Watch. What it prints is whole lines. `unwritten`: the errno
// of standard output, if a log could not be printed there, else 0; OK then says that the job is over.
Result<JobInfo> FollowArray(Client client, std::int64_t job, const FollowArrayOptions& options,
                            int* unwritten);

// "12 of 100 done, 1 failed, 4 running"
std::string ArrayProgress(const JobInfo& job);

// Cuts what comes in pieces into whole lines, each behind `prefix`. A line over 64 KiB is passed on
// in parts of that size: the rest of it has no prefix. The last line gets an end if it has none.
class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string Take(std::string_view bytes);
  std::string Finish();

 private:
  const std::string prefix_;
  std::string line_;
  bool within_ = false;  // a part of the line is out
};

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_FOLLOW_ARRAY_H_
