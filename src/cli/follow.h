// Following a job as the one who submitted it: its bytes as they come, its end, its outputs.
#ifndef GPULAYER_CLI_FOLLOW_H_
#define GPULAYER_CLI_FOLLOW_H_

#include <cstdint>
#include <optional>
#include <string>

#include "cli/session.h"
#include "gpulayer/client.h"

namespace gpulayer::cli {

struct FollowOptions {
  LogOptions log;
  bool outputs = true;      // bring them home at the end
  bool json = false;        // one document on standard output, the job's bytes on standard error
  bool say_waiting = true;  // tell on standard error what a job waits for
  std::optional<std::int64_t> task;  // of a job that has others: the log's, and whose end counts
  bool array = false;                // known to have several tasks
  bool all_logs = false;             // of those, with the task before each line
  std::string source_dir;            // what shipped, if it is known here
  std::string again;                 // as AfterUs()
};

// Returns the exit code of the contract: the job's, or 125 when the server was lost, or 128+N when
// a signal made us leave.
int FollowJob(Session& session, Client client, std::int64_t job, const FollowOptions& options);

// How it ended, said on standard error when its exit code does not say it all.
void SayEnd(const JobInfo& job, const std::string& source_dir = "");
// Of an array that is over and did not succeed: how to see which tasks, and to run them again.
void SayFailedTasks(const JobInfo& job);
// Where they are: on a terminal, and anywhere if the folder has not the name that is expected, the
// id of `job` (0: the caller has named the folder). And what was left out.
void SayOutputs(const DownloadReport& report, std::int64_t job);

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_FOLLOW_H_
