#include "cli/json.h"

#include <nlohmann/json.hpp>

#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

using Json = nlohmann::ordered_json;  // fields in the order of the contract

Json Bytes(const std::string& bytes) {
  if (IsValidUtf8(bytes)) return bytes;
  return Json{{"$bytes", Base64Encode(bytes)}};
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json When(const std::optional<Time>& t) { return t ? Json(FormatTime(*t)) : Json(nullptr); }

Json CauseOf(CauseKind cause) {
  return cause == CauseKind::kNone ? Json(nullptr) : Json(ToString(cause));
}

std::string Text(const Json& j) { return j.dump(2) + "\n"; }

Json List(Json items) { return Json{{"items", std::move(items)}, {"next_page", nullptr}}; }

Json Labels(const std::map<std::string, std::string>& labels) {
  Json out = Json::object();
  for (const auto& [key, value] : labels) out[Printable(key)] = Bytes(value);
  return out;
}

Json Request(const JobSpec& spec) {
  Json command = Json::array();
  for (const std::string& arg : spec.command) command.push_back(Bytes(arg));
  // A list of pairs: names of variables may be bytes, and JSON's keys may not.
  Json env = Json::array();
  for (const auto& [name, value] : spec.env) {
    env.push_back(Json{{"name", Bytes(name)}, {"value", Bytes(value)}});
  }
  Json workers = Json::array();
  for (const std::string& worker : spec.resources.workers) workers.push_back(Bytes(worker));
  Json globs = Json::array();
  for (const std::string& glob : spec.outputs.globs) globs.push_back(Bytes(glob));
  Json secrets = Json::array();
  for (const auto& [name, value] : spec.secrets) secrets.push_back(Bytes(name));
  Json out{
      {"command", std::move(command)}, {"env", std::move(env)}, {"secrets", std::move(secrets)}};
  const ResourceRequest& r = spec.resources;
  out["slots"] = r.slots;
  out["memory_bytes"] = r.memory_bytes;
  out["accelerator"] =
      r.accelerator == Accelerator::kNone ? Json(nullptr) : Json(ToString(r.accelerator));
  out["devices"] = r.devices;
  out["device_memory_bytes"] = r.device_memory_bytes;
  out["device_model"] = Bytes(r.device_model);
  out["labels"] = Labels(r.labels);
  out["zone"] = Bytes(r.zone);
  out["region"] = Bytes(r.region);
  out["workers"] = std::move(workers);
  out["outputs"] = Json{{"collect", spec.outputs.collect},
                        {"globs", std::move(globs)},
                        {"limit_bytes", spec.outputs.limit_bytes}};
  out["time_limit_ms"] = spec.time_limit ? Json(spec.time_limit->count()) : Json(nullptr);
  out["grace_ms"] = spec.grace.count();
  out["log_limit_bytes"] = spec.log_limit_bytes;
  out["keep"] = spec.keep;
  out["array"] = nullptr;
  if (spec.array) {
    out["array"] =
        Json{{"first", spec.array->first}, {"last", spec.array->last}, {"step", spec.array->step}};
  }
  out["max_parallel"] = spec.max_parallel > 0 ? Json(spec.max_parallel) : Json(nullptr);
  out["wait_for_worker"] = spec.wait_for_worker;
  out["request_id"] = Bytes(spec.request_id);
  return out;
}

Json JobHead(const JobInfo& job) {
  Json states = Json::object();
  for (const auto& [state, count] : job.task_states) states[ToString(state)] = count;
  return Json{{"id", job.id},
              {"name", Bytes(job.request.name)},
              {"user", Bytes(job.user)},
              {"state", ToString(job.state)},
              {"exit_code", OrNull(job.outcome.exit_code)},
              {"signal", OrNull(job.outcome.signal)},
              {"cause", CauseOf(job.outcome.cause)},
              {"cause_text", Bytes(job.outcome.cause_text)},
              {"retry_of", job.retry_of > 0 ? Json(job.retry_of) : Json(nullptr)},
              {"task_count", job.task_count},
              {"task_states", std::move(states)},
              {"source_hash", job.source_hash.empty() ? Json(nullptr) : Json(job.source_hash)},
              {"request", Request(job.request)},
              {"created_at", FormatTime(job.created)},
              {"started_at", When(job.started)},
              {"ended_at", When(job.ended)}};
}

Json AttemptOf(const AttemptInfo& a) {
  Json devices = Json::array();
  for (const std::string& id : a.devices) devices.push_back(Bytes(id));
  return Json{{"number", a.number},
              {"id", a.id},
              {"worker", Bytes(a.worker)},
              {"devices", std::move(devices)},
              {"state", ToString(a.state)},
              {"exit_code", OrNull(a.outcome.exit_code)},
              {"signal", OrNull(a.outcome.signal)},
              {"cause", CauseOf(a.outcome.cause)},
              {"cause_text", Bytes(a.outcome.cause_text)},
              {"started_at", When(a.started)},
              {"ended_at", When(a.ended)},
              {"log_bytes", a.log_bytes},
              {"kept_folder", a.kept_folder.empty() ? Json(nullptr) : Bytes(a.kept_folder)}};
}

Json LeftOut(const std::vector<LeftOutFile>& files) {
  Json out = Json::array();
  for (const LeftOutFile& file : files) {
    out.push_back(Json{{"path", Bytes(file.path)},
                       {"size_bytes", file.size_bytes},
                       {"reason", Bytes(file.reason)}});
  }
  return out;
}

Json TaskOf(const TaskInfo& task) {
  Json attempts = Json::array();
  for (const AttemptInfo& attempt : task.attempts) attempts.push_back(AttemptOf(attempt));
  return Json{{"index", task.index},
              {"state", ToString(task.state)},
              {"exit_code", OrNull(task.outcome.exit_code)},
              {"signal", OrNull(task.outcome.signal)},
              {"cause", CauseOf(task.outcome.cause)},
              {"cause_text", Bytes(task.outcome.cause_text)},
              {"item", task.item ? Bytes(*task.item) : Json(nullptr)},
              {"outputs", Json{{"files", task.output_files},
                               {"bytes", task.output_bytes},
                               {"left_out", LeftOut(task.left_out)},
                               {"left_out_count", task.left_out_count}}},
              {"attempts", std::move(attempts)}};
}

Json JobOf(const JobInfo& job) {
  Json out = JobHead(job);
  Json tasks = Json::array();
  for (const TaskInfo& task : job.tasks) tasks.push_back(TaskOf(task));
  out["tasks"] = std::move(tasks);
  out["next_task"] = OrNull(job.next_task);
  return out;
}

Json ResourcesOf(const MachineResources& r) {
  Json devices = Json::array();
  for (const DeviceInfo& d : r.devices) {
    devices.push_back(Json{{"id", Bytes(d.id)},
                           {"kind", ToString(d.kind)},
                           {"model", Bytes(d.model)},
                           {"memory_bytes", d.memory_bytes}});
  }
  return Json{
      {"slots", r.slots}, {"memory_bytes", r.memory_bytes}, {"devices", std::move(devices)}};
}

Json WorkerOf(const WorkerInfo& w) {
  Json used = Json::array();
  for (const std::string& id : w.devices_used) used.push_back(Bytes(id));
  return Json{{"id", Bytes(w.id)},
              {"name", Bytes(w.name)},
              {"state", ToString(w.state)},
              {"zone", Bytes(w.zone)},
              {"region", Bytes(w.region)},
              {"labels", Labels(w.labels)},
              {"resources", ResourcesOf(w.resources)},
              {"slots_used", w.slots_used},
              {"memory_used_bytes", w.memory_used_bytes},
              {"devices_used", std::move(used)},
              {"running", w.running},
              {"version", Bytes(w.version)},
              {"first_seen_at", FormatTime(w.first_seen)},
              {"last_seen_at", FormatTime(w.last_seen)},
              {"held", w.held.empty() ? Json(nullptr) : Bytes(w.held)}};
}

Json TargetOf(const TargetInfo& t) {
  return Json{{"name", t.name},        {"address", Bytes(t.address)},    {"user", Bytes(t.user)},
              {"role", Bytes(t.role)}, {"server", Bytes(t.server_uuid)}, {"in_use", t.in_use}};
}

}  // namespace

std::string JobJson(const JobInfo& job) { return Text(JobOf(job)); }

std::string JobListJson(const JobPage& page) {
  Json items = Json::array();
  for (const JobInfo& job : page.jobs) items.push_back(JobHead(job));
  return Text(Json{{"items", std::move(items)}, {"next_page", OrNull(page.next_page)}});
}

std::string ExplanationJson(const Explanation& e) {
  Json workers = Json::array();
  for (const Explanation::Worker& w : e.workers) {
    Json lacks = Json::array();
    for (const std::string& lack : w.lacks) lacks.push_back(Bytes(lack));
    workers.push_back(
        Json{{"worker", Bytes(w.name)}, {"kind", ToString(w.kind)}, {"lacks", std::move(lacks)}});
  }
  return Text(Json{{"job", e.job},
                   {"state", ToString(e.state)},
                   {"needs", Bytes(e.needs)},
                   {"waiting_since", When(e.waiting_since)},
                   {"ahead", e.ahead},
                   {"workers", std::move(workers)},
                   {"summary", Bytes(e.summary)}});
}

std::string WorkerListJson(const std::vector<WorkerInfo>& workers) {
  Json items = Json::array();
  for (const WorkerInfo& w : workers) items.push_back(WorkerOf(w));
  return Text(List(std::move(items)));
}

std::string WorkerJson(const WorkerInfo& worker) { return Text(WorkerOf(worker)); }

std::string StatusJson(const ServerInfo& s, const std::string& target) {
  Json tasks = Json::object();
  for (const auto& [state, count] : s.task_counts) tasks[state] = count;
  Json addresses = Json::array();
  for (const std::string& address : s.addresses) addresses.push_back(Bytes(address));
  return Text(Json{{"target", Bytes(target)},
                   {"server", Bytes(s.uuid)},
                   // 64 random bits: as a number, readers with doubles round it.
                   {"incarnation", std::to_string(s.incarnation)},
                   {"version", Bytes(s.version)},
                   {"role", Bytes(s.role)},
                   {"user", Bytes(s.user)},
                   {"started_at", FormatTime(s.started)},
                   {"tasks", std::move(tasks)},
                   {"workers_online", s.workers_online},
                   {"workers_known", s.workers_known},
                   {"slots_total", s.slots_total},
                   {"slots_used", s.slots_used},
                   {"blobs_received", s.blobs_received},
                   {"blob_bytes_received", s.blob_bytes_received},
                   {"addresses", std::move(addresses)},
                   {"data_dir", Bytes(s.data_dir)}});
}

std::string DoctorJson(const std::vector<Finding>& findings) {
  Json items = Json::array();
  for (const Finding& finding : findings) {
    items.push_back(
        Json{{"check", Bytes(finding.check)}, {"ok", finding.ok}, {"text", Bytes(finding.text)}});
  }
  return Text(List(std::move(items)));
}

std::string TokenListJson(const std::vector<TokenInfo>& tokens) {
  Json items = Json::array();
  for (const TokenInfo& t : tokens) {
    items.push_back(Json{{"id", Bytes(t.id)},
                         {"kind", t.credential ? "credential" : "token"},
                         {"role", Bytes(t.role)},
                         {"user", Bytes(t.user)},
                         {"subject", Bytes(t.subject)},
                         {"parent", Bytes(t.parent)},
                         {"created_at", FormatTime(t.created)},
                         {"expires_at", When(t.expires)},
                         {"revoked_at", When(t.revoked)}});
  }
  return Text(List(std::move(items)));
}

std::string NewTokenJson(const NewToken& token) {
  return Text(Json{{"id", token.id}, {"token", token.token}});
}

std::string TargetListJson(const std::vector<TargetInfo>& targets) {
  Json items = Json::array();
  for (const TargetInfo& target : targets) {
    if (target.damage.empty()) items.push_back(TargetOf(target));
  }
  return Text(List(std::move(items)));
}

std::string TargetJson(const TargetInfo& target) { return Text(TargetOf(target)); }

std::string LogoutJson(const std::string& name) { return Text(Json{{"name", name}}); }

std::string RevokedJson(const std::string& id) { return Text(Json{{"revoked", Bytes(id)}}); }

std::string ResourcesJson(const WorkerInfo& offered) {
  Json out = ResourcesOf(offered.resources);
  out["name"] = Bytes(offered.name);
  out["zone"] = Bytes(offered.zone);
  out["region"] = Bytes(offered.region);
  out["labels"] = Labels(offered.labels);
  const std::string& why_not = offered.resources.no_memory_limit;
  out["no_memory_limit"] = why_not.empty() ? Json(nullptr) : Bytes(why_not);
  return Text(out);
}

std::string VersionJson(const std::string& version) { return Text(Json{{"version", version}}); }

std::string SubmittedJson(const SubmittedDocument& submitted) {
  Json warnings = Json::array();
  for (const std::string& warning : submitted.warnings) warnings.push_back(Bytes(warning));
  return Text(Json{
      {"id", submitted.job}, {"existed", submitted.existed}, {"warnings", std::move(warnings)}});
}

std::string SourceJson(const SourceListing& listing) {
  Json items = Json::array();
  for (const SourceFile& file : listing.files) {
    items.push_back(Json{{"path", Bytes(file.path)}, {"size_bytes", file.size_bytes}});
  }
  Json warnings = Json::array();
  for (const std::string& warning : listing.warnings) warnings.push_back(Bytes(warning));
  Json ignored = Json::array();
  for (const std::string& path : listing.ignored) ignored.push_back(Bytes(path));
  return Text(Json{{"items", std::move(items)},
                   {"next_page", nullptr},
                   {"total_bytes", listing.total_bytes},
                   {"ignored", std::move(ignored)},
                   {"warnings", std::move(warnings)}});
}

std::string CancelJson(const CancelSummary& summary) {
  return Text(Json{{"cancelled", summary.cancelled},
                   {"already_ended", summary.already_ended},
                   {"finishing", summary.finishing}});
}

std::string UpJson(const UpReport& r) {
  Json restarted = Json::array();
  for (const std::string& name : r.restarted) restarted.push_back(name);
  Json addresses = Json::array();
  for (const std::string& address : r.addresses) addresses.push_back(Bytes(address));
  return Text(Json{{"was_up", r.was_up},
                   {"restarted", std::move(restarted)},
                   {"data_dir", Bytes(r.data_dir)},
                   {"worker", r.worker},
                   {"addresses", std::move(addresses)},
                   {"join_token", r.join_token},
                   {"login_token", r.login_token}});
}

std::string DownJson(const DownReport& report) {
  Json stopped = Json::array();
  for (const std::string& name : report.stopped) stopped.push_back(name);
  const std::string& ended = report.ended_worker_of;
  return Text(Json{{"stopped", std::move(stopped)},
                   {"ended_worker_of", ended.empty() ? Json(nullptr) : Bytes(ended)},
                   {"interrupted_tasks", report.interrupted_tasks},
                   {"interrupted_here", report.interrupted_here}});
}

std::string JoinJson(const JoinReport& report) {
  return Text(Json{{"worker", Bytes(report.name)},
                   {"worker_id", report.worker_id},
                   {"address", Bytes(report.address)},
                   {"was_joined", report.was_joined},
                   {"name_shared", report.name_shared}});
}

std::string ResultJson(const ResultDocument& result) {
  Json out = JobOf(result.job);
  if (result.outputs) {
    out["outputs"] = Json{{"folder", Bytes(result.outputs->folder)},
                          {"files", result.outputs->files},
                          {"bytes", result.outputs->bytes},
                          {"left_out", LeftOut(result.outputs->left_out)},
                          {"left_out_count", result.outputs->left_out_count}};
  }
  return Text(out);
}

std::string ResultListJson(const std::vector<JobResult>& results) {
  Json items = Json::array();
  for (const JobResult& r : results) {
    items.push_back(Json{{"id", r.job},
                         {"state", ToString(r.state)},
                         {"exit_code", OrNull(r.exit_code)},
                         {"signal", OrNull(r.signal)},
                         {"cause", CauseOf(r.cause)},
                         {"cause_text", Bytes(r.cause_text)},
                         {"created_at", FormatTime(r.created)},
                         {"started_at", When(r.started)},
                         {"ended_at", When(r.ended)}});
  }
  return Text(List(std::move(items)));
}

}  // namespace gpulayer::cli
