#include "wire/jobs.h"

namespace gpulayer::wire {
namespace {

template <typename Record, typename Info>
void TimesToProto(const Record& in, Info* out) {
  out->set_created_at_us(ToMicros(in.created));
  if (in.started) out->set_started_at_us(ToMicros(*in.started));
  if (in.ended) out->set_ended_at_us(ToMicros(*in.ended));
}

}  // namespace

void ToProto(const JobRecord& in, pb::JobInfo* out, Only only) {
  out->set_id(in.id.value());
  out->set_user(in.user.value());
  if (in.spec) ToProto(*in.spec, out->mutable_spec(), only);
  out->set_state(static_cast<std::int32_t>(in.state));
  ToProto(in.outcome, out->mutable_outcome());
  TimesToProto(in, out);
  for (const std::int64_t n : in.counts.count) out->add_counts(n);
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
    a->set_kept_folder(attempt.kept_folder);
  }
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
  out->set_held(in.quarantine);
}

}  // namespace gpulayer::wire
