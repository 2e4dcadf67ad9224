#include "gpulayer/doctor.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/account_limits.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/host.h"
#include "base/text.h"
#include "client/daemons.h"
#include "client/doctor_rules.h"
#include "client/paths.h"
#include "client/spawn.h"
#include "client/targets.h"
#include "gpulayer/client.h"
#include "gpulayer/version.h"

namespace gpulayer::client {
namespace {

using api::Finding;

// What a program says of itself, its first line.
Result<std::string> VersionLine(const std::string& program) {
  SpawnOptions spawn;
  spawn.argv = {program, "--version"};
  GPULAYER_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  spawn.stdout_fd = spawn.stderr_fd = pipe.write_end.get();
  GPULAYER_ASSIGN_OR_RETURN(const pid_t pid, Spawn(spawn));
  pipe.write_end.Reset();
  const Result<std::string> text = ReadAll(pipe.read_end.get(), 64 * 1024);
  ::waitpid(pid, nullptr, 0);
  if (!text.ok()) return text.status();
  return Printable(text->substr(0, text->find('\n')));
}

class Doctor {
 public:
  explicit Doctor(const api::DiagnoseOptions& options) : options_(options) {}

  std::vector<Finding> Run() {
    Install();
    const bool can_ask = Limits();
    Configuration();
    if (can_ask) Logins();
    DataDirectory(can_ask);
    if (can_ask) Server();
    return std::move(findings_);
  }

 private:
  void Fine(const std::string& check, const std::string& text) {
    findings_.push_back({check, true, text});
  }
  void Failed(const std::string& check, const std::string& text) {
    findings_.push_back({check, false, text});
  }

  void Install() {
    std::string folder;
    for (const char* name : {"gpulayer-server", "gpulayer-worker", "gpulayer-exec"}) {
      const Result<std::string> program = FindProgram(name);
      if (!program.ok()) return Failed("install", program.status().message());
      folder = DirName(*program);
      if (std::string(name) == "gpulayer-exec") continue;  // it has no version of its own to tell
      const std::string wanted = std::string(name) + " " + api::Version() + " ";
      const Result<std::string> said = VersionLine(*program);
      if (!said.ok()) return Failed("install", *program + ": " + said.status().message());
      if ((*said + " ").starts_with(wanted)) continue;  // "(protocol 1.0)" follows
      return Failed("install", *program + " says \"" + *said + "\", and this is version " +
                                   api::Version() +
                                   ": install all programs of one version, in one folder.");
    }
    Fine("install", std::string("version ") + api::Version() +
                        "; gpulayer-server, gpulayer-worker and gpulayer-exec in " + folder);
  }

  bool Limits() {
    const Status enough = CheckAccountLimits(kDaemonAddressBytes, kDaemonFiles);
    if (!enough.ok()) return Failed("limits", enough.message()), false;
    std::string text;
    rlimit limit{};
    for (const auto& [which, what] : {std::pair{RLIMIT_NOFILE, " open files"},
                                      std::pair{RLIMIT_NPROC, " processes and threads"}}) {
      if (::getrlimit(which, &limit) != 0) continue;
      const bool none = limit.rlim_cur == RLIM_INFINITY;
      text += (text.empty() ? "" : ", ") +
              (none ? "any number of" : std::to_string(limit.rlim_cur)) + what;
      // Nobody counts those of root.
      if (which == RLIMIT_NPROC && !none && limit.rlim_cur < kLeastThreads && ::geteuid() != 0) {
        return Failed("limits", std::to_string(limit.rlim_cur) + what + " are few: a server has " +
                                    std::to_string(kLeastThreads) + ". " + kRaiseLimits),
               false;
      }
    }
    return Fine("limits", text), true;
  }

  // Of a folder or file of ours.
  bool OnlyOurs(const std::string& check, const std::string& path, mode_t closed,
                const std::string& advice) {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) return true;
    if (info.st_uid != ::geteuid() && info.st_uid != 0) {
      Failed(check, path + ": it belongs to another account. " + advice);
      return false;
    }
    const mode_t open = info.st_mode & closed;
    if (open == 0 || (info.st_mode & S_ISVTX) != 0) return true;
    Failed(check, path + ": other accounts may " + ((open & 0022) != 0 ? "write" : "look") +
                      " there. Run `chmod " + (closed == 0077 ? "go-rwx " : "go-w ") + path + "`.");
    return false;
  }

  void Configuration() {
    const std::string kCheck = "configuration";
    const Result<std::string> dir = ConfigDir(options_.config_dir);
    if (!dir.ok()) return Failed(kCheck, dir.status().message());
    if (!PathExists(*dir)) return Fine(kCheck, *dir + ": nothing yet");
    const std::string advice = "Name another with GPULAYER_CONFIG_DIR.";
    const std::string targets = JoinPath(*dir, "targets");
    if (!OnlyOurs(kCheck, *dir, 0022, advice) || !OnlyOurs(kCheck, targets, 0077, advice)) return;
    const LoginStore store(*dir);
    const Result<std::vector<Login>> logins = store.List();
    if (!logins.ok()) return Failed(kCheck, logins.status().message());
    logins_ = *logins;
    for (const Login& login : logins_) {
      if (!OnlyOurs(kCheck, JoinPath(targets, login.name + ".json"), 0077, advice)) return;
    }
    const Result<std::optional<std::string>> in_use = store.InUse();
    if (!in_use.ok()) return Failed(kCheck, in_use.status().message());
    const std::size_t n = logins_.size();
    Fine(kCheck, *dir + ": " + (n == 0 ? "no login" : Counted(n, "login")) +
                     (*in_use ? ", " + **in_use + " in use" : ""));
  }

  // Asked once, whoever wants to know.
  const Result<ServerView>& Ask(const std::string& target) {
    const auto known = views_.find(target);
    if (known != views_.end()) return known->second;
    return views_.emplace(target, AskNow(target)).first->second;
  }

  Result<ServerView> AskNow(const std::string& target) {
    api::ClientOptions options;
    options.target = target;
    options.data_dir = options_.data_dir;
    options.config_dir = options_.config_dir;
    options.call_timeout = options_.patience;
    ServerView view;
    GPULAYER_ASSIGN_OR_RETURN(api::Client client, api::Client::Connect(options));
    view.address = client.address();
    GPULAYER_ASSIGN_OR_RETURN(view.server, client.ServerStatus());
    GPULAYER_ASSIGN_OR_RETURN(view.workers, client.Workers());
    view.asked = Clock::System().Now().wall;
    return view;
  }

  void Logins() {
    for (const Login& login : logins_) {
      const std::string check = "login " + login.name;
      if (!login.damage.empty()) {
        Failed(check, login.damage);
        continue;
      }
      const Result<ServerView>& view = Ask(login.name);
      if (!view.ok()) {
        Failed(check, view.status().message());
      } else {
        Fine(check, login.address + ": " + view->server.user + " (" + view->server.role +
                        "), version " + view->server.version);
      }
    }
  }

  void DataDirectory(bool can_ask) {
    const std::string kCheck = "data directory";
    const Result<std::string> found = DataDir(options_.data_dir);
    if (!found.ok()) return Failed(kCheck, found.status().message());
    const std::string& dir = *found;
    if (!PathExists(dir)) return Fine(kCheck, dir + ": nothing yet; `gpulayer up` makes it");
    if (const Status look = CheckMayLookInto(dir); !look.ok())
      return Failed(kCheck, look.message());
    if (!OnlyOurs(kCheck, dir, 0022, "Name another with GPULAYER_DATA_DIR.")) return;
    const Result<std::optional<DaemonRecord>> record = FindDaemons(dir);
    if (!record.ok()) return Failed(kCheck, record.status().message());
    DaemonsView view;
    view.dir = dir;
    view.socket_left = PathExists(JoinPath(dir, "server.sock"));
    if (*record) {
      view.record = **record;
      const auto alive = [](const std::optional<ProcessId>& p) { return p && IsAlive(*p); };
      view.server_lives = alive((*record)->server_process);
      view.worker_lives = alive((*record)->worker_process);
    }
    findings_.push_back(OfDaemons(view));
    if (const Result<std::int64_t> free = FreeBytes(dir); free.ok()) {
      findings_.push_back(OfDisk(dir, *free));
    }
    if (!view.server_lives || !can_ask) return;
    const Result<ServerView>& here = Ask("here");
    if (!here.ok()) Failed("server here", here.status().message());
  }

  void Server() {
    const Result<Target> target =
        ResolveTarget({options_.target, options_.config_dir, options_.data_dir});
    if (!target.ok()) {
      const Result<std::string> dir = DataDir(options_.data_dir);
      const bool only_joined = dir.ok() && !JoinedServer(*dir).empty();
      // A machine that runs the jobs of others needs no login.
      return only_joined && options_.target.empty() ? Fine("server", target.status().message())
                                                    : Failed("server", target.status().message());
    }
    if (target->kind == Target::Kind::kLocal) {
      return Fine("server", "local: each command has a private one");
    }
    const Result<ServerView>& view = Ask(target->name);
    if (!view.ok()) return Failed("server", view.status().message());
    for (Finding& finding : OfServer(target->name, *view)) findings_.push_back(std::move(finding));
    if (target->kind != Target::Kind::kLogin) return;
    if (std::optional<Finding> clock = OfClock(*view)) findings_.push_back(*std::move(clock));
  }

  const api::DiagnoseOptions& options_;
  std::vector<Finding> findings_;
  std::vector<Login> logins_;
  std::map<std::string, Result<ServerView>> views_;  // by target
};

}  // namespace
}  // namespace gpulayer::client

namespace gpulayer {

std::vector<api::Finding> api::Diagnose(const DiagnoseOptions& options) {
  return client::Doctor(options).Run();
}

}  // namespace gpulayer
