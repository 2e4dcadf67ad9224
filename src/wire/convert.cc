#include "wire/convert.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "model/limits.h"
#include "model/names.h"

namespace gpulayer::wire {
namespace {

using std::chrono::milliseconds;

std::int64_t ToMs(Duration d) { return std::chrono::duration_cast<milliseconds>(d).count(); }

Status Bad(const std::string& what) { return InvalidArgument("job: " + what); }

// Well said, and more than a kernel takes: another code than that of a wrong use.
Status TooLarge(const std::string& what) { return ResourceExhausted("job: " + what); }

// A string field that is not valid UTF-8 makes the peer drop the whole message. Our own texts can
// quote any bytes: file names, targets of links, words of the kernel and of drivers.
std::string Text(const std::string& s) { return IsValidUtf8(s) ? s : Printable(s); }

bool HasNul(const std::string& s) { return s.find('\0') != std::string::npos; }

Status CheckCommand(const JobSpec& spec) {
  if (spec.command.empty()) return Bad("no command. Write it after `--`.");
  if (spec.command[0].empty()) {
    return Bad("the name of the program is empty. Write it after `--`, before its arguments.");
  }
  std::size_t total = 0;
  for (const std::string& arg : spec.command) {
    if (HasNul(arg)) return Bad("an argument holds a NUL byte, which no program can receive");
    if (arg.size() > limits::kMaxArgBytes) {
      return TooLarge("an argument of " + std::to_string(arg.size()) +
                      " bytes is over the kernel's limit of " +
                      std::to_string(limits::kMaxArgBytes) + " bytes. Put it into a file.");
    }
    total += arg.size() + 1 + sizeof(char*);
  }
  for (const EnvVar& var : spec.env) {
    if (var.name.empty() || var.name.find('=') != std::string::npos || HasNul(var.name)) {
      return Bad("\"" + Printable(var.name) + "\" is not a name for an environment variable");
    }
    if (HasNul(var.value))
      return Bad("environment variable " + Printable(var.name) + " holds a NUL byte");
    const std::size_t size = var.name.size() + var.value.size() + 1;
    if (size > limits::kMaxArgBytes) {
      return TooLarge("environment variable " + Printable(var.name) + " of " +
                      std::to_string(size) + " bytes is over the kernel's limit of " +
                      std::to_string(limits::kMaxArgBytes) + " bytes. Put it into a file.");
    }
    total += size + 1 + sizeof(char*);
  }
  for (const std::string& name : spec.secrets) {
    if (name.empty() || name.find('=') != std::string::npos || HasNul(name)) {
      return Bad("a secret's name is not one for an environment variable");
    }
  }
  if (std::adjacent_find(spec.secrets.begin(), spec.secrets.end()) != spec.secrets.end()) {
    return Bad("a secret is named twice");
  }
  if (total > limits::kMaxArgsAndEnvBytes) {
    return TooLarge("arguments and environment of " + std::to_string(total) +
                    " bytes are over the kernel's limit of " +
                    std::to_string(limits::kMaxArgsAndEnvBytes) + " bytes. Put them into files.");
  }
  return OkStatus();
}

Status CheckRequirements(const Requirements& r) {
  if (r.slots < 0 || r.memory_bytes < 0 || r.devices < 0 || r.device_memory_bytes < 0) {
    return Bad("a negative amount was asked for");
  }
  if (r.memory_bytes > 0 && r.memory_bytes < limits::kMinMemoryBytes) {
    return Bad("--memory: at least " + FormatSize(limits::kMinMemoryBytes) +
               ". A size has a unit: 4GiB, say");
  }
  if (r.slots == 0 && r.devices == 0) return Bad("slots: at least 1");
  const auto kind = static_cast<std::int32_t>(r.accelerator);
  if (kind < 0 || kind > static_cast<std::int32_t>(AcceleratorKind::kAnyGpu)) {
    return Bad("accelerator " + std::to_string(kind) + " is not known here. Upgrade the server.");
  }
  // As those of workers, or they could name none; and they are shown.
  Status fit = CheckName("--zone", r.zone, 0);
  if (fit.ok()) fit = CheckName("--region", r.region, 0);
  for (const std::string& worker : r.workers) {
    if (fit.ok()) fit = CheckName("--worker", worker, 1);
  }
  for (const auto& [key, value] : r.labels) {
    if (fit.ok()) fit = CheckName("--label", key, 1);
    if (fit.ok()) fit = CheckName("--label " + key, value, 0);
  }
  return fit.Prefixed("job");
}

Status CheckTasks(const JobSpec& spec) {
  const TaskNumbers& tasks = spec.tasks;
  if (tasks.count < 1 || tasks.count > limits::kMaxTasksPerJob) {
    return Bad(std::to_string(tasks.count) + " tasks; a job has 1 to " +
               std::to_string(limits::kMaxTasksPerJob));
  }
  // In this order nothing overflows: the largest number is below 10^12 + 10^6 * 10^12.
  if (tasks.first < 0 || tasks.step < 1 || tasks.first > limits::kMaxTaskNumber ||
      tasks.step > limits::kMaxTaskNumber ||
      tasks.At(tasks.count - 1).value() > limits::kMaxTaskNumber) {
    return Bad("task numbers go from 0 to " + std::to_string(limits::kMaxTaskNumber));
  }
  const std::int64_t beyond = spec.only.empty() ? 0 : std::prev(spec.only.runs().end())->second;
  if (beyond < 0 || beyond > tasks.count) {
    return Bad("a task beyond the last one");
  }
  const auto runs = static_cast<std::int64_t>(spec.only.runs().size());
  if (runs > limits::kMaxTaskRuns) {
    return Bad("tasks in " + std::to_string(runs) + " separate runs; the limit is " +
               std::to_string(limits::kMaxTaskRuns));
  }
  if (!spec.array && tasks != TaskNumbers()) return Bad("one command is task 0 and no other");
  if (!spec.items.empty() && (!spec.array || tasks.first != 0 || tasks.step != 1)) {
    return Bad("tasks with items are counted from 0");
  }
  if (spec.max_parallel < 0) return Bad("the limit of tasks at the same time: not less than 0");
  return OkStatus();
}

}  // namespace

std::string HashToBytes(const Hash& hash) { return hash.empty() ? "" : std::string(hash.bytes()); }

Result<Hash> HashFromBytes(const std::string& bytes, const char* field) {
  if (bytes.empty()) return Hash();
  Result<Hash> hash = Hash::FromBytes(bytes);
  if (!hash.ok()) return hash.status().Prefixed(field);
  return hash;
}

void ToProto(const ServerIdentity& in, pb::ServerIdentity* out) {
  out->set_uuid(in.uuid);
  out->set_incarnation(in.incarnation);
}

ServerIdentity FromProto(const pb::ServerIdentity& in) { return {in.uuid(), in.incarnation()}; }

void ToProto(const AttemptKey& in, pb::AttemptKey* out) {
  ToProto(in.server, out->mutable_server());
  out->set_job(in.ref.task.job.value());
  out->set_task(in.ref.task.task.value());
  out->set_number(in.ref.number.value());
  out->set_id(in.id.value());
  out->set_worker_epoch(in.epoch.value());
}

Result<AttemptKey> FromProto(const pb::AttemptKey& in) {
  const bool plain = std::all_of(in.id().begin(), in.id().end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.';
  });
  // The id becomes a file name on the worker and part of one on the server.
  if (in.job() <= 0 || in.task() < 0 || in.number() <= 0 || in.id().empty() ||
      in.id().size() > 100 || in.id()[0] == '.' || !plain) {
    return InvalidArgument("attempt key: not well formed");
  }
  return AttemptKey{FromProto(in.server()),
                    {{JobId(in.job()), TaskIndex(in.task())}, AttemptNo(in.number())},
                    AttemptId(in.id()),
                    WorkerEpoch(in.worker_epoch())};
}

void ToProto(const Resources& in, pb::Resources* out) {
  out->set_slots(in.slots);
  out->set_memory_bytes(in.memory_bytes);
  for (const Device& device : in.devices) {
    pb::Device* d = out->add_devices();
    d->set_id(device.id);
    d->set_kind(static_cast<std::int32_t>(device.kind));
    d->set_model(Text(device.model));
    d->set_memory_bytes(device.memory_bytes);
  }
}

Result<Resources> FromProto(const pb::Resources& in) {
  if (in.slots() < 0 || in.memory_bytes() < 0)
    return InvalidArgument("resources: a negative amount");
  Resources out{in.slots(), in.memory_bytes(), {}};
  for (const pb::Device& device : in.devices()) {
    if (device.id().empty()) return InvalidArgument("resources: a device without id");
    out.devices.push_back({device.id(), static_cast<AcceleratorKind>(device.kind()), device.model(),
                           device.memory_bytes()});
  }
  return out;
}

void ToProto(const Allocation& in, pb::Allocation* out) {
  out->set_slots(in.slots);
  out->set_memory_bytes(in.memory_bytes);
  for (const std::string& id : in.device_ids) out->add_device_ids(id);
}

Allocation FromProto(const pb::Allocation& in) {
  return {in.slots(), in.memory_bytes(), {in.device_ids().begin(), in.device_ids().end()}};
}

void ToProto(const Requirements& in, pb::Requirements* out) {
  out->set_slots(in.slots);
  out->set_memory_bytes(in.memory_bytes);
  out->set_accelerator(static_cast<std::int32_t>(in.accelerator));
  out->set_devices(in.devices);
  out->set_device_memory_bytes(in.device_memory_bytes);
  out->set_device_model(in.device_model);
  LabelsToProto(in.labels, out->mutable_labels());
  out->set_zone(in.zone);
  out->set_region(in.region);
  for (const std::string& worker : in.workers) out->add_workers(worker);
}

Result<Requirements> FromProto(const pb::Requirements& in) {
  Requirements out;
  out.slots = in.slots();
  out.memory_bytes = in.memory_bytes();
  out.accelerator = static_cast<AcceleratorKind>(in.accelerator());
  out.devices = in.devices();
  out.device_memory_bytes = in.device_memory_bytes();
  out.device_model = in.device_model();
  out.labels = LabelsFromProto(in.labels());
  out.zone = in.zone();
  out.region = in.region();
  out.workers.assign(in.workers().begin(), in.workers().end());
  std::sort(out.workers.begin(), out.workers.end());
  GPULAYER_RETURN_IF_ERROR(CheckRequirements(out));
  return out;
}

void ToProto(const JobSpec& in, pb::JobSpec* out, Only only) {
  out->set_name(in.name);
  for (const std::string& arg : in.command) out->add_command(arg);
  for (const EnvVar& var : in.env) {
    pb::EnvVar* v = out->add_env();
    v->set_name(var.name);
    v->set_value(var.value);
  }
  for (const std::string& name : in.secrets) out->add_secrets(name);
  ToProto(in.requirements, out->mutable_requirements());
  out->set_source_tree(HashToBytes(in.source_tree));
  out->set_stdin_blob(HashToBytes(in.stdin_blob));
  pb::OutputRules* outputs = out->mutable_outputs();
  outputs->set_collect(in.outputs.collect);
  for (const std::string& glob : in.outputs.globs) outputs->add_globs(glob);
  outputs->set_limit_bytes(in.outputs.limit_bytes);
  if (in.time_limit) out->set_time_limit_ms(ToMs(*in.time_limit));
  out->set_grace_ms(ToMs(in.grace));
  out->set_task_count(in.tasks.count);
  out->set_array(in.array);
  out->set_first_task(in.tasks.first);
  out->set_task_step(in.tasks.step);
  out->set_items_blob(HashToBytes(in.items));
  out->set_max_parallel(in.max_parallel);
  if (only == Only::kWith) out->set_only(in.only.ToText());
  out->set_retry_of(in.retry_of.value());
  out->set_log_limit_bytes(in.log_limit_bytes);
  out->set_keep(in.keep);
  out->set_wait_for_worker(in.wait_for_worker);
  out->set_request_id(in.request_id.value());
}

Result<JobSpec> FromProto(const pb::JobSpec& in) {
  JobSpec out;
  out.name = in.name();
  out.command.assign(in.command().begin(), in.command().end());
  for (const pb::EnvVar& var : in.env()) out.env.push_back({var.name(), var.value()});
  GPULAYER_ASSIGN_OR_RETURN(out.requirements, FromProto(in.requirements()));
  out.secrets.assign(in.secrets().begin(), in.secrets().end());
  std::sort(out.secrets.begin(), out.secrets.end());
  out.requirements.secrets = !out.secrets.empty();
  GPULAYER_ASSIGN_OR_RETURN(out.source_tree, HashFromBytes(in.source_tree(), "source_tree"));
  GPULAYER_ASSIGN_OR_RETURN(out.stdin_blob, HashFromBytes(in.stdin_blob(), "stdin_blob"));
  out.outputs.collect = in.outputs().collect();
  out.outputs.globs.assign(in.outputs().globs().begin(), in.outputs().globs().end());
  out.outputs.limit_bytes = in.outputs().limit_bytes();
  // Above what nanoseconds can hold a product would overflow before CheckSpec sees it.
  constexpr std::int64_t kMaxMs = 1'000'000'000'000;
  if (in.time_limit_ms() > kMaxMs || in.grace_ms() > kMaxMs)
    return Bad("a time limit over 31 years");
  if (in.has_time_limit_ms()) out.time_limit = milliseconds(in.time_limit_ms());
  out.grace = milliseconds(in.grace_ms());
  out.array = in.array();
  out.tasks = {in.first_task(), in.task_step() == 0 ? 1 : in.task_step(), in.task_count()};
  GPULAYER_ASSIGN_OR_RETURN(out.items, HashFromBytes(in.items_blob(), "items_blob"));
  out.max_parallel = in.max_parallel();
  GPULAYER_ASSIGN_OR_RETURN(out.only, IntervalSet::FromText(in.only()));
  out.retry_of = JobId(in.retry_of());
  if (in.has_log_limit_bytes()) out.log_limit_bytes = in.log_limit_bytes();
  out.keep = in.keep();
  out.wait_for_worker = in.wait_for_worker();
  out.request_id = RequestId(in.request_id());
  GPULAYER_RETURN_IF_ERROR(CheckSpec(out));
  return out;
}

Status CheckSpec(const JobSpec& spec) {
  GPULAYER_RETURN_IF_ERROR(CheckCommand(spec));
  GPULAYER_RETURN_IF_ERROR(CheckRequirements(spec.requirements));
  if (!IsValidUtf8(spec.name)) return Bad("the name is not valid UTF-8");
  if (spec.name.size() > limits::kMaxNameBytes) {
    return Bad("a name of " + std::to_string(spec.name.size()) + " bytes is over the limit of " +
               std::to_string(limits::kMaxNameBytes));
  }
  if (Printable(spec.name) != spec.name) return Bad("the name holds control characters");
  if (spec.time_limit && *spec.time_limit <= Duration::zero())
    return Bad("--time: more than 0 is needed");
  if (spec.grace < Duration::zero()) return Bad("--grace: not less than 0");
  if (spec.outputs.limit_bytes < 0) return Bad("--output-limit: not less than 0");
  if (spec.log_limit_bytes < limits::kMinLogLimitBytes) {
    return Bad("--log-limit: at least " + FormatSize(limits::kMinLogLimitBytes));
  }
  if (spec.log_limit_bytes > limits::kMaxLogLimitBytes) {
    return Bad("--log-limit: at most " + FormatSize(limits::kMaxLogLimitBytes));
  }
  GPULAYER_RETURN_IF_ERROR(CheckTasks(spec));
  if (spec.request_id.value().empty() || spec.request_id.value().size() > 200) {
    return Bad("--request-id: 1 to 200 bytes");
  }
  if (!IsValidUtf8(spec.request_id.value())) return Bad("--request-id: not valid UTF-8");
  return OkStatus();
}

void ToProto(const std::vector<EnvVar>& in, pb::Secrets* out) {
  for (const EnvVar& secret : in) {
    pb::EnvVar* v = out->add_values();
    v->set_name(secret.name);
    v->set_value(secret.value);
  }
}

std::vector<EnvVar> FromProto(const pb::Secrets& in) {
  std::vector<EnvVar> out;
  for (const pb::EnvVar& v : in.values()) out.push_back({v.name(), v.value()});
  return out;
}

void ToProto(const Cause& in, pb::Cause* out) {
  out->set_kind(static_cast<std::int32_t>(in.kind));
  out->set_text(Text(in.text));
}

Cause FromProto(const pb::Cause& in) { return {static_cast<CauseKind>(in.kind()), in.text()}; }

void ToProto(const Outcome& in, pb::Outcome* out) {
  if (in.exit_code) out->set_exit_code(*in.exit_code);
  if (in.signal) out->set_signal(*in.signal);
  ToProto(in.cause, out->mutable_cause());
}

Outcome FromProto(const pb::Outcome& in) {
  Outcome out;
  if (in.has_exit_code()) out.exit_code = in.exit_code();
  if (in.has_signal()) out.signal = in.signal();
  out.cause = FromProto(in.cause());
  return out;
}

void ToProto(const OutputResult& in, pb::OutputResult* out) {
  out->set_tree(HashToBytes(in.tree));
  out->set_files(in.files);
  out->set_bytes(in.bytes);
  for (const LeftOut& left : in.left_out) {
    pb::LeftOut* l = out->add_left_out();
    l->set_path(left.path);
    l->set_size_bytes(left.size_bytes);
    l->set_reason(Text(left.reason));
  }
  out->set_left_out_count(in.left_out_count);
}

Result<OutputResult> FromProto(const pb::OutputResult& in) {
  OutputResult out;
  GPULAYER_ASSIGN_OR_RETURN(out.tree, HashFromBytes(in.tree(), "outputs.tree"));
  out.files = in.files();
  out.bytes = in.bytes();
  for (const pb::LeftOut& left : in.left_out()) {
    if (out.left_out.size() >= limits::kLeftOutShown) break;
    out.left_out.push_back({left.path(), left.size_bytes(), left.reason()});
  }
  out.left_out_count = in.left_out_count();
  return out;
}

}  // namespace gpulayer::wire
