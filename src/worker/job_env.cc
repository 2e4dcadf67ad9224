#include "worker/job_env.h"

#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "base/fs.h"
#include "base/text.h"

namespace gpulayer::worker {
namespace {

constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";

std::string ShellQuoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out.push_back(c);
    }
  }
  return out + "'";
}

std::string FindProgram(const std::string& path, const std::string& name) {
  for (const std::string& dir : Split(path, ':')) {
    if (dir.empty() || dir.front() != '/') continue;
    std::string file = JoinPath(dir, name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// An interpreter that a plain link would change: one of a virtual environment finds its packages by
// its own place, and a version manager's script by its own name.
bool NeedsScript(const std::string& interpreter) {
  if (PathExists(JoinPath(DirName(DirName(interpreter)), "pyvenv.cfg"))) return true;
  const Result<UniqueFd> fd = OpenFile(interpreter, O_RDONLY);
  char magic[2] = {};
  return fd.ok() && ReadSome(fd->get(), magic, 2).value_or(0) == 2 && magic[0] == '#' &&
         magic[1] == '!';
}

}  // namespace

std::vector<std::string> BuildJobEnv(const Assignment& assignment, const JobEnvInput& input) {
  std::map<std::string, std::string> env;
  for (const char* name : {"PATH", "HOME", "USER", "LANG", "TZ"}) {
    if (std::optional<std::string> value = input.daemon(name)) env[name] = *std::move(value);
  }
  for (const EnvVar& var : input.worker_env) env[var.name] = var.value;

  const std::string rest = env.contains("PATH") ? env["PATH"] : kDefaultPath;
  env["PATH"] = input.bin_dir + (rest.empty() ? "" : ":" + rest);
  env["TMPDIR"] = input.tmp_dir;
  env.try_emplace("PYTHONUNBUFFERED", "1");
  const AttemptKey& key = assignment.key;
  env.try_emplace("OMP_NUM_THREADS", std::to_string(assignment.allocation.slots));
  // Empty without a device: no program is to find one that was not booked for it.
  const std::string devices = Join(assignment.allocation.device_ids, ",");
  env["CUDA_VISIBLE_DEVICES"] = devices;
  env["HIP_VISIBLE_DEVICES"] = devices;

  for (const EnvVar& var : assignment.spec->env) env[var.name] = var.value;

  env["GPULAYER_JOB_ID"] = std::to_string(key.ref.task.job.value());
  env["GPULAYER_TASK"] = std::to_string(key.ref.task.task.value());
  env["GPULAYER_ATTEMPT"] = std::to_string(key.ref.number.value());
  env["GPULAYER_ATTEMPT_ID"] = key.id.value();
  env["GPULAYER_OUTPUT_DIR"] = input.output_dir;
  env["GPULAYER_INPUT_DIR"] = input.input_dir;
  env["GPULAYER_CACHE_DIR"] = input.cache_dir;
  env["GPULAYER_WORKER"] = input.worker_name;
  if (input.item) env["GPULAYER_ITEM"] = *input.item;

  std::vector<std::string> out;
  out.reserve(env.size());
  for (const auto& [name, value] : env) out.push_back(name + "=" + value);
  return out;
}

Status MakePythonDir(const std::string& dir, const std::string& path) {
  GPULAYER_RETURN_IF_ERROR(MakeDirs(dir, 0755));
  const std::string interpreter = FindProgram(path, "python3");
  for (const char* name : {"python", "python3"}) {
    const std::string link = JoinPath(dir, name);
    const std::string fresh = link + ".new";
    GPULAYER_RETURN_IF_ERROR(RemoveTree(fresh));
    if (interpreter.empty() || DirName(interpreter) == dir) {
      GPULAYER_RETURN_IF_ERROR(RemoveTree(link));
    } else if (NeedsScript(interpreter)) {
      GPULAYER_RETURN_IF_ERROR(
          WriteFileAtomic(link, "#!/bin/sh\nexec " + ShellQuoted(interpreter) + " \"$@\"\n", 0755,
                          Durability::kNone));
    } else if (symlink(interpreter.c_str(), fresh.c_str()) != 0 ||
               rename(fresh.c_str(), link.c_str()) != 0) {
      return ErrnoStatus("link " + link, errno);
    }
  }
  return OkStatus();
}

}  // namespace gpulayer::worker
