// Up, Down, Join: the daemons of this machine.
#include <algorithm>

#include "base/host.h"
#include "base/text.h"
#include "client/convert.h"
#include "client/daemons.h"
#include "client/dial.h"
#include "client/handshake.h"
#include "client/interrupt_state.h"
#include "client/paths.h"
#include "gpulayer/host.h"
#include "gpulayer/v1/admin.pb.h"

namespace gpulayer {
namespace {

using client::DaemonDir;
using client::DaemonRecord;
using client::Method;
using client::ProcessId;
using client::Transport;

constexpr char kListen[] = "0.0.0.0:7461";
constexpr auto kTokenLife = std::chrono::hours(24);

client::CallOptions Soon() {
  return {std::chrono::steady_clock::now() + std::chrono::seconds(10), nullptr};
}

bool Alive(const std::optional<ProcessId>& process) { return process && client::IsAlive(*process); }

bool Same(const std::optional<ProcessId>& a, const std::optional<ProcessId>& b) {
  return a && b && a->pid == b->pid && a->started == b->started;
}

std::vector<std::string> WorkerArgs(const DaemonDir& dir,
                                    const std::optional<std::int32_t>& slots) {
  std::vector<std::string> args = {"--data-dir", dir.path()};
  if (slots) args.insert(args.end(), {"--slots", std::to_string(*slots)});
  return args;
}

// What is asked for explicitly and differs from what runs.
bool Differs(const api::UpOptions& options, const DaemonDir& dir, const DaemonRecord& record) {
  return (options.listen && *options.listen != record.listen) ||
         (options.worker && *options.worker != record.worker) ||
         (options.slots && WorkerArgs(dir, options.slots) != record.worker_args);
}

std::unique_ptr<Transport> Reach(const std::string& data_dir) {
  return client::MakeGrpcTransport({client::ServerSocket(data_dir), "", "", ""});
}

Status StartServer(const DaemonDir& dir, DaemonRecord* record) {
  std::vector<std::string> args = {"--data-dir", dir.path()};
  if (!record->listen.empty()) args.insert(args.end(), {"--listen", record->listen});
  GPULAYER_ASSIGN_OR_RETURN(const client::StartedDaemon server,
                            dir.Start("gpulayer-server", args, client::kServerLog));
  record->server_process = server.process;
  GPULAYER_RETURN_IF_ERROR(dir.Save(*record));
  return dir.WaitUntil(server, "start the server", [&] {
    if (client::ServerSocket(dir.path()).empty()) return false;
    v1::StatusReply reply;
    return Reach(dir.path())->Call(Method::kStatus, client::StatusQuestion(), &reply, Soon()).ok();
  });
}

Status StartWorker(const DaemonDir& dir, DaemonRecord* record, std::vector<std::string> args,
                   Transport& server) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string id, client::WorkerIdentity(dir.path()));
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

// Starts of the record what does not run.
Status StartMissing(const DaemonDir& dir, DaemonRecord* record, api::UpReport* report) {
  // Without its socket (somebody cleaned up) it cannot be reached from here, and makes none again.
  if (Alive(record->server_process) && !PathExists(client::ServerSocket(dir.path()))) {
    DaemonRecord deaf;
    deaf.server_process = record->server_process;
    dir.Stop(deaf);
  }
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
  if (report->addresses.empty()) return OkStatus();
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
  return FailedPrecondition("this machine is a worker of " + record.address +
                            " already. Run `gpulayer down` first, or use another --data-dir.");
}

}  // namespace

Result<api::UpReport> api::Up(const UpOptions& options) {
  UpReport report;
  if (options.listen) GPULAYER_RETURN_IF_ERROR(client::CheckListenAddress(*options.listen));
  GPULAYER_ASSIGN_OR_RETURN(report.data_dir, DataDir(options.data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const DaemonDir dir, DaemonDir::Lock(report.data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const std::optional<DaemonRecord> before, dir.Load());
  const bool runs = before && (Alive(before->server_process) || Alive(before->worker_process));
  if (runs && before->kind == DaemonRecord::Kind::kJoin) return JoinedElsewhere(*before);
  if (runs && Differs(options, dir, *before)) {
    return AlreadyExists("it is up already in " + dir.path() +
                         ", with other options. Run `gpulayer down` first to change them.");
  }
  DaemonRecord record;
  record.listen = kListen;
  record.worker_args = WorkerArgs(dir, std::nullopt);
  // What died all at once, as with the machine, starts again as it was.
  if (before && before->kind == DaemonRecord::Kind::kUp) record = *before;
  if (!runs) {
    if (options.listen) record.listen = *options.listen;
    if (options.worker) record.worker = *options.worker;
    if (options.slots) record.worker_args = WorkerArgs(dir, options.slots);
  }
  report.was_up = runs;
  if (const Status started = StartMissing(dir, &record, &report); !started.ok()) {
    Undo(dir, before, record);
    return started;
  }
  if (!runs) report.restarted.clear();
  return report;
}

Result<api::DownReport> api::Down(const DownOptions& options) {
  DownReport report;
  GPULAYER_ASSIGN_OR_RETURN(const std::string data_dir, DataDir(options.data_dir));
  if (!PathExists(data_dir)) return report;
  GPULAYER_ASSIGN_OR_RETURN(const DaemonDir dir, DaemonDir::Lock(data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const std::optional<DaemonRecord> record, dir.Load());
  if (!record) return report;
  if (record->kind == DaemonRecord::Kind::kJoin && !Alive(record->worker_process)) {
    report.ended_worker_of = record->address;
  }
  report.stopped = dir.Stop(*record);
  GPULAYER_RETURN_IF_ERROR(dir.Forget());
  return report;
}

Status api::WatchDaemons(const std::string& data_dir, const Interrupt& interrupt) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string path, DataDir(data_dir));
  std::optional<DaemonRecord> record;
  {
    GPULAYER_ASSIGN_OR_RETURN(const DaemonDir dir, DaemonDir::Lock(path));
    GPULAYER_ASSIGN_OR_RETURN(record, dir.Load());
  }
  if (!record) return FailedPrecondition("nothing is up in " + path);
  do {
    if (record->server_process && !Alive(record->server_process)) {
      return Unavailable("the server has ended. See " + path + "/log/server.log.");
    }
    if (record->worker_process && !Alive(record->worker_process)) {
      return Unavailable("the worker has ended. See " + path + "/log/worker.log.");
    }
  } while (interrupt.state()->SleepFor(std::chrono::milliseconds(200)));
  return OkStatus();
}

Result<api::JoinReport> api::Join(const JoinOptions& options) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string data_dir, DataDir(options.data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const DaemonDir dir, DaemonDir::Lock(data_dir));
  GPULAYER_ASSIGN_OR_RETURN(const std::optional<DaemonRecord> before, dir.Load());
  if (before && (Alive(before->server_process) || Alive(before->worker_process))) {
    if (before->kind == DaemonRecord::Kind::kJoin) return JoinedElsewhere(*before);
    return FailedPrecondition("a server is up here already, in " + data_dir +
                              ". Run `gpulayer down` first, or use another --data-dir.");
  }
  JoinReport report;
  GPULAYER_ASSIGN_OR_RETURN(report.worker_id, client::WorkerIdentity(data_dir));
  GPULAYER_ASSIGN_OR_RETURN(
      const client::Introduction met,
      client::Introduce(options.address, options.token, "worker", report.worker_id));
  const std::string join_dir = JoinPath(data_dir, "join");
  GPULAYER_RETURN_IF_ERROR(MakeDirs(join_dir, 0700));
  const std::string ca_file = JoinPath(join_dir, "ca.pem");
  const std::string credential_file = JoinPath(join_dir, "credential");
  GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(ca_file, met.ca_pem));
  GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(credential_file, met.credential + "\n"));

  DaemonRecord record;
  record.kind = DaemonRecord::Kind::kJoin;
  record.address = met.address;
  record.worker_args = WorkerArgs(dir, options.slots);
  std::vector<std::string>& args = record.worker_args;
  args.insert(args.end(), {"--ca", ca_file, "--credential-file", credential_file});
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) args.insert(args.end(), {flag, value});
  };
  add("--name", options.name);
  add("--zone", options.zone);
  add("--region", options.region);
  for (const auto& [key, value] : options.labels) add("--label", key + "=" + value);

  const std::unique_ptr<Transport> server =
      client::MakeGrpcTransport({"", met.address, met.ca_pem, met.credential});
  std::vector<std::string> all = {"--server", met.address};
  all.insert(all.end(), args.begin(), args.end());
  GPULAYER_ASSIGN_OR_RETURN(const client::StartedDaemon worker,
                            dir.Start("gpulayer-worker", all, client::kWorkerLog));
  record.worker_process = worker.process;
  GPULAYER_RETURN_IF_ERROR(dir.Save(record));
  const Status joined = dir.WaitUntil(worker, "start the worker", [&] {
    const std::optional<std::string> name = client::NameIfOnline(*server, report.worker_id);
    report.name = name.value_or("");
    return name.has_value();
  });
  if (!joined.ok()) {
    dir.Stop(record);
    IgnoreError(dir.Forget(), "the reason of the failed start is what counts");
    return joined;
  }
  return report;
}

}  // namespace gpulayer
