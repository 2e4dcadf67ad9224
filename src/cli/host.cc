// up, down, join, login, logout, target: this machine's part.
#include "gpulayer/host.h"

#include <algorithm>
#include <cstdlib>

#include "cli/args.h"
#include "cli/ask_token.h"
#include "cli/hints.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/session.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

int Failed(const Status& status) {
  const std::string step = NextStep(status);
  PrintNote(status.message() + (step.empty() ? "" : ". " + step));
  // Other options for what runs already is a wrong use of the verb.
  const bool usage =
      status.code() == StatusCode::kAlreadyExists || status.code() == StatusCode::kInvalidArgument;
  return usage ? kUsage : kFailed;
}

// None was given, it is none, or the file that is to hold it is not there.
int NoToken(const Status& status) { return Failed(status), kUsage; }

// Until a signal, or until a daemon has died; then all is stopped.
int StayInForeground(Session& session, const std::string& data_dir) {
  const Status status = WatchDaemons(data_dir, session.leave());
  if (!status.ok()) PrintError(status);
  if (status.code() == StatusCode::kCancelled) return 0;  // what is up by now is somebody else's
  DownOptions down;
  down.data_dir = data_dir;
  const Result<DownReport> stopped = Down(down);
  if (!stopped.ok()) return Failed(stopped.status());
  return status.ok() ? 0 : kFailed;
}

std::string TasksText(std::int64_t n) { return std::to_string(n) + (n == 1 ? " task" : " tasks"); }

std::string InterruptedText(const DownReport& report, bool joined) {
  const std::int64_t here = report.interrupted_here;
  const std::int64_t elsewhere = report.interrupted_tasks - here;
  std::vector<std::string> said;
  if (here > 0) {
    said.push_back(TasksText(here) + (here == 1 ? " was" : " were") + " running here: " +
                   (joined ? "the server starts it again, on this machine or another"
                           : "begins again at the next `gpulayer up`") +
                   ", unless it is being cancelled or its program is over");
  }
  if (elsewhere > 0) {
    said.push_back(TasksText(elsewhere) +
                   (elsewhere == 1 ? " goes on on another machine" : " go on on other machines"));
  }
  std::string text;
  for (const std::string& part : said) text += (text.empty() ? "" : "; ") + part;
  return text;
}

// Where work goes by now, if that is not the server that was just started.
void SayOtherTarget() {
  const Result<std::vector<TargetInfo>> targets = ListTargets();
  if (!targets.ok()) return;
  for (const TargetInfo& target : *targets) {
    if (!target.in_use) continue;
    PrintNote("`gpulayer submit` goes to the login in use, " + target.name + " (" +
              Printable(target.address) + "); --target here means this server");
  }
}

}  // namespace

int RunUp(const UpArgs& args) {
  std::optional<Session> session;
  if (args.foreground) session.emplace();
  const Result<UpReport> report = Up(args.options);
  if (!report.ok()) return Failed(report.status());
  PrintOut(args.json ? UpJson(*report) : UpText(*report));
  const char* env = std::getenv("GPULAYER_DATA_DIR");
  if (!args.options.data_dir.empty() && (env == nullptr || report->data_dir != env)) {
    PrintNote("other commands find it with: export GPULAYER_DATA_DIR=" +
              ShellWords({report->data_dir}));
  }
  SayOtherTarget();
  return session ? StayInForeground(*session, report->data_dir) : 0;
}

int RunDown(const DownArgs& args) {
  const Result<DownReport> report = Down(args.options);
  if (!report.ok()) return Failed(report.status());
  if (args.json) {
    PrintOut(DownJson(*report));
  } else if (!report->ended_worker_of.empty()) {
    const std::string address = Printable(report->ended_worker_of);
    PrintOut(
        "the worker of " + address +
        " was not running: it had ended by itself (why: log/worker.log of the data directory). To "
        "join again, with a new token:\n  gpulayer join " +
        address + " --token TOKEN\n");
  } else {
    std::string text;
    for (const std::string& name : report->stopped) text += (text.empty() ? "" : " and ") + name;
    PrintOut(text.empty() ? "nothing was up here, in " + Printable(report->data_dir) + "\n"
                          : "stopped " + text + "\n");
  }
  if (report->interrupted_tasks > 0) {
    const std::vector<std::string>& names = report->stopped;
    const bool joined = std::find(names.begin(), names.end(), "server") == names.end();
    PrintNote(InterruptedText(*report, joined));
  }
  return 0;
}

int RunJoin(const JoinArgs& args) {
  JoinArgs mine = args;
  // Without one it is a worker that starts again.
  const char* env = std::getenv("GPULAYER_TOKEN");
  if (!args.options.token.empty() || (env != nullptr && !args.options.address.empty())) {
    Result<std::string> token = AskToken(args.options.token);
    if (!token.ok()) return NoToken(token.status());
    mine.options.token = *token;
  }
  std::optional<Session> session;  // a signal while a token is typed ends us as it does elsewhere
  if (args.foreground) session.emplace();
  const Result<JoinReport> report = Join(mine.options);
  if (!report.ok()) return Failed(report.status());
  PrintOut(args.json ? JoinJson(*report)
                     : "this machine is " + std::string(report->was_joined ? "already " : "") +
                           "worker " + report->name + " of " + report->address + "\n");
  if (report->name_shared) {
    PrintNote(
        "another worker that is online is named " + report->name + " too, and --worker " +
        report->name +
        " means either. To rename this one: `gpulayer down`, then `gpulayer join --name NAME`");
  }
  return session ? StayInForeground(*session, args.options.data_dir) : 0;
}

int RunLogin(const LoginArgs& args) {
  LoginOptions options = args.options;
  Result<std::string> token = AskToken(options.token);
  if (!token.ok()) return NoToken(token.status());
  options.token = *token;
  const Result<TargetInfo> target = Login(options);
  if (!target.ok()) return Failed(target.status());
  if (args.json) return PrintOut(TargetJson(*target)), 0;
  PrintOut("logged in to " + target->address + " as " + target->user + " (" + target->role +
           "); it is the target in use, by the name " + target->name + "\n");
  return 0;
}

int RunLogout(const TargetArgs& args) {
  const Result<std::string> gone = Logout(args.name);
  if (!gone.ok()) return Failed(gone.status());
  if (args.json) return PrintOut(LogoutJson(*gone)), 0;
  PrintOut("forgot the login " + *gone + "\n");
  return 0;
}

int RunTargetList(const Common& args) {
  const Result<std::vector<TargetInfo>> targets = ListTargets();
  if (!targets.ok()) return Failed(targets.status());
  for (const TargetInfo& t : *targets) {
    if (!t.damage.empty()) PrintNote(t.damage + " `gpulayer logout " + t.name + "` forgets it");
  }
  if (args.json) return PrintOut(TargetListJson(*targets)), 0;
  Table table({"NAME", "ADDRESS", "USER", "ROLE", "IN USE"});
  for (const TargetInfo& t : *targets) {
    if (!t.damage.empty()) continue;
    table.Add({t.name, t.address, t.user, t.role, t.in_use ? "yes" : ""});
  }
  PrintOut(table.ToText());
  return 0;
}

int RunTargetUse(const TargetArgs& args) {
  if (const Status used = UseTarget(args.name); !used.ok()) return Failed(used);
  if (!args.json) return PrintOut(args.name + " is in use now\n"), 0;
  const Result<std::vector<TargetInfo>> targets = ListTargets();
  if (!targets.ok()) return Failed(targets.status());
  for (const TargetInfo& target : *targets) {
    if (target.name == args.name) PrintOut(TargetJson(target));
  }
  return 0;
}

}  // namespace gpulayer::cli
