#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "model/limits.h"
#include "server/core/lifecycle.h"
#include "server/core/requests.h"
#include "server/core/state.h"

namespace gpulayer::core {
namespace {

constexpr std::size_t kWorkersNamed = 20;  // in a rejection; a fleet's whole list helps nobody

// What the rest of the core relies on; the handlers say it in more detail before.
Status CheckSpec(const JobSpec* spec) {
  if (spec == nullptr || spec->command.empty()) {
    return InvalidArgument("submit: no command is given. Say what to run");
  }
  if (spec->request_id.value().empty()) {
    return InvalidArgument("submit: no request id is given. Draw one");
  }
  if (spec->tasks.count < 1 || spec->tasks.count > limits::kMaxTasksPerJob) {
    return InvalidArgument("submit: " + std::to_string(spec->tasks.count) +
                           " tasks are asked for. A job has 1 to " +
                           std::to_string(limits::kMaxTasksPerJob));
  }
  const Requirements& need = spec->requirements;
  if (need.slots < 0 || need.memory_bytes < 0 || need.devices < 0 || need.device_memory_bytes < 0) {
    return InvalidArgument("submit: a negative amount is asked for. Ask for zero or more");
  }
  return OkStatus();
}

// "no worker is named gpubox; there are: gpu-box, mac-1". Empty: one of them is, or none is asked for.
std::string WhyNoName(const State& state, const Requirements& need) {
  if (need.workers.empty()) return "";
  const auto asked = [&](const std::string& name) {
    return std::find(need.workers.begin(), need.workers.end(), name) != need.workers.end();
  };
  std::set<std::string> names;
  for (const auto& [id, worker] : state.workers) {
    if (asked(worker.record.profile.name) || asked(id.value())) return "";
    names.insert(worker.record.profile.name);
  }
  std::vector<std::string> shown(names.begin(), names.end());
  if (shown.size() > kWorkersNamed) {
    shown.resize(kWorkersNamed);
    shown.push_back("and " + std::to_string(names.size() - kWorkersNamed) + " more");
  }
  return "no worker is named " + Join(need.workers, " or ") + "; there are: " + Join(shown, ", ");
}

// "no worker can run this: needs 1 slot, cuda with 40GiB; gpu-box: cuda 24GiB; mac-1: no device".
// Empty: some worker can, or none is known yet.
std::string WhyNever(const State& state, const Requirements& need) {
  struct Miss {
    std::size_t reasons;
    std::string text;
  };
  std::vector<Miss> misses;
  for (const auto& [id, worker] : state.workers) {
    const std::vector<std::string> reasons = NeverReasons(need, worker.record.profile);
    if (reasons.empty()) return "";
    std::string text = worker.record.profile.name + ": ";
    for (std::size_t i = 0; i < reasons.size(); ++i) text += (i == 0 ? "" : ", ") + reasons[i];
    misses.push_back({reasons.size(), std::move(text)});
  }
  if (misses.empty()) return "";
  const std::string head = "no worker can run this: ";
  if (const std::string nobody = WhyNoName(state, need); !nobody.empty()) return head + nobody;
  // Nearest first: who lacks the least in number, then by name.
  std::sort(misses.begin(), misses.end(), [](const Miss& a, const Miss& b) {
    return std::tie(a.reasons, a.text) < std::tie(b.reasons, b.text);
  });
  std::string out = head + "needs " + Describe(need);
  for (std::size_t i = 0; i < std::min(misses.size(), kWorkersNamed); ++i) {
    out += "; " + misses[i].text;
  }
  if (misses.size() > kWorkersNamed) {
    out += "; and " + std::to_string(misses.size() - kWorkersNamed) + " more";
  }
  return out;
}

// "all workers that can run this are offline (box3, box7)". Empty: one is not, or none can.
std::string WhyNobodyNow(const State& state, const Requirements& need) {
  std::vector<std::string> names;
  std::size_t more = 0;
  for (const auto& [id, worker] : state.workers) {
    if (!NeverReasons(need, worker.record.profile).empty()) continue;
    if (worker.state != WorkerState::kOffline) return "";
    if (names.size() < kWorkersNamed) {
      names.push_back(worker.record.profile.name);
    } else {
      ++more;
    }
  }
  if (names.empty()) return "";
  if (more > 0) names.push_back("and " + std::to_string(more) + " more");
  return "all workers that can run this are offline (" + Join(names, ", ") + ")";
}

Job NewJob(const SubmitJobs& event, std::shared_ptr<const JobSpec> spec, JobId id, Instant now) {
  Job job;
  job.record.id = id;
  job.record.user = event.caller.user;
  job.record.queued = spec->only.empty() ? IntervalSet::Range(0, spec->tasks.count) : spec->only;
  job.record.counts[TaskState::kQueued] = spec->task_count();
  job.record.created = now.wall;
  job.record.spec = std::move(spec);
  return job;
}

// Of secrets the names count: values are not compared, and those that came first stay.
bool IsSameSpec(const JobSpec& asked, const JobSpec& known) {
  if (asked.secrets_ref == known.secrets_ref) return asked == known;
  JobSpec alike = asked;
  alike.secrets_ref = known.secrets_ref;
  return alike == known;
}

Status NameInBatch(Status status, std::size_t i, const SubmitJobs& event) {
  if (event.specs.size() == 1) return status;
  return status.Prefixed("job " + std::to_string(i + 1) + " of " +
                         std::to_string(event.specs.size()));
}

}  // namespace

Result<std::string> SameRequest(const JobSpec& asked, const JobSpec& known, JobId job) {
  if (IsSameSpec(asked, known)) return std::string();
  const std::string what =
      "submit: job " + ToString(job) + " has the request id " + asked.request_id.value();
  // A script that repeats itself may have changed a file of its folder meanwhile.
  JobSpec alike = asked;
  alike.secrets_ref = known.secrets_ref;
  alike.source_tree = known.source_tree;
  alike.stdin_blob = known.stdin_blob;
  if (alike.tasks.count == known.tasks.count) alike.items = known.items;
  if (alike == known) return what + " and was given other files: it runs with those";
  return AlreadyExists(what +
                       " and asks for something else. Use another --request-id, or see `gpulayer "
                       "job show " +
                       ToString(job) + "`");
}

std::string RequestKey(const UserName& user, const RequestId& request) {
  return user.value() + '\0' + request.value();
}

namespace {

// A batch is stored whole, so a true repeat finds every one of its ids. Were the new ones taken, the
// handler's comparison with jobs that are over would come too late to refuse all of them.
Status HalfARepeat(const State& state, const SubmitJobs& event) {
  for (std::size_t i = 0; i < event.specs.size(); ++i) {
    const RequestId& request = event.specs[i]->request_id;
    const auto known = state.requests.find(RequestKey(event.caller.user, request));
    if (known == state.requests.end()) continue;
    return NameInBatch(
        AlreadyExists(
            "submit: job " + ToString(known->second) + " has the request id " + request.value() +
            ", and others of these jobs are new. Repeat just what was submitted together, "
            "or give each job a new id"),
        i, event);
  }
  return OkStatus();
}

}  // namespace

void OnSubmit(Turn& turn, const SubmitJobs& event) {
  State& state = turn.state;
  // First everything that can refuse the batch, so that it is all or nothing.
  std::map<Requirements, std::string> never;
  std::map<std::string, const JobSpec*> keys;
  std::size_t repeats = 0;
  for (std::size_t i = 0; i < event.specs.size(); ++i) {
    const JobSpec* spec = event.specs[i].get();
    Status status = CheckSpec(spec);
    if (status.ok()) {
      const std::string key = RequestKey(event.caller.user, spec->request_id);
      const auto known = state.requests.find(key);
      if (known != state.requests.end()) {
        // Of jobs that are over the store knows what they were: the handler compares.
        const auto job = state.jobs.find(known->second);
        if (job != state.jobs.end()) {
          status = SameRequest(*spec, *job->second.record.spec, known->second).status();
        }
        ++repeats;
        if (status.ok()) continue;
        return turn.Answer(event.tag, NameInBatch(std::move(status), i, event));
      }
      const auto [first, is_first] = keys.try_emplace(key, spec);
      if (!is_first && !IsSameSpec(*first->second, *spec)) {
        status = InvalidArgument("submit: two different jobs have the request id " +
                                 spec->request_id.value() + ". Give each its own");
        return turn.Answer(event.tag, NameInBatch(std::move(status), i, event));
      }
      const auto [it, is_new] = never.try_emplace(spec->requirements);
      if (is_new) it->second = WhyNever(state, spec->requirements);
      if (state.refused.contains(key)) {
        status = Cancelled(
            "submit: this request was cancelled before it arrived. Submit again with a new id");
      } else if (!it->second.empty() && !spec->wait_for_worker) {
        status = Status(StatusCode::kRejected, it->second);
      }
    }
    if (!status.ok()) {
      return turn.Answer(event.tag, NameInBatch(std::move(status), i, event));
    }
  }

  if (repeats > 0 && repeats < event.specs.size()) {
    return turn.Answer(event.tag, HalfARepeat(state, event));
  }

  SubmitReply reply;
  std::map<Requirements, std::string> offline;
  for (const std::shared_ptr<const JobSpec>& spec : event.specs) {
    const auto [request, is_new] = state.requests.try_emplace(
        RequestKey(event.caller.user, spec->request_id), JobId(state.last_job.value() + 1));
    Submitted submitted{request->second, !is_new, ""};
    if (const auto job = state.jobs.find(request->second); !is_new && job != state.jobs.end()) {
      submitted.warning = SameRequest(*spec, *job->second.record.spec, job->first).value_or("");
    }
    if (is_new) {
      state.last_job = request->second;
      if (state.workers.empty()) {
        submitted.warning = "no worker is known yet: the job waits";
      } else if (const std::string& why = never[spec->requirements]; !why.empty()) {
        submitted.warning = why + ": the job waits";
      } else {
        const auto [nobody, first] = offline.try_emplace(spec->requirements);
        if (first) nobody->second = WhyNobodyNow(state, spec->requirements);
        if (!nobody->second.empty()) submitted.warning = nobody->second + ": the job waits";
      }
      Job& job = state.jobs[state.last_job];
      job = NewJob(event, spec, state.last_job, turn.now);
      SyncQueue(state, job);
      turn.inserted.insert(state.last_job);
      // Behind others that find no room it finds none either: a submit to a full house is cheap.
      if (!state.queue.at(spec->requirements).blocked) turn.schedule = true;
    }
    reply.jobs.push_back(std::move(submitted));
  }
  turn.Answer(event.tag, std::move(reply));
}

}  // namespace gpulayer::core
