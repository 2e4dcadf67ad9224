#include "gpulayer/job_info.h"

#include "base/text.h"
#include "gpulayer/text.h"
#include "model/records.h"

// The public enumerations are the model's under other names: the numbers are one.
namespace gpulayer {
namespace {

// The model's names are literals; an unknown number comes from a newer server.
template <typename Model, typename Public>
const char* Name(Public value) {
  const std::string_view name = ToString(static_cast<Model>(static_cast<std::int32_t>(value)));
  return name.empty() ? "unknown" : name.data();
}

Outcome ToModel(const api::Outcome& in) {
  Outcome out;
  out.exit_code = in.exit_code;
  out.signal = in.signal;
  out.cause = {static_cast<CauseKind>(in.cause), in.cause_text};
  return out;
}

}  // namespace

namespace api {

const char* ToString(JobState state) { return Name<gpulayer::TaskState>(state); }
const char* ToString(AttemptState state) { return Name<gpulayer::AttemptState>(state); }
const char* ToString(CauseKind kind) { return Name<gpulayer::CauseKind>(kind); }
const char* ToString(Accelerator kind) { return Name<gpulayer::AcceleratorKind>(kind); }
const char* ToString(WorkerState state) { return Name<gpulayer::WorkerState>(state); }

const char* ToString(Explanation::Kind kind) {
  switch (kind) {
    case Explanation::Kind::kNever: return "never";
    case Explanation::Kind::kNotNow: return "not now";
    case Explanation::Kind::kHeld: return "held";
    case Explanation::Kind::kFits: return "fits";
  }
  return "unknown";
}

std::optional<JobState> JobStateFromString(const std::string& text) {
  const std::optional<TaskState> state = TaskStateFromString(text);
  if (!state) return std::nullopt;
  return static_cast<JobState>(*state);
}

int ShellExitCode(const JobInfo& info) {
  return gpulayer::ShellExitCode(static_cast<TaskState>(info.state), ToModel(info.outcome));
}

JobResult ResultOf(const JobInfo& info) {
  JobResult out;
  out.job = info.id;
  out.state = info.state;
  out.exit_code = info.outcome.exit_code;
  out.signal = info.outcome.signal;
  out.cause = info.outcome.cause;
  out.cause_text = info.outcome.cause_text;
  if (IsTerminal(info.state)) out.shell_exit_code = ShellExitCode(info);
  out.created = info.created;
  out.started = info.started;
  out.ended = info.ended;
  return out;
}

}  // namespace api
}  // namespace gpulayer
