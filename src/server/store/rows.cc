#include "server/store/rows.h"

#include <utility>

#include "server/store/codec.h"

namespace gpulayer::rows {
namespace {

using sqlite::Statement;

std::optional<std::int64_t> Widen(const std::optional<std::int32_t>& v) {
  return v ? std::optional<std::int64_t>(*v) : std::nullopt;
}
std::optional<std::int32_t> Narrow(const std::optional<std::int64_t>& v) {
  return v ? std::optional<std::int32_t>(static_cast<std::int32_t>(*v)) : std::nullopt;
}
std::int32_t Int32(Statement& from) { return static_cast<std::int32_t>(from.Int()); }
std::string String(Statement& from) { return std::string(from.Text()); }
template <typename E>
E Enum(Statement& from) {
  return static_cast<E>(from.Int());
}

void Bind(Statement& to, const Cause& cause) {
  to.Int(static_cast<std::int64_t>(cause.kind)).Text(cause.text);
}
Cause ReadCause(Statement& from) {
  Cause cause;
  cause.kind = Enum<CauseKind>(from);
  cause.text = String(from);
  return cause;
}

void Bind(Statement& to, const Outcome& outcome) {
  to.Int(Widen(outcome.exit_code)).Int(Widen(outcome.signal));
  Bind(to, outcome.cause);
}
Outcome ReadOutcome(Statement& from) {
  Outcome outcome;
  outcome.exit_code = Narrow(from.OptionalInt());
  outcome.signal = Narrow(from.OptionalInt());
  outcome.cause = ReadCause(from);
  return outcome;
}

void Bind(Statement& to, const TaskRef& ref) { to.Int(ref.job.value()).Int(ref.task.value()); }
TaskRef ReadTaskRef(Statement& from) {
  TaskRef ref;
  ref.job = JobId(from.Int());
  ref.task = TaskIndex(from.Int());
  return ref;
}

}  // namespace

void BindJobState(Statement& to, const JobRecord& job) {
  to.Int(static_cast<std::int64_t>(job.state)).Text(job.queued.ToText());
  for (int state = 1; state <= 9; ++state) to.Int(job.counts.count[state]);
  Bind(to, job.outcome);
  to.Time(job.created).Time(job.started).Time(job.ended);
}

const char* const kJobColumns =
    "name, id, user_name, state, queued, count_blocked, count_queued, count_preparing, "
    "count_running, count_finishing, count_succeeded, count_failed, count_cancelled, "
    "count_timed_out, exit_code, signal, cause_kind, cause_text, created_at_us, started_at_us, "
    "ended_at_us";

Result<JobRecord> ReadJob(Statement& from) {
  JobRecord job;
  job.id = JobId(from.Int());
  job.user = UserName(String(from));
  job.state = Enum<TaskState>(from);
  Result<IntervalSet> queued = IntervalSet::FromText(from.Text());
  if (!queued.ok()) return DataLoss("job " + ToString(job.id) + ": its queued tasks");
  job.queued = *std::move(queued);
  for (int state = 1; state <= 9; ++state) job.counts.count[state] = from.Int();
  job.outcome = ReadOutcome(from);
  job.created = from.Time();
  job.started = from.OptionalTime();
  job.ended = from.OptionalTime();
  return job;
}

const char* const kTaskColumns =
    "job_id, task_index, state, exit_code, signal, cause_kind, cause_text, attempts, failures, "
    "losses, outputs";

void Bind(Statement& to, const TaskRecord& task) {
  Bind(to, task.ref);
  to.Int(static_cast<std::int64_t>(task.state));
  Bind(to, task.outcome);
  to.Int(task.attempts.value()).Int(task.failures).Int(task.losses);
  to.Blob(codec::Encode(task.outputs));
}

Result<TaskRecord> ReadTask(Statement& from) {
  TaskRecord task;
  task.ref = ReadTaskRef(from);
  task.state = Enum<TaskState>(from);
  task.outcome = ReadOutcome(from);
  task.attempts = AttemptNo(Int32(from));
  task.failures = Int32(from);
  task.losses = Int32(from);
  Result<OutputResult> outputs = codec::Decode<OutputResult>(from.Blob());
  if (!outputs.ok()) return outputs.status().Prefixed("task " + ToString(task.ref) + ", outputs");
  task.outputs = *std::move(outputs);
  return task;
}

const char* const kAttemptColumns =
    "job_id, task_index, number, attempt_id, worker_id, worker_name, state, allocation, "
    "exit_code, signal, cause_kind, cause_text, stop_kind, stop_text, created_at_us, "
    "started_at_us, ended_at_us, log_bytes, kept_folder";

void Bind(Statement& to, const AttemptRecord& attempt) {
  Bind(to, attempt.ref.task);
  to.Int(attempt.ref.number.value()).Text(attempt.id.value());
  to.Text(attempt.worker.value()).Text(attempt.worker_name);
  to.Int(static_cast<std::int64_t>(attempt.state)).Blob(codec::Encode(attempt.allocation));
  Bind(to, attempt.outcome);
  Bind(to, attempt.stop);
  to.Time(attempt.created).Time(attempt.started).Time(attempt.ended).Int(attempt.log_bytes);
  to.Blob(attempt.kept_folder);
}

Result<AttemptRecord> ReadAttempt(Statement& from) {
  AttemptRecord attempt;
  attempt.ref.task = ReadTaskRef(from);
  attempt.ref.number = AttemptNo(Int32(from));
  attempt.id = AttemptId(String(from));
  attempt.worker = WorkerId(String(from));
  attempt.worker_name = String(from);
  attempt.state = Enum<AttemptState>(from);
  Result<Allocation> allocation = codec::Decode<Allocation>(from.Blob());
  if (!allocation.ok()) {
    return allocation.status().Prefixed("attempt " + ToString(attempt.ref) + ", allocation");
  }
  attempt.allocation = *std::move(allocation);
  attempt.outcome = ReadOutcome(from);
  attempt.stop = ReadCause(from);
  attempt.created = from.Time();
  attempt.started = from.OptionalTime();
  attempt.ended = from.OptionalTime();
  attempt.log_bytes = from.Int();
  attempt.kept_folder = from.Blob();
  return attempt;
}

const char* const kWorkerColumns = "id, profile, epoch, boot_id, first_seen_at_us, last_seen_at_us";

void Bind(Statement& to, const WorkerRecord& worker) {
  to.Text(worker.profile.id.value()).Blob(codec::Encode(worker.profile));
  to.Int(worker.epoch.value()).Text(worker.boot_id);
  to.Time(worker.first_seen).Time(worker.last_seen);
}

Result<WorkerRecord> ReadWorker(Statement& from) {
  WorkerRecord worker;
  const std::string id = String(from);
  Result<WorkerProfile> profile = codec::Decode<WorkerProfile>(from.Blob());
  if (!profile.ok()) return profile.status().Prefixed("worker " + id + ", profile");
  worker.profile = *std::move(profile);
  worker.epoch = WorkerEpoch(from.Int());
  worker.boot_id = String(from);
  worker.first_seen = from.Time();
  worker.last_seen = from.Time();
  return worker;
}

const char* const kTokenColumns =
    "id, secret_hash, kind, role, user_name, parent, subject, created_at_us, expires_at_us, "
    "revoked_at_us";

void Bind(Statement& to, const TokenRecord& token) {
  to.Text(token.id).Blob(token.secret_hash.bytes());
  to.Int(static_cast<std::int64_t>(token.kind)).Int(static_cast<std::int64_t>(token.role));
  to.Text(token.user.value()).Text(token.parent).Text(token.subject);
  to.Time(token.created).Time(token.expires).Time(token.revoked);
}

Result<TokenRecord> ReadToken(Statement& from) {
  TokenRecord token;
  token.id = String(from);
  Result<Hash> hash = Hash::FromBytes(from.Blob());
  if (!hash.ok()) return DataLoss("token " + token.id + ": its hash");
  token.secret_hash = *hash;
  token.kind = Enum<TokenRecord::Kind>(from);
  token.role = Enum<Role>(from);
  token.user = UserName(String(from));
  token.parent = String(from);
  token.subject = String(from);
  token.created = from.Time();
  token.expires = from.OptionalTime();
  token.revoked = from.OptionalTime();
  return token;
}

}  // namespace gpulayer::rows
