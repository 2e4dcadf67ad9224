// Records with something in every field, drawn by RapidCheck.
#ifndef GPULAYER_TESTS_STORE_RANDOM_RECORDS_H_
#define GPULAYER_TESTS_STORE_RANDOM_RECORDS_H_

#include <rapidcheck.h>

#include <memory>
#include <string>
#include <utility>

#include "model/records.h"

namespace gpulayer::testing {

// Any bytes, NUL and bad UTF-8 among them.
inline std::string Bytes() { return *rc::gen::arbitrary<std::string>(); }
inline std::int64_t Number() { return *rc::gen::arbitrary<std::int64_t>(); }
inline std::int32_t Small() { return *rc::gen::arbitrary<std::int32_t>(); }
inline std::int64_t Below(std::int64_t end) { return *rc::gen::inRange<std::int64_t>(0, end); }
inline bool Coin() { return *rc::gen::arbitrary<bool>(); }
inline WallTime Wall() { return FromMicros(Below(std::int64_t{1} << 52)); }
inline std::optional<WallTime> MaybeWall() {
  return Coin() ? std::optional<WallTime>(Wall()) : std::nullopt;
}
inline Hash SomeHash() { return Coin() ? Hash() : Hash::Of(Bytes()); }

template <typename Make>
auto Several(Make make) {
  std::vector<decltype(make())> items;
  for (std::int64_t n = Below(4); n > 0; --n) items.push_back(make());
  return items;
}

inline std::map<std::string, std::string> Labels() {
  std::map<std::string, std::string> labels;
  for (std::int64_t n = Below(4); n > 0; --n) labels[Bytes()] = Bytes();
  return labels;
}

inline JobSpec RandomSpec() {
  JobSpec spec;
  spec.name = Bytes();
  spec.command = Several(Bytes);
  spec.env = Several([] { return EnvVar{Bytes(), Bytes()}; });
  spec.secrets = Several(Bytes);
  spec.secrets_ref = Bytes();
  Requirements& need = spec.requirements;
  need.slots = Small();
  need.memory_bytes = Number();
  need.accelerator = static_cast<AcceleratorKind>(Below(6));
  need.devices = Small();
  need.device_memory_bytes = Number();
  need.device_model = Bytes();
  need.labels = Labels();
  need.zone = Bytes();
  need.region = Bytes();
  need.workers = Several(Bytes);
  need.secrets = Coin();
  spec.source_tree = SomeHash();
  spec.stdin_blob = SomeHash();
  spec.outputs = {Coin(), Several(Bytes), Number()};
  if (Coin()) spec.time_limit = Duration(Number());
  spec.grace = Duration(Number());
  spec.log_limit_bytes = Number();
  spec.keep = Coin();
  spec.array = Number() % 2 == 0;
  spec.tasks = {Number(), Number(), Number()};
  spec.max_parallel = Number();
  if (Coin()) spec.only.Add(Number() & 0xFFFF);
  spec.retry_of = JobId(Number());
  spec.wait_for_worker = Coin();
  spec.request_id = RequestId(Bytes());
  return spec;
}

inline Outcome RandomOutcome() {
  Outcome outcome;
  if (Coin()) outcome.exit_code = Small();
  if (Coin()) outcome.signal = Small();
  outcome.cause = {static_cast<CauseKind>(Below(15)), Bytes()};
  return outcome;
}

inline Allocation RandomAllocation() { return {Small(), Number(), Several(Bytes)}; }

inline OutputResult RandomOutputs() {
  OutputResult outputs;
  outputs.tree = SomeHash();
  outputs.files = Number();
  outputs.bytes = Number();
  outputs.left_out = Several([] { return LeftOut{Bytes(), Number(), Bytes()}; });
  outputs.left_out_count = Number();
  return outputs;
}

inline WorkerProfile RandomProfile() {
  WorkerProfile profile;
  profile.id = WorkerId(Bytes());
  profile.name = Bytes();
  profile.zone = Bytes();
  profile.region = Bytes();
  profile.labels = Labels();
  profile.resources = {Small(), Number(), Several([] {
                         return Device{Bytes(), static_cast<AcceleratorKind>(Below(6)), Bytes(),
                                       Number()};
                       })};
  profile.version = Bytes();
  profile.takes_secrets = Coin();
  return profile;
}

// Everything that an update may change, too.
inline void RandomJobState(JobRecord& job, TaskState state) {
  job.state = state;
  job.queued = IntervalSet::Range(0, Below(100));
  job.queued.Add(Below(1000));
  for (int s = 1; s <= 9; ++s) job.counts.count[s] = Below(1'000'000);
  job.outcome = RandomOutcome();
  job.created = Wall();
  job.started = MaybeWall();
  job.ended = MaybeWall();
}

inline JobRecord RandomJob(JobId id, TaskState state) {
  JobRecord job;
  job.id = id;
  job.user = UserName(*rc::gen::element<std::string>("ann", "bob", "caf\xC3\xA9", "\xFF"));
  JobSpec spec = RandomSpec();
  spec.request_id = RequestId("request " + ToString(id));
  job.spec = std::make_shared<const JobSpec>(std::move(spec));
  RandomJobState(job, state);
  return job;
}

inline TaskRecord RandomTask(TaskRef ref) {
  TaskRecord task;
  task.ref = ref;
  task.state = static_cast<TaskState>(1 + Below(9));
  task.outcome = RandomOutcome();
  task.attempts = AttemptNo(Small());
  task.failures = Small();
  task.losses = Small();
  task.outputs = RandomOutputs();
  return task;
}

inline AttemptRecord RandomAttempt(AttemptRef ref, AttemptState state) {
  AttemptRecord attempt;
  attempt.ref = ref;
  attempt.id = AttemptId(Bytes());
  attempt.worker = WorkerId(Bytes());
  attempt.worker_name = Bytes();
  attempt.state = state;
  attempt.allocation = RandomAllocation();
  attempt.outcome = RandomOutcome();
  attempt.stop = {static_cast<CauseKind>(Below(15)), Bytes()};
  attempt.created = Wall();
  attempt.started = MaybeWall();
  attempt.ended = MaybeWall();
  attempt.log_bytes = Number();
  attempt.kept_folder = Bytes();
  return attempt;
}

inline WorkerRecord RandomWorker(const std::string& id) {
  WorkerRecord worker;
  worker.profile = RandomProfile();
  worker.profile.id = WorkerId(id);
  worker.epoch = WorkerEpoch(Number());
  worker.boot_id = Bytes();
  worker.first_seen = Wall();
  worker.last_seen = Wall();
  return worker;
}

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_STORE_RANDOM_RECORDS_H_
