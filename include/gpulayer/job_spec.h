// What is asked for: one command with its code, needs, limits and outputs. Plain values.
#ifndef GPULAYER_JOB_SPEC_H_
#define GPULAYER_JOB_SPEC_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulayer/export.h"
#include "gpulayer/status.h"

namespace gpulayer {
GPULAYER_API_BEGIN

// Numbers are on the wire: do not change them.
enum class Accelerator : std::int32_t {
  kNone = 0,  // no wish
  kCpu = 1,   // no device, said on purpose
  kCuda = 2,
  kRocm = 3,
  kMetal = 4,
  kGpu = 5,  // any device
};

// What each node must have. A worker that could never satisfy it, even when empty, is not
// considered.
struct ResourceRequest {
  std::int32_t slots = 1;  // CPUs; with devices 0 means the worker's slots shared over its devices
  std::int64_t memory_bytes =
      0;  // reserved, and a limit where the worker can enforce one; 0: no reservation
  Accelerator accelerator = Accelerator::kNone;
  std::int32_t devices = 0;                   // 0 with an accelerator other than kCpu: 1
  std::int64_t device_memory_bytes = 0;       // least total memory of each device
  std::string device_model;                   // glob; empty: any
  std::map<std::string, std::string> labels;  // each must be equal on the worker
  std::string zone;                           // empty: any
  std::string region;                         // empty: any
  std::vector<std::string> workers;           // names or ids, any one of them; empty: any worker
};

// What comes home.
struct OutputRequest {
  bool collect = true;  // false: nothing is brought home
  std::vector<std::string>
      globs;  // narrows to what matches one of them, as "*.png", "sub/*" or "./top.txt"; empty: all new
              // and changed files. One that matches nothing is told with the files left out
  std::int64_t limit_bytes = std::int64_t{4} << 30;  // over it the rest is listed as left out
};

// The numbers of an array's tasks: first, first + step, and so on up to `last`.
struct TaskRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t step = 1;
};

// One job. Defaults are those of `gpulayer submit`.
struct JobSpec {
  std::string name;                  // UTF-8, at most 200 bytes; empty: the command's first words
  std::vector<std::string> command;  // argv, bytes; arrives unchanged, no shell involved
  std::string shell;                 // instead of `command`: a line for /bin/sh -c
  std::vector<std::pair<std::string, std::string>> env;  // later ones win
  // Environment variables whose values nobody is shown, by name: none of `env`, of 64 KiB each and
  // 256 KiB together at most, without NUL. The server seals them apart from all else and erases them
  // when the job is over; a worker has them in memory alone. Of a job that is read back the values are
  // empty.
  std::map<std::string, std::string> secrets;
  ResourceRequest resources;

  // Frozen by content at submit, becomes the working directory; empty: the job starts in an empty
  // folder, and an argument that names a file here is refused (FAILED_PRECONDITION) unless
  // `no_source` insists.
  std::string source_dir;
  bool no_source = false;
  std::int64_t source_limit_bytes = std::int64_t{512} << 20;
  std::int64_t source_limit_files = 20'000;
  std::string stdin_file;  // shipped, becomes the standard input; empty: end of input at once

  // Several tasks in one job, at most 1,000,000: numbered ones (each sees its own as GPULAYER_TASK),
  // or one for each of `items`, in order, counted from 0. Its item stands in GPULAYER_ITEM and in the
  // place of each "{}" within a word of `command`, a shell's script excepted (INVALID_ARGUMENT); bytes
  // without NUL and line end. Not both.
  std::optional<TaskRange> array;
  std::vector<std::string> items;
  std::int64_t max_parallel = 0;  // tasks at work at the same time; 0: no limit

  OutputRequest outputs;
  std::optional<std::chrono::milliseconds> time_limit;  // from the program's start
  std::chrono::milliseconds grace{15'000};              // between SIGTERM and SIGKILL
  // Of each attempt's output its beginning and its end are kept, half of this each, with 16 bytes a
  // write; LogChunk::dropped_bytes says what is missing between them. At least 64 KiB.
  std::int64_t log_limit_bytes = std::int64_t{1} << 30;
  // An attempt that fails or runs into its time limit leaves its work folder on its worker:
  // AttemptInfo::kept_folder.
  bool keep = false;
  bool wait_for_worker = false;  // queue it even if no known worker can ever run it
  // Same user and id: same job, which has the secrets that came first. Empty: one is drawn.
  std::string request_id;
};

// What no server takes. INVALID_ARGUMENT, or RESOURCE_EXHAUSTED: over a limit of the kernel's.
GPULAYER_EXPORT Status CheckSpec(const JobSpec& spec);

// A file that would ship.
struct SourceFile {
  std::string path;  // bytes, relative to source_dir
  std::int64_t size_bytes = 0;
};

// What `--dry-run` shows.
struct SourceListing {
  std::vector<SourceFile> files;  // by path
  std::int64_t total_bytes = 0;
  std::vector<std::string> warnings;  // what was left out and why
  // What ignore rules keep out, by path; a folder, with a slash at its end, stands for all in it.
  std::vector<std::string> ignored;
};

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_JOB_SPEC_H_
