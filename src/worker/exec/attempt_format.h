// What an attempt folder says, as structs and as bytes. Written and read by the worker and by
// gpulayer-exec, which may be of different versions: names and layouts of v1 do not change.
//
// Threads:   pure functions on values.
// Errors:    Decode*: DATA_LOSS for anything that Encode* did not write; every length is checked.
// Needs the C++ standard library only, because gpulayer-exec links nothing of ours.
#ifndef GPULAYER_WORKER_EXEC_ATTEMPT_FORMAT_H_
#define GPULAYER_WORKER_EXEC_ATTEMPT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/limits.h"

namespace gpulayer {

// Names on disk, in `<data dir>/attempts/v1/<attempt id>/` (do not change).
inline constexpr char kAttemptsFolder[] = "attempts/v1";
inline constexpr char kSpecFile[] = "spec";        // written by the worker before the start
inline constexpr char kLogFile[] = "log";          // frames of model/log_frame.h
inline constexpr char kStartedFile[] = "started";  // there once the program runs
inline constexpr char kStatusFile[] = "status";    // there once the tree is gone and `log` complete
// Output behind the first half of the log's limit: frames behind a TailHeader, in two files in turn,
// each of a quarter of the limit. The newest frames are in the one with the higher number.
inline constexpr const char* kTailFiles[] = {"tail0", "tail1"};
inline constexpr char kCgroupFile[] = "cgroup";  // the path of one that may have to be removed
// With a number behind it: a socket of the worker's, for a moment (join_socket.h).
inline constexpr char kJoinPrefix[] = "join.";

// A name in an attempt folder that ends so is free: it says nothing of any attempt, and whoever
// begins a file of the name before it may take that file, empty it and give it its name. Folders
// serve one attempt after the other, so a folder in which an attempt is to begin has no other
// names, and who lets go of one leaves no other. Every file there is written in this way.
inline constexpr char kFreeSuffix[] = ".tmp";

// Every attempt's environment carries this variable; its value is the attempt's id. What is left of
// an attempt whose keepers were all killed is found by it.
inline constexpr char kAttemptIdVariable[] = "GPULAYER_ATTEMPT_ID";

inline constexpr std::size_t kMaxAttemptIdBytes = 120;
inline constexpr std::size_t kMaxAttemptSpecBytes = std::size_t{16} << 20;

// Fit for one file name: 1 to kMaxAttemptIdBytes of [A-Za-z0-9._-], not beginning with a dot.
bool IsValidAttemptId(std::string_view id);

// What to run. Bytes are bytes: nothing is quoted, split or decoded.
struct AttemptSpec {
  std::vector<std::string> argv;  // never empty; argv[0] without '/' is looked for in env's PATH
  std::vector<std::string> env;   // "NAME=value", the whole environment, in this order
  std::string cwd;                // absolute
  std::string stdin_path;         // empty: end of input at once
  std::optional<Duration> time_limit;         // from the program's start; > 0
  Duration grace = std::chrono::seconds(15);  // between SIGTERM and SIGKILL at the time limit
  // Of `log` and the tail files together, at least limits::kMinLogLimitBytes.
  std::int64_t log_limit = limits::kLogLimitBytes;
  std::int64_t memory_limit = 0;  // of all its processes, where it can be set; 0: none
  // How many variables more come with the order to start: they are never in a file (EncodeSecrets).
  std::int64_t secrets = 0;
  friend bool operator==(const AttemptSpec&, const AttemptSpec&) = default;
};

// The program runs.
struct AttemptStarted {
  std::int64_t pid = 0;  // of the program, also its process group and session
  Instant at;            // mono: BootClock of the boot it ran in
  friend bool operator==(const AttemptStarted& a, const AttemptStarted& b) {
    return a.pid == b.pid && a.at.mono == b.at.mono && a.at.wall == b.at.wall;
  }
};

// What kept the program from running, or kNone. Numbers are on disk: do not change.
enum class StartStep : std::int32_t {
  kNone = 0,     // the program ran
  kExec = 1,     // it could not be executed: exit_code is 126 or 127, or absent if the machine was
                 // short of something
  kCwd = 2,      // its working directory could not be entered
  kStdin = 3,    // its input file could not be opened
  kSpec = 4,     // `spec` is missing or damaged
  kSpawn = 5,    // pipes, log file or fork: the machine's fault
  kMonitor = 6,  // the keeper of this attempt died; the program's own end is not known
  kNever = 7,    // it was never begun (answer to Adopt)
};

// The first order to stop that reached the program while it ran. Numbers are on disk: do not
// change.
enum class StopOrder : std::int32_t {
  kNone = 0,
  kTimeLimit = 1,  // by the attempt's own clock
  kStop = 2,       // by ExecClient::Stop
  kShutdown = 3,   // gpulayer-exec ended or was told to end
};

// At the front of a tail file.
struct TailHeader {
  std::int64_t number = 0;      // 1, 2, ...: of the files that were begun
  std::int64_t log_limit = 0;   // AttemptSpec's
  std::int64_t head_bytes = 0;  // size of `log`, which grows no more
  // What the program had written: into `log`, and all before the first frame behind this header.
  std::int64_t head_output = 0;
  std::int64_t output_before = 0;
  bool out_at_line = true;  // that ended with a line, of each stream
  bool err_at_line = true;
  friend bool operator==(const TailHeader&, const TailHeader&) = default;
};
inline constexpr std::size_t kTailHeaderBytes = 52;

// How it ended. With failed_step == kNone exactly one of exit_code and signal is set, and they are
// those of the main program as the kernel gave them, whatever order was in force.
struct AttemptStatus {
  StartStep failed_step = StartStep::kNone;
  std::int32_t error = 0;  // errno of the failed step
  std::optional<std::int32_t> exit_code;
  std::optional<std::int32_t> signal;
  StopOrder order = StopOrder::kNone;
  bool killed = false;  // something was still alive when the grace was over and got SIGKILL
  std::optional<AttemptStarted> started;
  std::optional<Instant> main_ended;     // the main program was over
  Instant ended;                         // nothing of the attempt was alive, the log complete
  std::int64_t log_bytes = 0;            // of the log; with tail files at least as much as it has
  std::int64_t log_dropped_bytes = 0;    // output that could not be written (disk full)
  std::int64_t swept = 0;                // processes left over by the main program, killed
  std::vector<std::string> swept_names;  // of the first ones: "123 sleep"
  std::int64_t unreachable = 0;          // left over and not ours to kill (another user's)
  std::string attempt;                   // whose it is
  std::int64_t memory_limit = 0;         // that was in force; 0: none was
  std::int64_t oom_kills = 0;            // of its processes, by the kernel, at that limit
};
bool operator==(const AttemptStatus& a, const AttemptStatus& b);

// A command that joins a running attempt (join.h), and what becomes of it: a packet each.
struct JoinOrder {
  std::vector<std::string> argv;  // never empty
  bool terminal = false;          // its input, output and errors are one
  std::string term;               // TERM then; empty: the attempt's own
  friend bool operator==(const JoinOrder&, const JoinOrder&) = default;
};
struct JoinReport {
  // Numbers are on the wire: do not change.
  enum class Kind : std::int32_t { kStarted = 1, kNotStarted = 2, kEnded = 3 };
  Kind kind = Kind::kStarted;
  StartStep failed_step =
      StartStep::kNone;  // kNotStarted, as in AttemptStatus, and so the next two
  std::int32_t error = 0;
  std::optional<std::int32_t> exit_code;
  std::optional<std::int32_t> signal;
  friend bool operator==(const JoinReport&, const JoinReport&) = default;
};

std::string EncodeSpec(const AttemptSpec& spec);
Result<AttemptSpec> DecodeSpec(std::string_view bytes);
// "NAME=value" each, for the descriptor that goes with the order to start. Of the environment they
// take the place of those of the same name.
std::string EncodeSecrets(const std::vector<std::string>& secrets);
Result<std::vector<std::string>> DecodeSecrets(std::string_view bytes);
inline constexpr std::size_t kMaxSecretsFileBytes = std::size_t{2} << 20;
std::string EncodeJoinOrder(const JoinOrder& order);
Result<JoinOrder> DecodeJoinOrder(std::string_view bytes);
inline constexpr std::size_t kMaxJoinOrderBytes = std::size_t{128} << 10;  // what a packet takes
std::string EncodeJoinReport(const JoinReport& report);                    // below kMaxStatusBytes
Result<JoinReport> DecodeJoinReport(std::string_view bytes);
std::string EncodeStarted(const AttemptStarted& started);
Result<AttemptStarted> DecodeStarted(std::string_view bytes);
std::string EncodeTailHeader(const TailHeader& header);  // kTailHeaderBytes
Result<TailHeader> DecodeTailHeader(std::string_view bytes);
inline constexpr std::size_t kMaxStatusBytes = 2048;  // an encoded status is never longer
std::string EncodeStatus(const AttemptStatus& status);
// Of `attempt`; DATA_LOSS if it is another's: files serve again, and after a power cut a name may be
// newer than what is in its file.
Result<AttemptStatus> DecodeStatus(std::string_view bytes, std::string_view attempt);

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_ATTEMPT_FORMAT_H_
