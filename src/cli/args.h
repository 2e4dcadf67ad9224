// What was typed, taken apart: one plain struct a verb, and the verb's function.
//
// Each Run... prints what it has to say and returns the exit code. None knows of the parser.
#ifndef GPULAYER_CLI_ARGS_H_
#define GPULAYER_CLI_ARGS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpulayer/client.h"
#include "gpulayer/doctor.h"
#include "gpulayer/host.h"

namespace gpulayer::cli {

// Exit codes of our own.
inline constexpr int kFailed = 1;      // verbs about this installation
inline constexpr int kUsage = 2;       // wrong usage, of every verb
inline constexpr int kCouldNot = 125;  // verbs that stand for a program
inline constexpr int kCancelled = 130;

// Of every verb that talks to a server.
struct Common {
  std::string target;
  bool json = false;
};

struct SubmitArgs {
  Common common;
  JobSpec spec;
  Status fit;  // of CheckSpec
  bool detach = false;
  bool dry_run = false;
  bool all_logs = false;
  // The pyproject.toml that says what was not typed, and the options that it says; empty: none.
  std::string project_file;
  std::vector<std::string> project_options;
};
int RunSubmit(const SubmitArgs& args);

struct ListArgs {
  Common common;
  ListOptions options;
};
int RunJobList(const ListArgs& args);

struct JobArgs {
  Common common;
  std::int64_t job = 0;
  bool all_logs = false;  // of attach
  TaskOptions tasks;      // of show
};
int RunJobShow(const JobArgs& args);
int RunJobExplain(const JobArgs& args);
int RunJobAttach(const JobArgs& args);

struct LogsArgs {
  Common common;
  std::int64_t job = 0;
  bool task_given = false;  // else options.task is 0, and meant only if the job has no other
  LogOptions options;
};
int RunJobLogs(const LogsArgs& args);

struct ExecArgs {
  std::string target;
  std::int64_t job = 0;
  std::optional<std::int64_t> task;
  std::vector<std::string> command;
};
int RunJobExec(const ExecArgs& args);

struct WaitArgs {
  Common common;
  std::vector<std::int64_t> jobs;
};
int RunJobWait(const WaitArgs& args);

struct CancelArgs {
  Common common;
  std::vector<TaskSelector> tasks;
  CancelOptions options;
};
int RunJobCancel(const CancelArgs& args);

struct ResultArgs {
  Common common;
  std::int64_t job = 0;
  bool download = false;
  std::string to;
};
int RunJobResult(const ResultArgs& args);

struct RetryArgs {
  Common common;
  std::int64_t job = 0;
  RetryOptions options;
};
int RunJobRetry(const RetryArgs& args);

struct WorkerArgs {
  Common common;
  std::string worker;  // of show: name or id
};
int RunWorkerList(const WorkerArgs& args);
int RunWorkerShow(const WorkerArgs& args);

int RunStatus(const Common& args);

struct DoctorArgs {
  DiagnoseOptions options;
  bool json = false;
};
int RunDoctor(const DoctorArgs& args);
int RunDetect(const Common& args);
int RunVersion(const Common& args);

struct TokenArgs {
  Common common;
  std::string role;
  std::string user;
  std::optional<std::chrono::milliseconds> life;
  std::string id;
};
int RunTokenCreate(const TokenArgs& args);
int RunTokenList(const TokenArgs& args);
int RunTokenRevoke(const TokenArgs& args);

struct UpArgs {
  UpOptions options;
  bool foreground = false;
  bool json = false;
};
int RunUp(const UpArgs& args);

struct DownArgs {
  DownOptions options;
  bool json = false;
};
int RunDown(const DownArgs& args);

struct JoinArgs {
  JoinOptions options;
  bool foreground = false;
  bool json = false;
};
int RunJoin(const JoinArgs& args);

struct LoginArgs {
  LoginOptions options;
  bool json = false;
};
int RunLogin(const LoginArgs& args);

struct TargetArgs {
  std::string name;  // of a login; of logout: empty for the one in use
  bool json = false;
};
int RunLogout(const TargetArgs& args);
int RunTargetList(const Common& args);
int RunTargetUse(const TargetArgs& args);

// The verbs and options that there are, for completion.
struct VerbInfo {
  std::vector<std::string> path;  // {"job", "show"}
  std::string help;
  std::vector<std::string> options;
  std::vector<std::string> with_value;  // those of them that take one
};
int RunCompletion(const std::string& shell, const std::vector<VerbInfo>& verbs);

// The one use of the command line parser. Either the chosen verb, ready to run, or an exit code:
// help was printed (0), or the usage was wrong and was said so (2).
struct Parsed {
  std::function<int()> run;
  int exit_code = 0;
  int failed = kFailed;  // instead of 0, if its answer could not be written
};
Parsed Parse(int argc, char** argv);

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_ARGS_H_
