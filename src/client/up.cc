// Up, Down, Join: the daemons of this machine.
#include <algorithm>

#include "base/host.h"
#include "base/own_file.h"
#include "base/text.h"
#include "client/convert.h"
#include "client/daemons.h"
#include "client/dial.h"
#include "client/handshake.h"
#include "client/interrupt_state.h"
#include "client/paths.h"
#include "gpulayer/host.h"
#include "gpulayer/v1/admin.pb.h"
#include "model/job.h"
#include "model/names.h"

namespace gpulayer {
namespace {

using client::DaemonDir;
using client::DaemonRecord;
using client::Method;
using client::ProcessId;
using client::Transport;

constexpr char kListen[] = "0.0.0.0:7461";
constexpr auto kTokenLife = std::chrono::hours(24);
// Of the time that `down` has: a server that hangs is stopped all the same.
constexpr auto kCountPatience = std::chrono::milliseconds(1'500);

client::CallOptions Soon() {
  return {std::chrono::steady_clock::now() + std::chrono::seconds(10), nullptr};
}

bool Alive(const std::optional<ProcessId>& process) { return process && client::IsAlive(*process); }

bool Same(const std::optional<ProcessId>& a, const std::optional<ProcessId>& b) {
  return a && b && a->pid == b->pid && a->started == b->started;
}

std::vector<std::string> WorkerArgs(const std::optional<std::int32_t>& slots) {
  if (!slots) return {};
  return {"--slots", std::to_string(*slots)};
}

std::string ArgOf(const DaemonRecord& record, const std::string& flag) {
  for (std::size_t i = 0; i + 1 < record.worker_args.size(); i += 2) {
    if (record.worker_args[i] == flag) return record.worker_args[i + 1];
  }
  return "";
}

std::string SlotsText(const DaemonRecord& record) {
  const std::string slots = ArgOf(record, "--slots");
  return slots.empty() ? "its worker was started without --slots"
                       : "its worker runs with --slots " + slots;
}

// What is asked for explicitly and differs from what runs, said as it runs: "it listens on
// 0.0.0.0:7461". Empty: nothing does.
std::string Difference(const api::UpOptions& options, const DaemonRecord& record) {
  std::vector<std::string> said;
  if (options.listen && *options.listen != record.listen) {
    said.push_back("it listens on " + Printable(record.listen));
  }
  if (options.worker && *options.worker != record.worker) {
    said.push_back(record.worker ? "it has a worker" : "it has no worker");
  }
  if (options.slots && std::to_string(*options.slots) != ArgOf(record, "--slots")) {
    said.push_back(record.worker ? SlotsText(record) : "it has no worker");
  }
  return Join(said, ", ");
}

std::unique_ptr<Transport> Reach(const std::string& data_dir) {
  return client::MakeGrpcTransport({client::ServerSocket(data_dir), "", "", ""});
}

bool Answers(const DaemonDir& dir) {
  if (!PathExists(client::ServerSocket(dir.path()))) return false;
  v1::StatusReply reply;
  return Reach(dir.path())->Call(Method::kStatus, client::StatusQuestion(), &reply, Soon()).ok();
}

Status StartServer(const DaemonDir& dir, DaemonRecord* record) {
  std::vector<std::string> args = {"--data-dir", dir.path()};
  if (!record->listen.empty()) args.insert(args.end(), {"--listen", record->listen});
  GPULAYER_ASSIGN_OR_RETURN(const client::StartedDaemon server,
                            dir.Start("gpulayer-server", args, client::kServerLog));
  record->server_process = server.process;
  GPULAYER_RETURN_IF_ERROR(dir.Save(*record));
  return dir.WaitUntil(server, "start the server", [&] { return Answers(dir); });
}

Status StartWorker(const DaemonDir& dir, DaemonRecord* record, std::vector<std::string> args,
                   Transport& server) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string id, client::WorkerIdentity(dir.path()));
  args.insert(args.end(), {"--data-dir", dir.path()});
  args.insert(args.end(), record->worker_args.begin(), record->worker_args.end());
  GPULAYER_ASSIGN_OR_RETURN(const client::StartedDaemon worker,
                            dir.Start("gpulayer-worker", args, client::kWorkerLog));
  record->worker_process = worker.process;
  GPULAYER_RETURN_IF_ERROR(dir.Save(*record));
  return dir.WaitUntil(worker, "start the worker",
                       [&] { return client::NameIfOnline(server, id).has_value(); });
}

Result<std::string> MakeToken(Transport& server, const char* role) {
  v1::CreateTokenRequest request;
  request.set_role(role);
  request.set_expires_in_ms(std::chrono::milliseconds(kTokenLife).count());
  v1::CreateTokenReply reply;
  GPULAYER_RETURN_IF_ERROR(server.Call(Method::kCreateToken, request, &reply, Soon()));
  return reply.token();
}

// Of a server that lives: until it answers, or has ended, as one does that was told to a moment ago.
Status AwaitServer(const DaemonDir& dir, const DaemonRecord& record) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (Alive(record.server_process) && !Answers(dir)) {
    if (std::chrono::steady_clock::now() >= end) {
      return DeadlineExceeded("the server here does not answer within 10s. See " + dir.path() +
                              "/log/server.log.");
    }
    DaemonDir::Pause();
  }
  return OkStatus();
}

// Starts of the record what does not run.
Status StartMissing(const DaemonDir& dir, DaemonRecord* record, api::UpReport* report) {
  // Without its socket (somebody cleaned up) it cannot be reached from here, and makes none again.
  if (Alive(record->server_process) && !PathExists(client::ServerSocket(dir.path()))) {
    DaemonRecord deaf;
    deaf.server_process = record->server_process;
    dir.Stop(deaf);
  }
  GPULAYER_RETURN_IF_ERROR(AwaitServer(dir, *record));
  if (!Alive(record->server_process)) {
    GPULAYER_RETURN_IF_ERROR(StartServer(dir, record));
    report->restarted.push_back("server");
  }
  const std::unique_ptr<Transport> server = Reach(dir.path());
  if (record->worker && !Alive(record->worker_process)) {
    const std::string socket = client::ServerSocket(dir.path());
    GPULAYER_RETURN_IF_ERROR(StartWorker(dir, record, {"--server", "unix:" + socket}, *server));
    report->restarted.push_back("worker");
  }
  v1::StatusReply status;
  GPULAYER_RETURN_IF_ERROR(
      server->Call(Method::kStatus, client::StatusQuestion(), &status, Soon()));
  report->addresses.assign(status.addresses().begin(), status.addresses().end());
  report->worker = record->worker;
  report->only_here =
      std::all_of(report->addresses.begin(), report->addresses.end(), client::IsLoopback);
  if (report->only_here) return OkStatus();
  GPULAYER_ASSIGN_OR_RETURN(report->join_token, MakeToken(*server, "worker"));
  GPULAYER_ASSIGN_OR_RETURN(report->login_token, MakeToken(*server, "client"));
  return OkStatus();
}

// After a failed start: what this call started ends; what ran before goes on, and so do the jobs of
// a worker that this call did not start.
void Undo(const DaemonDir& dir, const std::optional<DaemonRecord>& before,
          const DaemonRecord& now) {
  DaemonRecord ours = now;
  if (before && Alive(before->server_process)) ours.server_process.reset();
  if (before && Same(before->worker_process, now.worker_process)) ours.worker_process.reset();
  dir.Stop(ours);
  IgnoreError(before ? dir.Save(*before) : dir.Forget(),
              "the reason of the failed start is what counts");
}

Status JoinedElsewhere(const DaemonRecord& record) {
  if (!Alive(record.worker_process)) {
    return FailedPrecondition(
        "this machine is a worker of " + record.address +
        ", and the worker does not run. `gpulayer join` starts it again; to make this machine a "
        "server, run `gpulayer down` first, or use another --data-dir.");
  }
  return FailedPrecondition("this machine is a worker of " + record.address +
                            " already. Run `gpulayer down` first, or use another --data-dir.");
}

// What describes the machine stays as it was where it is not said anew. All arguments are pairs.
void KeepDescription(const DaemonRecord& before, std::vector<std::string>* args) {
  const std::vector<std::string> said = *args;
  for (std::size_t i = 0; i + 1 < before.worker_args.size(); i += 2) {
    const std::string& flag = before.worker_args[i];
    const bool describes = flag == "--slots" || flag == "--name" || flag == "--zone" ||
                           flag == "--region" || flag == "--label";
    if (!describes || std::find(said.begin(), said.end(), flag) != said.end()) continue;
    args->insert(args->end(), {flag, before.worker_args[i + 1]});
  }
}

// Who the server is, to a worker: named by the record, so that a join that fails leaves the record's
// own as they are.
struct JoinFiles {
  std::string ca;
  std::string credential;
};

constexpr char kCa[] = "--ca";
constexpr char kCredential[] = "--credential-file";

JoinFiles FilesIn(const std::string& dir) {
  return {JoinPath(dir, "ca.pem"), JoinPath(dir, "credential")};
}

JoinFiles FilesOf(const DaemonRecord& record) {
  return {ArgOf(record, kCa), ArgOf(record, kCredential)};
}

// What no record names any more; what cannot be removed harms nobody.
void RemoveOthers(const std::string& join_dir, const JoinFiles& kept) {
  const Result<std::vector<std::string>> names = ListDir(join_dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(join_dir, name);
    const bool used = path == kept.ca || path == kept.credential || path == DirName(kept.ca);
    if (!used) IgnoreError(RemoveTree(path), "tried again at the next join");
  }
}

// What is asked for explicitly and is not what the worker was started with, said as it runs. Empty:
// nothing is.
std::string Difference(const api::JoinOptions& options, const DaemonRecord& record) {
  std::map<std::string, std::string> labels;
  for (std::size_t i = 0; i + 1 < record.worker_args.size(); i += 2) {
    const std::string& value = record.worker_args[i + 1];
    const std::size_t equals = value.find('=');
    if (record.worker_args[i] != "--label" || equals == std::string::npos) continue;
    labels[value.substr(0, equals)] = value.substr(equals + 1);
  }
  std::vector<std::string> said;
  const auto compare = [&](const std::string& flag, const std::string& asked) {
    const std::string runs = ArgOf(record, flag);
    if (asked.empty() || asked == runs) return;
    said.push_back(runs.empty() ? "it was started without " + flag
                                : "it runs with " + flag + " " + Printable(runs));
  };
  compare("--name", options.name);
  compare("--zone", options.zone);
  compare("--region", options.region);
  compare("--slots", options.slots ? std::to_string(*options.slots) : "");
  if (!options.labels.empty() && options.labels != labels) {
    std::vector<std::string> texts;
    for (const auto& [key, value] : labels) texts.push_back("--label " + key + "=" + value);
    said.push_back(texts.empty() ? "it was started without --label"
                                 : "it runs with " + Printable(Join(texts, " ")));
  }
  return Join(said, ", ");
}

// Of a machine whose worker runs: who it is, if it is what is asked for.
Result<api::JoinReport> JoinedAlready(const api::JoinOptions& options, const std::string& data_dir,
                                      const DaemonRecord& record) {
  if (!options.address.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(const client::HostPort asked, client::ParseAddress(options.address));
    if (client::ToString(asked) != record.address) return JoinedElsewhere(record);
  }
  if (options.only_start) {
    return AlreadyExists("this machine is a worker of " + record.address +
                         " already. Run `gpulayer down` first, or leave out --foreground.");
  }
  if (const std::string other = Difference(options, record); !other.empty()) {
    return AlreadyExists("this machine is a worker of " + record.address +
                         " already, with other options: " + other +
                         ". Run `gpulayer down` first to change that.");
  }
  const JoinFiles files = FilesOf(record);
  api::JoinReport report;
  report.was_joined = true;
  report.address = record.address;
  GPULAYER_ASSIGN_OR_RETURN(report.worker_id, client::WorkerIdentity(data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const std::string ca, ReadOwnFile(files.ca));
  GPULAYER_ASSIGN_OR_RETURN(const std::string credential, ReadOwnFile(files.credential));
  const std::unique_ptr<Transport> server =
      client::MakeGrpcTransport({"", record.address, ca, std::string(TrimmedEnd(credential))});
  const std::optional<std::string> name = client::NameIfOnline(*server, report.worker_id);
  if (!name) {
    return Unavailable("this machine is a worker of " + record.address +
                       " already, and that server does not see it now. See " + data_dir +
                       "/log/worker.log.");
  }
  report.name = *name;
  report.name_shared = client::NameIsShared(*server, report.worker_id, report.name);
  return report;
}

// With a token: who the server is, and a credential of it, in new `files` below `join_dir`. Without:
// those of the last time.
Result<client::Introduction> MeetServer(const api::JoinOptions& options,
                                        const std::optional<DaemonRecord>& before,
                                        const std::string& join_dir, const std::string& worker_id,
                                        JoinFiles* files) {
  const bool again = before && before->kind == DaemonRecord::Kind::kJoin;
  if (!options.token.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(
        client::Introduction met,
        client::Introduce(options.address, options.token, "worker", worker_id));
    GPULAYER_RETURN_IF_ERROR(MakeDirs(join_dir, 0700));
    GPULAYER_ASSIGN_OR_RETURN(const std::string dir, MakeTempDir(join_dir, "server-"));
    *files = FilesIn(dir);
    GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(files->ca, met.ca_pem));
    GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(files->credential, met.credential + "\n"));
    return met;
  }
  if (!again) {
    return InvalidArgument(
        "join: no server is known whose worker this machine was last, so it needs " +
        std::string(options.address.empty() ? "an address and a token" : "a token (--token)") +
        ". `gpulayer up` prints the whole line on the server, `gpulayer token create --role "
        "worker` another token.");
  }
  client::Introduction met;
  met.address = before->address;
  if (!options.address.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(const client::HostPort asked, client::ParseAddress(options.address));
    met.address = client::ToString(asked);
  }
  *files = FilesOf(*before);
  GPULAYER_ASSIGN_OR_RETURN(met.ca_pem, ReadOwnFile(files->ca));
  GPULAYER_ASSIGN_OR_RETURN(const std::string credential, ReadOwnFile(files->credential));
  met.credential = std::string(TrimmedEnd(credential));
  if (met.address != before->address) {
    // Where the server was may lie elsewhere now; that it is the same is what its certificate and its
    // taking of our credential say.
    const std::unique_ptr<Transport> server =
        client::MakeGrpcTransport({"", met.address, met.ca_pem, met.credential});
    v1::StatusReply reply;
    const Status asked = server->Call(Method::kStatus, client::StatusQuestion(), &reply, Soon());
    if (!asked.ok()) {
      return InvalidArgument("join " + met.address + ": this machine was a worker of " +
                             before->address + "; for another server it needs a token (--token). " +
                             asked.message());
    }
  }
  return met;
}

// Of the server that is up here; 0 also if it does not answer.
std::int64_t RunningTasks(const std::string& data_dir) {
  if (client::ServerSocket(data_dir).empty()) return 0;
  api::Interrupt enough;
  const client::Alarm alarm(enough.state(), kCountPatience);
  if (!alarm.set()) return 0;
  v1::StatusReply reply;
  const Status asked =
      Reach(data_dir)->Call(Method::kStatus, client::StatusQuestion(), &reply,
                            {std::chrono::steady_clock::now() + kCountPatience, enough.state()});
  std::int64_t running = 0;
  for (const TaskState state :
       {TaskState::kPreparing, TaskState::kRunning, TaskState::kFinishing}) {
    const int i = static_cast<int>(state);
    if (asked.ok() && i < reply.task_counts_size()) running += reply.task_counts(i);
  }
  return running;
}

}  // namespace

Result<api::UpReport> api::Up(const UpOptions& options) {
  UpReport report;
  if (options.listen) GPULAYER_RETURN_IF_ERROR(client::CheckListenAddress(*options.listen));
  GPULAYER_ASSIGN_OR_RETURN(report.data_dir, DataDir(options.data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const DaemonDir dir, DaemonDir::Lock(report.data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const std::optional<DaemonRecord> before, dir.Load());
  const bool runs = before && (Alive(before->server_process) || Alive(before->worker_process));
  if (before && before->kind == DaemonRecord::Kind::kJoin && !before->down()) {
    return JoinedElsewhere(*before);
  }
  if (runs && options.only_start) {
    return AlreadyExists("it is up already, in " + dir.path() +
                         ". Run `gpulayer down` first, or leave out --foreground.");
  }
  if (const std::string other = runs ? Difference(options, *before) : ""; !other.empty()) {
    return AlreadyExists("it is up already in " + dir.path() + ", with other options: " + other +
                         ". Run `gpulayer down` first to change that.");
  }
  DaemonRecord record;
  record.listen = kListen;
  // What died all at once, as with the machine, starts again as it was. After `down` too it is found
  // at its old address, by workers and logins.
  if (before && before->kind == DaemonRecord::Kind::kUp) record = *before;
  for (std::optional<ProcessId>* process : {&record.server_process, &record.worker_process}) {
    if (!Alive(*process)) process->reset();
  }
  if (!runs) {
    if (options.listen) record.listen = *options.listen;
    // Slots are a worker's.
    if (options.worker || options.slots) record.worker = options.worker.value_or(true);
    if (options.slots) record.worker_args = WorkerArgs(options.slots);
  }
  report.was_up = runs;
  GPULAYER_RETURN_IF_ERROR(dir.Save(record));  // how, before anything is
  Status started = StartMissing(dir, &record, &report);
  if (started.code() == StatusCode::kUnavailable && before && before->server_process) {
    // One that was told to end answers for a moment more.
    report.restarted.clear();
    started = StartMissing(dir, &record, &report);
  }
  if (!started.ok()) {
    Undo(dir, before, record);
    return started;
  }
  if (!runs) report.restarted.clear();
  return report;
}

Result<api::DownReport> api::Down(const DownOptions& options) {
  DownReport report;
  GPULAYER_ASSIGN_OR_RETURN(report.data_dir, DataDir(options.data_dir));
  const std::string& data_dir = report.data_dir;
  if (!PathExists(data_dir)) return report;
  GPULAYER_ASSIGN_OR_RETURN(const DaemonDir dir, DaemonDir::Lock(data_dir));
  const auto begin = std::chrono::steady_clock::now();
  GPULAYER_ASSIGN_OR_RETURN(const std::optional<DaemonRecord> record, dir.Load());
  if (!record) return report;
  if (record->kind == DaemonRecord::Kind::kJoin && !record->down() &&
      !Alive(record->worker_process)) {
    report.ended_worker_of = record->address;
  }
  DaemonRecord down = *record;
  // Jobs end too whose worker nobody recorded.
  if (!down.worker_process) down.worker_process.emplace();
  const std::string worker_dir = JoinPath(data_dir, "worker");
  const bool has_worker = Alive(record->worker_process) || !client::FindKeepers(worker_dir).empty();
  const std::int64_t here = has_worker ? client::CountAttempts(worker_dir) : 0;
  const std::int64_t running = Alive(record->server_process) ? RunningTasks(dir.path()) : 0;
  report.stopped = dir.Stop(down, begin);
  if (!report.stopped.empty()) {
    report.interrupted_here = here;
    report.interrupted_tasks = std::max(running, here);
  }
  down.server_process.reset();
  down.worker_process.reset();
  // They are stopped all the same; only a later look takes them for daemons that died.
  Status saved = dir.Save(down);
  if (saved.code() == StatusCode::kResourceExhausted) saved = OkStatus();
  GPULAYER_RETURN_IF_ERROR(saved);
  return report;
}

namespace {

// Of daemons that have ended: by a `down`, which says so in the record; others may be up since.
bool WasStopped(const std::string& data_dir, const DaemonRecord& record) {
  if (!PathExists(data_dir)) return false;                  // and it is not made anew
  const Result<DaemonDir> dir = DaemonDir::Lock(data_dir);  // after a `down` that is at work
  if (!dir.ok()) return false;
  const Result<std::optional<DaemonRecord>> now = dir->Load();
  if (!now.ok() || !*now) return now.ok();
  // Stopped: none is named; another is up: its own id. One that only died has none any more.
  const auto another = [](const std::optional<ProcessId>& a, const std::optional<ProcessId>& b) {
    return a.has_value() && (!b || (b->pid != 0 && !Same(a, b)));
  };
  return another(record.server_process, (*now)->server_process) ||
         another(record.worker_process, (*now)->worker_process);
}

}  // namespace

Status api::WatchDaemons(const std::string& data_dir, const Interrupt& interrupt) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string path, DataDir(data_dir));
  std::optional<DaemonRecord> record;
  {
    GPULAYER_ASSIGN_OR_RETURN(const DaemonDir dir, DaemonDir::Lock(path));
    GPULAYER_ASSIGN_OR_RETURN(record, dir.Load());
  }
  if (!record || record->down()) return FailedPrecondition("nothing is up in " + path);
  do {
    const bool no_server = record->server_process && !Alive(record->server_process);
    const bool no_worker = record->worker_process && !Alive(record->worker_process);
    if (!no_server && !no_worker) continue;
    if (WasStopped(path, *record)) return Cancelled("stopped by `gpulayer down`");
    const std::string name = no_server ? "server" : "worker";
    return Unavailable("the " + name + " has ended. See " + path + "/log/" + name + ".log.");
  } while (interrupt.state()->SleepFor(std::chrono::milliseconds(200)));
  return OkStatus();
}

Status api::CheckJoin(const JoinOptions& options) {
  if (!options.address.empty()) {
    GPULAYER_RETURN_IF_ERROR(client::ParseAddress(options.address).status());
  }
  WorkerProfile profile;  // as the server looks at it
  profile.name = options.name.empty() ? "default" : options.name;
  profile.zone = options.zone;
  profile.region = options.region;
  profile.labels = options.labels;
  return CheckNames(profile);
}

Result<api::JoinReport> api::Join(const JoinOptions& options) {
  GPULAYER_RETURN_IF_ERROR(CheckJoin(options));
  GPULAYER_ASSIGN_OR_RETURN(const std::string data_dir, DataDir(options.data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const DaemonDir dir, DaemonDir::Lock(data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const std::optional<DaemonRecord> before, dir.Load());
  if (before && (Alive(before->server_process) || Alive(before->worker_process))) {
    if (before->kind == DaemonRecord::Kind::kJoin) return JoinedAlready(options, data_dir, *before);
    return FailedPrecondition("a server is up here already, in " + data_dir +
                              ". Run `gpulayer down` first, or use another --data-dir.");
  }
  JoinReport report;
  GPULAYER_ASSIGN_OR_RETURN(report.worker_id, client::WorkerIdentity(data_dir));
  const std::string join_dir = JoinPath(data_dir, "join");
  JoinFiles files;
  GPULAYER_ASSIGN_OR_RETURN(const client::Introduction met,
                            MeetServer(options, before, join_dir, report.worker_id, &files));
  report.address = met.address;

  DaemonRecord record;
  record.kind = DaemonRecord::Kind::kJoin;
  record.address = met.address;
  record.worker_args = WorkerArgs(options.slots);
  std::vector<std::string>& args = record.worker_args;
  args.insert(args.end(), {kCa, files.ca, kCredential, files.credential});
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) args.insert(args.end(), {flag, value});
  };
  add("--name", options.name);
  add("--zone", options.zone);
  add("--region", options.region);
  for (const auto& [key, value] : options.labels) add("--label", key + "=" + value);
  if (before && before->kind == DaemonRecord::Kind::kJoin) KeepDescription(*before, &args);

  const std::unique_ptr<Transport> server =
      client::MakeGrpcTransport({"", met.address, met.ca_pem, met.credential});
  GPULAYER_RETURN_IF_ERROR(dir.Save(record));  // how, before it is
  std::vector<std::string> all = {"--server", met.address, "--data-dir", data_dir};
  all.insert(all.end(), args.begin(), args.end());
  const auto start = [&]() -> Status {
    GPULAYER_ASSIGN_OR_RETURN(const client::StartedDaemon worker,
                              dir.Start("gpulayer-worker", all, client::kWorkerLog));
    record.worker_process = worker.process;
    GPULAYER_RETURN_IF_ERROR(dir.Save(record));
    return dir.WaitUntil(worker, "start the worker", [&] {
      const std::optional<std::string> name = client::NameIfOnline(*server, report.worker_id);
      report.name = name.value_or("");
      return name.has_value();
    });
  };
  if (const Status joined = start(); !joined.ok()) {
    dir.Stop(record);
    IgnoreError(before ? dir.Save(*before) : dir.Forget(),
                "the reason of the failed start is what counts");
    RemoveOthers(join_dir, before ? FilesOf(*before) : JoinFiles());
    return joined;
  }
  RemoveOthers(join_dir, files);
  report.name_shared = client::NameIsShared(*server, report.worker_id, report.name);
  return report;
}

}  // namespace gpulayer
