#include "client/convert.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/random.h"
#include "base/text.h"
#include "model/items.h"
#include "model/limits.h"
#include "model/records.h"
#include "model/variables.h"
#include "tree/collect.h"
#include "wire/convert.h"
#include "wire/version.h"

namespace gpulayer::client {
namespace {

api::Time ToTime(std::int64_t us) { return api::Time(std::chrono::microseconds(us)); }

template <typename Info, typename Out>
void Times(const Info& in, Out* out) {
  out->created = ToTime(in.created_at_us());
  if (in.has_started_at_us()) out->started = ToTime(in.started_at_us());
  if (in.has_ended_at_us()) out->ended = ToTime(in.ended_at_us());
}

api::Outcome ToOutcome(const v1::Outcome& in) {
  api::Outcome out;
  if (in.has_exit_code()) out.exit_code = in.exit_code();
  if (in.has_signal()) out.signal = in.signal();
  out.cause = static_cast<api::CauseKind>(in.cause().kind());
  out.cause_text = in.cause().text();
  return out;
}

api::ResourceRequest ToRequest(const v1::Requirements& in) {
  api::ResourceRequest out;
  out.slots = in.slots();
  out.memory_bytes = in.memory_bytes();
  out.accelerator = static_cast<api::Accelerator>(in.accelerator());
  out.devices = in.devices();
  out.device_memory_bytes = in.device_memory_bytes();
  out.device_model = in.device_model();
  out.labels = wire::LabelsFromProto(in.labels());
  out.zone = in.zone();
  out.region = in.region();
  out.workers.assign(in.workers().begin(), in.workers().end());
  return out;
}

api::JobSpec ToSpec(const v1::JobSpec& in) {
  api::JobSpec out;
  out.name = in.name();
  out.command.assign(in.command().begin(), in.command().end());
  for (const v1::EnvVar& var : in.env()) out.env.emplace_back(var.name(), var.value());
  for (const std::string& name : in.secrets()) out.secrets[name];
  out.resources = ToRequest(in.requirements());
  out.outputs.collect = in.outputs().collect();
  out.outputs.globs.assign(in.outputs().globs().begin(), in.outputs().globs().end());
  out.outputs.limit_bytes = in.outputs().limit_bytes();
  if (in.has_time_limit_ms()) out.time_limit = std::chrono::milliseconds(in.time_limit_ms());
  out.grace = std::chrono::milliseconds(in.grace_ms());
  out.log_limit_bytes = in.has_log_limit_bytes() ? in.log_limit_bytes() : limits::kLogLimitBytes;
  out.keep = in.keep();
  out.wait_for_worker = in.wait_for_worker();
  out.request_id = in.request_id();
  if (in.array() && in.items_blob().empty()) {
    const std::int64_t step = std::max<std::int64_t>(in.task_step(), 1);
    out.array =
        api::TaskRange{in.first_task(), in.first_task() + (in.task_count() - 1) * step, step};
  }
  out.max_parallel = in.max_parallel();
  return out;
}

api::MachineResources ToResources(const v1::Resources& in) {
  api::MachineResources out;
  out.slots = in.slots();
  out.memory_bytes = in.memory_bytes();
  for (const v1::Device& d : in.devices()) {
    out.devices.push_back(
        {d.id(), static_cast<api::Accelerator>(d.kind()), d.model(), d.memory_bytes()});
  }
  return out;
}

api::AttemptInfo ToAttempt(const v1::AttemptInfo& in) {
  api::AttemptInfo out;
  out.number = in.number();
  out.id = in.id();
  out.worker_id = in.worker_id();
  out.worker = in.worker();
  out.state = static_cast<api::AttemptState>(in.state());
  out.slots = in.allocation().slots();
  out.memory_bytes = in.allocation().memory_bytes();
  out.devices.assign(in.allocation().device_ids().begin(), in.allocation().device_ids().end());
  out.outcome = ToOutcome(in.outcome());
  Times(in, &out);
  out.log_bytes = in.log_bytes();
  out.kept_folder = in.kept_folder();
  return out;
}

api::TaskInfo ToTask(const v1::TaskInfo& in) {
  api::TaskInfo out;
  out.index = in.index();
  if (in.has_item()) out.item = in.item();
  out.state = static_cast<api::JobState>(in.state());
  out.outcome = ToOutcome(in.outcome());
  for (const v1::AttemptInfo& attempt : in.attempts()) out.attempts.push_back(ToAttempt(attempt));
  out.has_outputs = !in.outputs().tree().empty();
  out.output_files = in.outputs().files();
  out.output_bytes = in.outputs().bytes();
  for (const v1::LeftOut& left : in.outputs().left_out()) {
    out.left_out.push_back({left.path(), left.size_bytes(), left.reason()});
  }
  out.left_out_count = in.outputs().left_out_count();
  return out;
}

}  // namespace

namespace {

Status TasksToProto(const api::JobSpec& spec, v1::JobSpec* out) {
  if (spec.array && !spec.items.empty()) {
    return InvalidArgument("job: both numbered tasks and items. Give one of them.");
  }
  out->set_task_count(1);
  out->set_max_parallel(spec.max_parallel);
  if (!spec.items.empty()) {
    out->set_array(true);
    out->set_task_count(static_cast<std::int64_t>(spec.items.size()));
  }
  if (!spec.array) return OkStatus();
  const api::TaskRange& tasks = *spec.array;
  if (tasks.first < 0 || tasks.last < tasks.first || tasks.step < 1 ||
      tasks.last > limits::kMaxTaskNumber) {
    return InvalidArgument("job: tasks " + std::to_string(tasks.first) + " to " +
                           std::to_string(tasks.last) + ", step " + std::to_string(tasks.step) +
                           ": the first is 0 or more, the last not below it and at most " +
                           std::to_string(limits::kMaxTaskNumber) + ", the step 1 or more");
  }
  out->set_array(true);
  out->set_first_task(tasks.first);
  out->set_task_step(tasks.step);
  out->set_task_count((tasks.last - tasks.first) / tasks.step + 1);
  return OkStatus();
}

Status CheckItemsOf(const api::JobSpec& spec, const JobSpec& seen) {
  std::size_t longest = 0;
  std::size_t bytes = 0;
  bool has_nul = false;
  for (std::size_t i = 0; i < spec.items.size(); ++i) {
    const std::string& item = spec.items[i];
    if (item.find('\n') != std::string::npos) {
      return InvalidArgument("job: item " + std::to_string(i) + " holds a line end");
    }
    longest = std::max(longest, item.size());
    has_nul = has_nul || item.find('\0') != std::string::npos;
    bytes += item.size() + 1;
  }
  if (bytes > static_cast<std::size_t>(limits::kMaxItemsBytes)) {
    return InvalidArgument("job: items of " + FormatSize(static_cast<std::int64_t>(bytes)) +
                           " are over the limit of " + FormatSize(limits::kMaxItemsBytes));
  }
  return CheckItems(seen, std::ssize(spec.items), static_cast<std::int64_t>(longest), has_nul);
}

}  // namespace

namespace {

// A pattern that can never match would lose what the job was run for.
Status CheckOutputGlob(const std::string& glob, const std::string& source_dir) {
  const auto refused = [&](const std::string& why) {
    return InvalidArgument("output pattern \"" + Printable(glob) + "\": " + why);
  };
  if (glob.empty()) return refused("it is empty");
  if (glob[0] == '~') {
    return refused(
        "outputs are files of the job's working directory, not of a home folder. Write their path "
        "from there (./~… for a name that begins so)");
  }
  if (glob[0] == '/') {
    // The folder whose copy it will be; without one the files that it names are meant by their names.
    std::error_code unknown;
    auto root = std::filesystem::absolute(source_dir.empty() ? "." : source_dir, unknown);
    root = root.lexically_normal();
    if (!root.has_filename()) root = root.parent_path();  // the slash at its end
    const auto path = std::filesystem::path(glob).lexically_normal();
    const auto inside = path.lexically_relative(root).string();
    const bool is_inside = !inside.empty() && !inside.starts_with("..");
    return refused(
        "it is absolute, and outputs are files of the job's working directory. Write ./" +
        Printable(is_inside ? inside : path.filename().string()));
  }
  const Status normal = tree::NormalOutputGlob(glob).status();
  return normal.ok() ? normal : InvalidArgument("output pattern " + normal.message());
}

}  // namespace

Result<v1::JobSpec> ToProto(const api::JobSpec& spec) {
  v1::JobSpec out;
  out.set_name(spec.name);
  if (!spec.shell.empty()) {
    if (!spec.command.empty()) {
      return InvalidArgument("job: both a command and a shell line. Give one of them.");
    }
    for (const char* word : {"/bin/sh", "-c"}) out.add_command(word);
    out.add_command(spec.shell);
  }
  for (const std::string& arg : spec.command) out.add_command(arg);
  for (const auto& [name, value] : spec.env) {
    v1::EnvVar* var = out.add_env();
    var->set_name(name);
    var->set_value(value);
  }
  for (const auto& [name, value] : spec.secrets) out.add_secrets(name);
  v1::Requirements* r = out.mutable_requirements();
  const api::ResourceRequest& in = spec.resources;
  const bool wants_device =
      in.accelerator != api::Accelerator::kNone && in.accelerator != api::Accelerator::kCpu;
  r->set_slots(in.slots);
  r->set_memory_bytes(in.memory_bytes);
  r->set_accelerator(static_cast<std::int32_t>(in.accelerator));
  r->set_devices(in.devices == 0 && wants_device ? 1 : in.devices);
  r->set_device_memory_bytes(in.device_memory_bytes);
  r->set_device_model(in.device_model);
  wire::LabelsToProto(in.labels, r->mutable_labels());
  r->set_zone(in.zone);
  r->set_region(in.region);
  for (const std::string& worker : in.workers) r->add_workers(worker);
  v1::OutputRules* outputs = out.mutable_outputs();
  outputs->set_collect(spec.outputs.collect);
  for (const std::string& glob : spec.outputs.globs) {
    GPULAYER_RETURN_IF_ERROR(CheckOutputGlob(glob, spec.source_dir));
    outputs->add_globs(glob);
  }
  outputs->set_limit_bytes(spec.outputs.limit_bytes);
  if (spec.time_limit) out.set_time_limit_ms(spec.time_limit->count());
  out.set_grace_ms(spec.grace.count());
  out.set_log_limit_bytes(spec.log_limit_bytes);
  out.set_keep(spec.keep);
  GPULAYER_RETURN_IF_ERROR(TasksToProto(spec, &out));
  out.set_wait_for_worker(spec.wait_for_worker);
  out.set_request_id(spec.request_id.empty() ? RandomHex(16) : spec.request_id);
  GPULAYER_ASSIGN_OR_RETURN(const JobSpec seen, wire::FromProto(out));
  GPULAYER_RETURN_IF_ERROR(CheckVariables(seen));
  std::vector<EnvVar> secrets;
  for (const auto& [name, value] : spec.secrets) secrets.push_back({name, value});
  GPULAYER_RETURN_IF_ERROR(CheckSecrets(seen, secrets));
  if (!spec.items.empty()) GPULAYER_RETURN_IF_ERROR(CheckItemsOf(spec, seen));
  return out;
}

v1::StatusRequest StatusQuestion() {
  v1::StatusRequest request;
  *request.mutable_version() = wire::OwnVersion();
  return request;
}

api::JobInfo ToInfo(const v1::JobInfo& in) {
  api::JobInfo out;
  out.id = in.id();
  out.user = in.user();
  out.state = static_cast<api::JobState>(in.state());
  out.outcome = ToOutcome(in.outcome());
  out.request = ToSpec(in.spec());
  out.source_hash = HexEncode(in.spec().source_tree());
  Times(in, &out);
  out.task_count = 0;
  for (const std::int64_t count : in.counts()) out.task_count += count;
  if (out.task_count == 0) out.task_count = in.spec().task_count();
  out.retry_of = in.spec().retry_of();
  out.is_array = in.spec().array();
  out.has_items = !in.spec().items_blob().empty();
  for (int i = 1; i < in.counts_size(); ++i) {
    if (in.counts(i) > 0) out.task_states[static_cast<api::JobState>(i)] = in.counts(i);
  }
  return out;
}

api::JobInfo ToInfo(const v1::GetJobReply& in) {
  api::JobInfo out = ToInfo(in.job());
  for (const v1::TaskInfo& task : in.tasks()) out.tasks.push_back(ToTask(task));
  if (in.has_next_task()) out.next_task = in.next_task();
  return out;
}

api::Explanation ToInfo(const v1::ExplainReply& in) {
  api::Explanation out;
  out.job = in.job();
  out.state = static_cast<api::JobState>(in.state());
  out.needs = in.needs();
  if (in.has_waiting_since_us()) out.waiting_since = ToTime(in.waiting_since_us());
  out.ahead = in.ahead();
  for (const v1::ExplainReply::Worker& w : in.workers()) {
    out.workers.push_back({w.worker(),
                           static_cast<api::Explanation::Kind>(w.kind()),
                           {w.lacks().begin(), w.lacks().end()}});
  }
  out.summary = in.summary();
  return out;
}

api::WorkerInfo ToInfo(const v1::ListWorkersReply::Worker& in) {
  api::WorkerInfo out;
  out.id = in.id();
  out.name = in.name();
  out.zone = in.zone();
  out.region = in.region();
  out.labels = wire::LabelsFromProto(in.labels());
  out.resources = ToResources(in.resources());
  out.state = static_cast<api::WorkerState>(in.state());
  out.slots_used = in.slots_used();
  out.memory_used_bytes = in.memory_used_bytes();
  out.devices_used.assign(in.devices_used().begin(), in.devices_used().end());
  out.running = in.running();
  out.version = in.version();
  out.first_seen = ToTime(in.first_seen_us());
  out.last_seen = ToTime(in.last_seen_us());
  out.held = in.held();
  return out;
}

api::ServerInfo ToInfo(const v1::StatusReply& in) {
  api::ServerInfo out;
  out.version = in.version().program();
  out.uuid = in.server().uuid();
  out.incarnation = in.server().incarnation();
  out.role = in.role();
  out.user = in.user();
  out.started = ToTime(in.started_at_us());
  for (int i = 1; i < in.task_counts_size(); ++i) {
    const auto state = static_cast<api::JobState>(i);
    if (!api::IsTerminal(state)) out.task_counts[api::ToString(state)] = in.task_counts(i);
  }
  out.workers_online = in.workers_online();
  out.workers_known = in.workers_known();
  out.slots_total = in.slots_total();
  out.slots_used = in.slots_used();
  out.blobs_received = in.blobs_received();
  out.blob_bytes_received = in.blob_bytes_received();
  out.addresses.assign(in.addresses().begin(), in.addresses().end());
  out.data_dir = in.data_dir();
  return out;
}

api::TokenInfo ToInfo(const v1::ListTokensReply::Token& in) {
  api::TokenInfo out;
  out.id = in.id();
  out.credential = in.credential();
  out.role = in.role();
  out.user = in.user();
  out.subject = in.subject();
  out.parent = in.parent();
  out.created = ToTime(in.created_at_us());
  if (in.has_expires_at_us()) out.expires = ToTime(in.expires_at_us());
  if (in.has_revoked_at_us()) out.revoked = ToTime(in.revoked_at_us());
  return out;
}

}  // namespace gpulayer::client
