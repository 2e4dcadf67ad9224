#include "server/rpc/job_views.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/line_file.h"
#include "model/limits.h"
#include "wire/jobs.h"

namespace gpulayer::rpc {
namespace {

constexpr std::int32_t kDefaultPage = 100;
// Room for the next item, the largest of which is a job with its spec, and for the envelope.
constexpr std::size_t kPageBytes =
    limits::kMaxMessageBytes - limits::kMaxSpecBytes - (std::size_t{256} << 10);

Result<std::size_t> PageSize(std::int32_t limit) {
  if (limit < 0) return InvalidArgument("limit: not less than 0");
  if (limit == 0) limit = kDefaultPage;
  return std::min(static_cast<std::size_t>(limit), limits::kMaxPageItems);
}

// Tasks that have never left `queued` have no row. Of an array there may be a million: they are
// listed to whoever asks for them.
bool ListsQueued(const JobRecord& job, const TaskPage& page) {
  const auto& states = page.states;
  if (states.empty()) return !job.spec->array || page.only;
  return std::find(states.begin(), states.end(), TaskState::kQueued) != states.end();
}

// The first `most` of tasks and queued ones from `from` on.
void AddQueued(const JobRecord& job, TaskIndex from, std::size_t most,
               std::vector<TaskRecord>* tasks) {
  const TaskNumbers& numbers = job.spec->tasks;
  std::size_t added = 0;
  for (const auto& [begin, end] : job.queued.runs()) {
    if (added == most) break;
    std::int64_t position = begin;
    if (numbers.At(position) < from) position = std::max(begin, numbers.PositionOf(from));
    for (; position < end && added < most; ++position) {
      const TaskIndex index = numbers.At(position);
      if (index < from) continue;
      TaskRecord task;
      task.ref = {job.id, index};
      tasks->push_back(std::move(task));
      ++added;
    }
  }
  std::sort(tasks->begin(), tasks->end(),
            [](const TaskRecord& a, const TaskRecord& b) { return a.ref.task < b.ref.task; });
  if (tasks->size() > most) tasks->resize(most);
}

}  // namespace

Status ReadJob(StoreReader& reader, JobId id, const TaskPage& page, pb::GetJobReply* out) {
  GPULAYER_ASSIGN_OR_RETURN(const std::size_t limit, PageSize(page.limit));
  const StoreReader::Snapshot snapshot(reader);
  GPULAYER_ASSIGN_OR_RETURN(const JobRecord job, reader.GetJob(id));
  wire::ToProto(job, out->mutable_job());
  const TaskIndex from = page.only ? *page.only : page.from;
  if (from.value() < 0) return InvalidArgument("task: not less than 0");
  if (page.only && !job.spec->HasTask(*page.only)) {
    return NotFound("job " + ToString(id) + ": no task " + std::to_string(page.only->value()));
  }
  const std::size_t most = page.only ? 1 : limit + 1;
  GPULAYER_ASSIGN_OR_RETURN(std::vector<TaskRecord> tasks,
                            reader.GetTasks(id, from, most, page.states));
  if (ListsQueued(job, page)) AddQueued(job, from, most, &tasks);
  std::size_t bytes = 0;
  for (const TaskRecord& task : tasks) {
    if (page.only && task.ref.task != *page.only) break;
    if (out->tasks_size() > 0 &&
        (static_cast<std::size_t>(out->tasks_size()) >= limit || bytes >= kPageBytes)) {
      out->set_next_task(task.ref.task.value());
      break;
    }
    GPULAYER_ASSIGN_OR_RETURN(const std::vector<AttemptRecord> attempts,
                              reader.GetAttempts(task.ref));
    pb::TaskInfo* info = out->add_tasks();
    wire::ToProto(task, attempts, info);
    bytes += info->ByteSizeLong();
  }
  return OkStatus();
}

void AddItems(const LineFile& lines, pb::GetJobReply* job) {
  const std::size_t used = job->ByteSizeLong();
  std::vector<std::int64_t> wanted;
  for (const pb::TaskInfo& task : job->tasks()) wanted.push_back(task.index());
  // Items may be long: those that the message has room for.
  const std::size_t room = limits::kMaxMessageBytes - 1024 - 16 * wanted.size();
  Result<std::vector<std::string>> items = lines.Lines(wanted, room > used ? room - used : 0);
  if (!items.ok()) return;  // they are a help alone
  for (std::size_t i = 0; i < items->size(); ++i) {
    job->mutable_tasks(static_cast<int>(i))->set_item(std::move((*items)[i]));
  }
}

Status ReadJobs(StoreReader& reader, const pb::ListJobsRequest& request, pb::ListJobsReply* out) {
  GPULAYER_ASSIGN_OR_RETURN(const std::size_t limit, PageSize(request.limit()));
  JobFilter filter;
  if (request.has_state()) {
    if (request.state() < static_cast<std::int32_t>(TaskState::kBlocked) ||
        request.state() > static_cast<std::int32_t>(TaskState::kTimedOut)) {
      return InvalidArgument("state " + std::to_string(request.state()) + ": not known here");
    }
    filter.state = static_cast<TaskState>(request.state());
  }
  if (request.has_user()) filter.user = UserName(request.user());
  filter.name_glob = request.name_glob();
  if (request.has_before()) filter.before = JobId(request.before());
  filter.limit = limit;
  filter.max_spec_bytes = kPageBytes;
  const StoreReader::Snapshot snapshot(reader);
  GPULAYER_ASSIGN_OR_RETURN(const StoreReader::JobPage page, reader.ListJobs(filter));
  std::size_t bytes = 0;
  for (const JobRecord& job : page.jobs) {
    if (out->jobs_size() > 0 && bytes >= kPageBytes) {
      out->set_next_before(out->jobs(out->jobs_size() - 1).id());
      break;
    }
    pb::JobInfo* info = out->add_jobs();
    wire::ToProto(job, info, wire::Only::kWithout);
    bytes += info->ByteSizeLong();
  }
  if (static_cast<std::size_t>(out->jobs_size()) == page.jobs.size() && page.more) {
    out->set_next_before(page.jobs.back().id.value());
  }
  return OkStatus();
}

}  // namespace gpulayer::rpc
