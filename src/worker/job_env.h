// What a job finds around itself: its environment, to the last variable, and its Python.
#ifndef GPULAYER_WORKER_JOB_ENV_H_
#define GPULAYER_WORKER_JOB_ENV_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/job.h"
#include "worker/agent/agent.h"

namespace gpulayer::worker {

struct JobEnvInput {
  std::string worker_name;
  std::string bin_dir;    // leads PATH
  std::string cache_dir;  // GPULAYER_CACHE_DIR
  std::string output_dir;
  std::string input_dir;
  std::string tmp_dir;
  std::optional<std::string> item;  // the task's, of a job with items
  std::vector<EnvVar> worker_env;   // worker.toml [env]
  // The daemon's own environment; only PATH HOME USER LANG TZ are asked for.
  std::function<std::optional<std::string>(const char* name)> daemon;
};

// "NAME=value", each name once. Later wins: the daemon's five, the worker's own, what we set, the
// user's --env; GPULAYER_JOB_ID and its like last.
std::vector<std::string> BuildJobEnv(const Assignment& assignment, const JobEnvInput& input);

// Makes `dir` hold `python` and `python3`, which run the python3 that `path` (a PATH) leads to;
// without one it is empty. Called once at start.
Status MakePythonDir(const std::string& dir, const std::string& path);

}  // namespace gpulayer::worker

#endif  // GPULAYER_WORKER_JOB_ENV_H_
