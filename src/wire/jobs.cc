#include "wire/jobs.h"

#include "wire/convert.h"

namespace gpulayer::wire {
namespace {

template <typename Info>
void TimesFromProto(const Info& in, WallTime& created, std::optional<WallTime>& started,
                    std::optional<WallTime>& ended) {
  created = FromMicros(in.created_at_us());
  if (in.has_started_at_us()) started = FromMicros(in.started_at_us());
  if (in.has_ended_at_us()) ended = FromMicros(in.ended_at_us());
}

template <typename Record, typename Info>
void TimesToProto(const Record& in, Info* out) {
  out->set_created_at_us(ToMicros(in.created));
  if (in.started) out->set_started_at_us(ToMicros(*in.started));
  if (in.ended) out->set_ended_at_us(ToMicros(*in.ended));
}

}  // namespace

void ToProto(const JobRecord& in, pb::JobInfo* out) {
  out->set_id(in.id.value());
  out->set_user(in.user.value());
  if (in.spec) ToProto(*in.spec, out->mutable_spec());
  out->set_state(static_cast<std::int32_t>(in.state));
  ToProto(in.outcome, out->mutable_outcome());
  TimesToProto(in, out);
  for (const std::int64_t n : in.counts.count) out->add_counts(n);
}

Result<JobRecord> FromProto(const pb::JobInfo& in) {
  JobRecord out;
  out.id = JobId(in.id());
  out.user = UserName(in.user());
  GPULAYER_ASSIGN_OR_RETURN(JobSpec spec, FromProto(in.spec()));
  out.spec = std::make_shared<const JobSpec>(std::move(spec));
  out.state = static_cast<TaskState>(in.state());
  out.outcome = FromProto(in.outcome());
  TimesFromProto(in, out.created, out.started, out.ended);
  for (int i = 0; i < in.counts_size() && i < 10; ++i) out.counts.count[i] = in.counts(i);
  return out;
}

void ToProto(const TaskRecord& in, const std::vector<AttemptRecord>& attempts, pb::TaskInfo* out) {
  out->set_index(in.ref.task.value());
  out->set_state(static_cast<std::int32_t>(in.state));
  ToProto(in.outcome, out->mutable_outcome());
  ToProto(in.outputs, out->mutable_outputs());
  for (const AttemptRecord& attempt : attempts) {
    pb::AttemptInfo* a = out->add_attempts();
    a->set_number(attempt.ref.number.value());
    a->set_id(attempt.id.value());
    a->set_worker_id(attempt.worker.value());
    a->set_worker(attempt.worker_name);
    a->set_state(static_cast<std::int32_t>(attempt.state));
    ToProto(attempt.allocation, a->mutable_allocation());
    ToProto(attempt.outcome, a->mutable_outcome());
    TimesToProto(attempt, a);
    a->set_log_bytes(attempt.log_bytes);
  }
}

Result<TaskAndAttempts> FromProto(const pb::TaskInfo& in, JobId job) {
  TaskAndAttempts out;
  out.task.ref = {job, TaskIndex(in.index())};
  out.task.state = static_cast<TaskState>(in.state());
  out.task.outcome = FromProto(in.outcome());
  GPULAYER_ASSIGN_OR_RETURN(out.task.outputs, FromProto(in.outputs()));
  for (const pb::AttemptInfo& a : in.attempts()) {
    AttemptRecord attempt;
    attempt.ref = {out.task.ref, AttemptNo(a.number())};
    attempt.id = AttemptId(a.id());
    attempt.worker = WorkerId(a.worker_id());
    attempt.worker_name = a.worker();
    attempt.state = static_cast<AttemptState>(a.state());
    attempt.allocation = FromProto(a.allocation());
    attempt.outcome = FromProto(a.outcome());
    TimesFromProto(a, attempt.created, attempt.started, attempt.ended);
    attempt.log_bytes = a.log_bytes();
    out.task.attempts = attempt.ref.number;
    out.attempts.push_back(std::move(attempt));
  }
  return out;
}

void ToProto(const Explanation& in, pb::ExplainReply* out) {
  out->set_job(in.job.value());
  out->set_state(static_cast<std::int32_t>(in.state));
  out->set_needs(in.needs);
  if (in.waiting_since) out->set_waiting_since_us(ToMicros(*in.waiting_since));
  out->set_ahead(in.ahead);
  for (const WorkerReason& reason : in.workers) {
    pb::ExplainReply::Worker* w = out->add_workers();
    w->set_worker(reason.worker);
    w->set_kind(static_cast<std::int32_t>(reason.kind));
    for (const std::string& lack : reason.lacks) w->add_lacks(lack);
  }
  out->set_summary(in.summary);
}

Explanation FromProto(const pb::ExplainReply& in) {
  Explanation out;
  out.job = JobId(in.job());
  out.state = static_cast<TaskState>(in.state());
  out.needs = in.needs();
  if (in.has_waiting_since_us()) out.waiting_since = FromMicros(in.waiting_since_us());
  out.ahead = in.ahead();
  for (const pb::ExplainReply::Worker& w : in.workers()) {
    out.workers.push_back({w.worker(),
                           static_cast<WorkerReason::Kind>(w.kind()),
                           {w.lacks().begin(), w.lacks().end()}});
  }
  out.summary = in.summary();
  return out;
}

void ToProto(const WorkerView& in, pb::ListWorkersReply::Worker* out) {
  const WorkerProfile& profile = in.record.profile;
  out->set_id(profile.id.value());
  out->set_name(profile.name);
  out->set_zone(profile.zone);
  out->set_region(profile.region);
  LabelsToProto(profile.labels, out->mutable_labels());
  ToProto(profile.resources, out->mutable_resources());
  out->set_state(static_cast<std::int32_t>(in.state));
  out->set_slots_used(in.slots_used);
  out->set_memory_used_bytes(in.memory_used_bytes);
  for (const std::string& id : in.devices_used) out->add_devices_used(id);
  out->set_running(in.running);
  out->set_version(profile.version);
  out->set_first_seen_us(ToMicros(in.record.first_seen));
  out->set_last_seen_us(ToMicros(in.record.last_seen));
}

Result<WorkerView> FromProto(const pb::ListWorkersReply::Worker& in) {
  WorkerView out;
  WorkerProfile& profile = out.record.profile;
  profile.id = WorkerId(in.id());
  profile.name = in.name();
  profile.zone = in.zone();
  profile.region = in.region();
  profile.labels = LabelsFromProto(in.labels());
  GPULAYER_ASSIGN_OR_RETURN(profile.resources, FromProto(in.resources()));
  profile.version = in.version();
  out.record.first_seen = FromMicros(in.first_seen_us());
  out.record.last_seen = FromMicros(in.last_seen_us());
  out.state = static_cast<WorkerState>(in.state());
  out.slots_used = in.slots_used();
  out.memory_used_bytes = in.memory_used_bytes();
  out.devices_used.assign(in.devices_used().begin(), in.devices_used().end());
  out.running = in.running();
  return out;
}

}  // namespace gpulayer::wire
