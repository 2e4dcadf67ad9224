#include "client/daemons.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/daemon.h"
#include "base/fault_point.h"
#include "base/own_file.h"
#include "base/random.h"
#include "base/text.h"
#include "client/pages.h"
#include "client/paths.h"
#include "gpulayer/v1/workers.pb.h"
#include "model/records.h"

namespace gpulayer::client {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kRecord[] = "daemons.json";
constexpr milliseconds kPoll{20};
constexpr seconds kWorkerPatience{7};       // it ends its jobs, 5 s of grace
constexpr milliseconds kAllPatience{9500};  // `down` ends within 10 s

json ToJson(const std::optional<ProcessId>& process) {
  if (!process) return nullptr;
  return {{"pid", process->pid}, {"started", process->started}};
}

std::optional<ProcessId> ToProcess(const json& j) {
  if (!j.is_object()) return std::nullopt;
  ProcessId out;
  out.pid = j.value("pid", 0);
  out.started = j.value("started", "");
  return out;
}

// Parsed with types checked: nlohmann's value() throws where a type is another.
bool WellFormed(const json& j) {
  const auto text = [&](const char* key) { return j.contains(key) && j[key].is_string(); };
  const auto process = [&](const char* key) {
    if (!j.contains(key)) return false;
    const json& p = j[key];
    return p.is_null() || (p.is_object() && p.contains("pid") && p["pid"].is_number_integer() &&
                           p.contains("started") && p["started"].is_string());
  };
  return j.is_object() && text("kind") && text("listen") && text("address") &&
         j.contains("worker") && j["worker"].is_boolean() && j.contains("worker_args") &&
         j["worker_args"].is_array() &&
         std::all_of(j["worker_args"].begin(), j["worker_args"].end(),
                     [](const json& a) { return a.is_string(); }) &&
         process("server_process") && process("worker_process");
}

void Reap(pid_t pid) {
  ::waitpid(pid, nullptr, WNOHANG);
}  // a child of ours, or not: both are well

bool Gone(const ProcessId& process) {
  if (process.pid <= 0) return true;
  Reap(process.pid);
  return !IsAlive(process);
}

bool IsOwnPath(const std::string& flag) { return flag == "--ca" || flag == "--credential-file"; }

// What lies in the directory is recorded as seen from there: it may be moved, or copied. All
// arguments are pairs. Older records name it in full, and the directory itself too.
std::vector<std::string> Relative(const std::vector<std::string>& args, std::string dir) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i + 1 < args.size(); i += 2) {
    if (args[i] == "--data-dir") dir = args[i + 1];
  }
  for (std::size_t i = 0; i + 1 < args.size(); i += 2) {
    const std::string& value = args[i + 1];
    if (args[i] == "--data-dir") continue;
    const bool inside = IsOwnPath(args[i]) && value.rfind(JoinPath(dir, ""), 0) == 0;
    out.insert(out.end(), {args[i], inside ? value.substr(JoinPath(dir, "").size()) : value});
  }
  return out;
}

std::vector<std::string> InFull(std::vector<std::string> args, const std::string& dir) {
  for (std::size_t i = 0; i + 1 < args.size(); i += 2) {
    std::string& value = args[i + 1];
    if (IsOwnPath(args[i]) && value.rfind('/', 0) != 0) value = JoinPath(dir, value);
  }
  return args;
}

Result<std::optional<DaemonRecord>> LoadRecord(const std::string& data_dir) {
  const std::string path = JoinPath(data_dir, kRecord);
  if (!PathExists(path)) return std::optional<DaemonRecord>();
  GPULAYER_ASSIGN_OR_RETURN(const std::string text, ReadOwnFile(path));
  const json j = json::parse(text, nullptr, false);
  if (!WellFormed(j)) {
    return DataLoss(path +
                    ": damaged. End the daemons of this directory by hand, then remove the file.");
  }
  DaemonRecord out;
  out.kind = j["kind"] == "join" ? DaemonRecord::Kind::kJoin : DaemonRecord::Kind::kUp;
  out.listen = j["listen"];
  out.worker = j["worker"];
  out.address = j["address"];
  out.worker_args =
      InFull(Relative(j["worker_args"].get<std::vector<std::string>>(), data_dir), data_dir);
  out.server_process = ToProcess(j["server_process"]);
  out.worker_process = ToProcess(j["worker_process"]);
  return std::optional(out);
}

std::optional<ProcessId> Holder(const std::string& lock, const std::string& program) {
  const std::optional<pid_t> pid = LockHolder(lock);
  if (!pid) return std::nullopt;
  // Between the lock and the writing of the number the one of an earlier holder stands there.
  const std::string name = ReadFile("/proc/" + std::to_string(*pid) + "/comm").value_or("");
  const ProcessId process = Identify(*pid);
  if (TrimmedEnd(name) != program || !IsAlive(process)) return std::nullopt;
  return process;
}

std::string OptionOf(const ProcessId& process, const std::string& option) {
  const std::string path = "/proc/" + std::to_string(process.pid) + "/cmdline";
  const std::vector<std::string> argv = Split(ReadFile(path).value_or(""), '\0');
  const auto found = std::find(argv.begin(), argv.end(), option);
  return found == argv.end() || found + 1 == argv.end() ? "" : Printable(*(found + 1));
}

// Both lead to the same folder, by whatever names.
bool SameFolder(const std::string& a, const std::string& b) {
  struct stat one{};
  struct stat other{};
  return ::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0 &&
         one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

std::string FolderOf(pid_t pid) { return "/proc/" + std::to_string(pid) + "/cwd"; }

// A record that was copied with its directory names the daemons of another one. Ours hold the lock;
// should somebody have removed the lock's file, they still stand in the folder they were started in.
void ForgetAnothers(const std::string& data_dir, std::optional<ProcessId>* process) {
  if (!*process || SameFolder(FolderOf((*process)->pid), data_dir)) return;
  **process = ProcessId{};  // not stopped by `down`, and not alive
}

}  // namespace

Result<std::optional<DaemonRecord>> FindDaemons(const std::string& data_dir) {
  GPULAYER_ASSIGN_OR_RETURN(std::optional<DaemonRecord> record, LoadRecord(data_dir));
  const std::optional<ProcessId> server =
      Holder(JoinPath(data_dir, "server/lock"), "gpulayer-server");
  const std::optional<ProcessId> worker =
      Holder(JoinPath(data_dir, "worker/worker.lock"), "gpulayer-worker");
  if (record) {
    ForgetAnothers(data_dir, &record->server_process);
    ForgetAnothers(data_dir, &record->worker_process);
  }
  if (!server && !worker) return record;
  if (!record) {  // started by hand
    record.emplace();
    if (server) record->listen = OptionOf(*server, "--listen");
    const std::string address = worker ? OptionOf(*worker, "--server") : "";
    if (!server && address.rfind("unix:", 0) != 0) {
      record->kind = DaemonRecord::Kind::kJoin;
      record->address = address;
    }
  }
  if (server) record->server_process = server;
  if (worker) record->worker_process = worker;
  return record;
}

std::vector<pid_t> FindKeepers(const std::string& worker_dir) {
  std::vector<pid_t> out;
  const Result<std::vector<std::string>> names = ListDir("/proc");
  if (!names.ok()) return out;
  for (const std::string& name : *names) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const Result<std::string> text = ReadFile("/proc/" + name + "/cmdline");
    if (!text.ok()) continue;
    const std::vector<std::string> argv = Split(*text, '\0');
    if (BaseName(argv[0]) != "gpulayer-exec") continue;
    const pid_t pid = std::stoi(name);
    if (SameFolder(FolderOf(pid), worker_dir)) out.push_back(pid);
  }
  return out;
}

std::int64_t CountAttempts(const std::string& worker_dir) {
  // A folder each, whose name does not change: docs of worker/exec/attempt_format.h.
  const Result<std::vector<std::string>> names = ListDir(JoinPath(worker_dir, "attempts/v1"));
  if (!names.ok()) return 0;
  return std::count_if(names->begin(), names->end(),
                       [](const std::string& name) { return !name.starts_with('.'); });
}

Result<DaemonDir> DaemonDir::Lock(const std::string& data_dir, milliseconds patience) {
  const auto advice = [](const Status& status) {
    const bool no_folder = status.message().find("Not a directory") != std::string::npos;
    return std::string(" Choose another with --data-dir") +
           (no_folder ? ": something on its path is no folder."
                      : ", or let this account write there.");
  };
  // First of all: the record in it names processes to end, and what they are started with.
  Status made = CloseToWriters(data_dir);
  if (made.ok()) made = MakeDirs(JoinPath(data_dir, "log"), 0700);
  if (!made.ok()) {
    return Status(made.code(), "data directory: " + made.message() + "." + advice(made));
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  Result<FileLock> lock = FileLock::Acquire(JoinPath(data_dir, "daemons.lock"));
  while (lock.status().code() == StatusCode::kFailedPrecondition &&
         std::chrono::steady_clock::now() < end) {
    Pause();
    lock = FileLock::Acquire(JoinPath(data_dir, "daemons.lock"));
  }
  if (!lock.ok() && lock.status().code() == StatusCode::kFailedPrecondition) {
    return FailedPrecondition(
        "data directory " + data_dir +
        ": another `gpulayer up`, `join` or `down` is at work there. Try again when it is done.");
  }
  if (!lock.ok()) {
    return Status(lock.status().code(),
                  "data directory: " + lock.status().message() + "." + advice(lock.status()));
  }
  return DaemonDir(data_dir, *std::move(lock));
}

std::string JoinedServer(const std::string& data_dir) {
  const Result<std::optional<DaemonRecord>> record = FindDaemons(data_dir);
  if (!record.ok() || !*record || (*record)->kind != DaemonRecord::Kind::kJoin) return "";
  if ((*record)->down()) return "";
  return (*record)->address;
}

Result<std::optional<DaemonRecord>> DaemonDir::Load() const { return FindDaemons(dir_); }

Status DaemonDir::Save(const DaemonRecord& record) const {
  const json j = {{"kind", record.kind == DaemonRecord::Kind::kJoin ? "join" : "up"},
                  {"listen", record.listen},
                  {"worker", record.worker},
                  {"address", record.address},
                  {"worker_args", Relative(record.worker_args, dir_)},
                  {"server_process", ToJson(record.server_process)},
                  {"worker_process", ToJson(record.worker_process)}};
  GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(
      JoinPath(dir_, kRecord), j.dump(2, ' ', false, json::error_handler_t::replace) + "\n"));
  FaultPoint("daemons.after_save");
  return OkStatus();
}

Status DaemonDir::Forget() const { return RemoveTree(JoinPath(dir_, kRecord)); }

std::string DaemonDir::LogPath(const std::string& log) const { return dir_ + "/log/" + log; }

Result<StartedDaemon> DaemonDir::Start(const std::string& program,
                                       const std::vector<std::string>& args,
                                       const std::string& log) const {
  StartedDaemon out;
  out.log = log;
  struct stat before{};
  if (::stat(LogPath(log).c_str(), &before) == 0) {
    if (!S_ISREG(before.st_mode)) {
      return DataLoss(LogPath(log) + ": " + SpecialKind(before.st_mode) +
                      " has the place of the log. Move it away.");
    }
    out.log_begin = static_cast<std::size_t>(before.st_size);
  }
  SpawnOptions options;
  GPULAYER_ASSIGN_OR_RETURN(std::string path, FindProgram(program));
  options.argv = {std::move(path)};
  options.argv.insert(options.argv.end(), args.begin(), args.end());
  options.argv.insert(options.argv.end(), {"--started-under", std::to_string(kKeptFd)});
  options.keep_fd = lock_.fd().get();
  options.log_file = LogPath(log);
  options.directory = dir_;
  FaultPoint("daemons.before_start");
  GPULAYER_ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  FaultPoint("daemons.after_start");
  out.process = Identify(pid);
  return out;
}

std::string DaemonDir::Complaint(const StartedDaemon& daemon) const {
  const Result<std::string> text = ReadFile(LogPath(daemon.log));
  if (!text.ok() || daemon.log_begin > text->size()) return "";
  std::string last;
  for (const std::string& line : Split(std::string_view(*text).substr(daemon.log_begin), '\n')) {
    // "2026-01-31T12:00:00.000+00:00 W gpulayer-worker[42] the words"
    const std::size_t words = line.find("] ");
    const bool bad = line.find(" W gpulayer-") != std::string::npos ||
                     line.find(" E gpulayer-") != std::string::npos;
    if (bad && words != std::string::npos) last = line.substr(words + 2);
  }
  return last.empty() ? "" : ": " + Printable(last);
}

Status DaemonDir::CheckAlive(const StartedDaemon& daemon, const std::string& what) const {
  if (!Gone(daemon.process)) return OkStatus();
  std::string why;
  if (const Result<std::string> text = ReadFile(LogPath(daemon.log)); text.ok()) {
    // Its parting words are a line of its own, apart from the log's. Words of an earlier start
    // would name a fault that is long mended.
    const std::size_t begin = daemon.log_begin <= text->size() ? daemon.log_begin : 0;
    for (const std::string& line : Split(std::string_view(*text).substr(begin), '\n')) {
      if (const std::size_t at = line.find("gpulayer-"); at == 0) {
        why = line.substr(line.find(':') == std::string::npos ? 0 : line.find(':') + 2);
      }
    }
  }
  if (why.empty()) why = "it ended at its start. See " + LogPath(daemon.log) + ".";
  return Unavailable(what + ": " + Printable(why));
}

void DaemonDir::Pause() { std::this_thread::sleep_for(kPoll); }

std::vector<std::string> DaemonDir::Stop(const DaemonRecord& record,
                                         std::chrono::steady_clock::time_point begin) const {
  std::vector<std::string> stopped;
  std::vector<ProcessId> all;
  const auto wait_gone = [&](const std::vector<ProcessId>& processes, milliseconds patience) {
    while (!std::all_of(processes.begin(), processes.end(), Gone)) {
      if (std::chrono::steady_clock::now() - begin >= patience) return false;
      std::this_thread::sleep_for(kPoll);
    }
    return true;
  };
  const auto alive = [](const std::optional<ProcessId>& p) { return p && !Gone(*p); };

  // The server stays while the worker tells it how its jobs ended.
  const bool server = alive(record.server_process);
  if (alive(record.worker_process)) {
    stopped.push_back("worker");
    all.push_back(*record.worker_process);
    ::kill(record.worker_process->pid, SIGTERM);
    wait_gone({*record.worker_process}, kWorkerPatience);
  }
  // Left over from a worker that died: its jobs would go on with nobody to tell.
  if (record.worker_process) {
    for (const pid_t pid : FindKeepers(JoinPath(dir_, "worker"))) {
      all.push_back(Identify(pid));
      ::kill(pid, SIGTERM);
    }
  }
  if (server) {
    stopped.insert(stopped.begin(), "server");
    all.push_back(*record.server_process);
    ::kill(record.server_process->pid, SIGTERM);
  }
  if (!wait_gone(all, kAllPatience)) {
    for (const ProcessId& process : all) {
      if (!Gone(process)) ::kill(process.pid, SIGKILL);
    }
    wait_gone(all, kAllPatience + milliseconds(2000));
  }
  return stopped;
}

namespace {

template <typename OnWorker>
Status ForEachOnline(Transport& transport, const OnWorker& on_worker) {
  // Over a slow link an answer takes seconds.
  const CallOptions options{std::chrono::steady_clock::now() + seconds(20), nullptr};
  return ForEachPage<v1::ListWorkersRequest, v1::ListWorkersReply>(
      [&](const auto& request, auto* reply) {
        return transport.Call(Method::kListWorkers, request, reply, options);
      },
      [&](const v1::ListWorkersReply& reply) {
        for (const v1::ListWorkersReply::Worker& worker : reply.workers()) {
          if (worker.state() == static_cast<std::int32_t>(WorkerState::kOnline)) on_worker(worker);
        }
      });
}

}  // namespace

std::optional<std::string> NameIfOnline(Transport& transport, const std::string& worker_id) {
  std::optional<std::string> name;
  const Status asked = ForEachOnline(transport, [&](const v1::ListWorkersReply::Worker& worker) {
    if (worker.id() == worker_id) name = worker.name();
  });
  return asked.ok() ? name : std::nullopt;
}

bool NameIsShared(Transport& transport, const std::string& worker_id, const std::string& name) {
  bool shared = false;
  const Status asked = ForEachOnline(transport, [&](const v1::ListWorkersReply::Worker& worker) {
    shared = shared || (worker.id() != worker_id && worker.name() == name);
  });
  return asked.ok() && shared;
}

Result<std::string> WorkerIdentity(const std::string& data_dir) {
  const std::string dir = JoinPath(data_dir, "worker");
  const std::string path = JoinPath(dir, "worker.json");
  if (!PathExists(path)) {
    GPULAYER_RETURN_IF_ERROR(MakeDirs(dir, 0700));
    const std::string id = RandomHex(16);
    GPULAYER_RETURN_IF_ERROR(WriteFileAtomic(path, json{{"worker_id", id}}.dump(2) + "\n"));
    return id;
  }
  GPULAYER_ASSIGN_OR_RETURN(const std::string text, ReadOwnFile(path));
  const json j = json::parse(text, nullptr, false);
  if (j.is_object() && j.contains("worker_id") && j["worker_id"].is_string()) {
    return j["worker_id"].get<std::string>();
  }
  return DataLoss(path + ": damaged. Restore it, or remove it to become a new worker.");
}

}  // namespace gpulayer::client
