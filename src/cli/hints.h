// What somebody who typed something else may have meant.
//
// Threads: any. Nothing waits for a server, or fails: no idea is an empty string.
#ifndef GPULAYER_CLI_HINTS_H_
#define GPULAYER_CLI_HINTS_H_

#include <string>
#include <vector>

#include "gpulayer/job_info.h"
#include "gpulayer/job_spec.h"
#include "gpulayer/status.h"

namespace gpulayer::cli {

// `typed` is what is no verb, `group` what stands before it (may be empty), `verbs` are those that
// there are, as "job list". Returns such a verb.
std::string MeantVerb(const std::string& group, const std::string& typed,
                      const std::vector<std::string>& verbs);

// The same of an option ("--gpus") among a verb's.
std::string MeantOption(const std::string& typed, const std::vector<std::string>& options);

// What to do about an error that does not say it; empty: nothing to add.
std::string NextStep(const Status& status);

// A path that begins with a ~ which no shell has looked at, with what to write; empty: another path.
std::string TildeHint(const std::string& path);

// A program that could not be started, with its name and what to do; empty: something else. `source_dir`
// is the folder that shipped, as far as it is known here.
std::string ProgramText(const JobInfo& job, const std::string& source_dir);

// A command that is one word with spaces in it, as `submit -- "echo hi"`, and no file here.
std::string OneWordHint(const JobSpec& spec);

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_HINTS_H_
