#include "server/store/store_reader.h"

#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "base/text.h"
#include "server/store/codec.h"
#include "server/store/rows.h"

namespace gpulayer {

Status NameFile(const sqlite::Database& db, const Status& status) {
  if (status.code() != StatusCode::kDataLoss || status.message().starts_with("database ")) {
    return status;
  }
  return db.Damaged(status.message());
}

Result<std::shared_ptr<const JobSpec>> ReadSpec(sqlite::Database& db, sqlite::Statement& query,
                                                JobId job, std::size_t* bytes) {
  const sqlite::ResetAtEnd reset(query);
  query.Int(job.value());
  GPULAYER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return db.Damaged("job " + ToString(job) + " has no spec");
  const std::string_view blob = query.Blob();
  if (bytes != nullptr) *bytes += blob.size();
  Result<JobSpec> spec = codec::Decode<JobSpec>(blob);
  if (!spec.ok()) return NameFile(db, spec.status().Prefixed("job " + ToString(job) + ", spec"));
  return std::make_shared<const JobSpec>(*std::move(spec));
}

namespace {

using sqlite::Database;
using sqlite::Statement;

class SqliteReader : public StoreReader {
 public:
  explicit SqliteReader(std::unique_ptr<Database> db) : db_(std::move(db)) {}

  Status Prepare() {
    const std::string jobs = std::string("SELECT ") + rows::kJobColumns + " FROM jobs WHERE ";
    const std::string order = " ORDER BY id DESC";
    for (const int which : {0, kByState, kByUser, kByState | kByUser}) {
      std::string sql = jobs + "id < ?";
      if (which & kByState) sql += " AND state = ?";
      if (which & kByUser) sql += " AND user_name = ?";
      GPULAYER_ASSIGN_OR_RETURN(list_[which], db_->Prepare(sql + order));
    }
    GPULAYER_ASSIGN_OR_RETURN(begin_, db_->Prepare("BEGIN"));
    GPULAYER_ASSIGN_OR_RETURN(end_, db_->Prepare("COMMIT"));
    GPULAYER_ASSIGN_OR_RETURN(get_job_, db_->Prepare(jobs + "id = ?"));
    GPULAYER_ASSIGN_OR_RETURN(get_spec_, db_->Prepare(kSpecQuery));
    GPULAYER_ASSIGN_OR_RETURN(get_tasks_,
                              db_->Prepare(std::string("SELECT ") + rows::kTaskColumns +
                                           " FROM tasks WHERE job_id = ? AND task_index >= ?"
                                           " AND ((1 << state) & ?) != 0"
                                           " ORDER BY task_index LIMIT ?"));
    GPULAYER_ASSIGN_OR_RETURN(get_attempts_,
                              db_->Prepare(std::string("SELECT ") + rows::kAttemptColumns +
                                           " FROM attempts WHERE job_id = ? AND task_index = ?"
                                           " ORDER BY number"));
    return OkStatus();
  }

  Result<JobPage> ListJobs(const JobFilter& filter) override {
    Statement& query = list_[(filter.state ? kByState : 0) | (filter.user ? kByUser : 0)];
    const sqlite::ResetAtEnd reset(query);
    query.Int(filter.before ? filter.before->value() : std::numeric_limits<std::int64_t>::max());
    if (filter.state) query.Int(static_cast<std::int64_t>(*filter.state));
    if (filter.user) query.Text(filter.user->value());
    JobPage page;
    std::size_t spec_bytes = 0;
    for (;;) {
      GPULAYER_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      // Here and not in SQL: SQLite's GLOB knows brackets, ours does not.
      const std::string_view name = query.Text();
      if (!filter.name_glob.empty() && !GlobMatch(filter.name_glob, name)) continue;
      if (page.jobs.size() >= filter.limit || spec_bytes >= filter.max_spec_bytes) {
        page.more = true;
        break;
      }
      Result<JobRecord> job = rows::ReadJob(query);
      if (!job.ok()) return NameFile(*db_, job.status());
      GPULAYER_ASSIGN_OR_RETURN(job->spec, ReadSpec(*db_, get_spec_, job->id, &spec_bytes));
      page.jobs.push_back(*std::move(job));
    }
    return page;
  }

  Result<JobRecord> GetJob(JobId id) override {
    const sqlite::ResetAtEnd reset(get_job_);
    get_job_.Int(id.value());
    GPULAYER_ASSIGN_OR_RETURN(const bool row, get_job_.Step());
    if (!row)
      return NotFound("job " + ToString(id) + ": no such job. `gpulayer job list` shows the jobs");
    get_job_.Text();  // the name, which the spec has, too
    Result<JobRecord> job = rows::ReadJob(get_job_);
    if (!job.ok()) return NameFile(*db_, job.status());
    GPULAYER_ASSIGN_OR_RETURN(job->spec, ReadSpec(*db_, get_spec_, id));
    return job;
  }

  Result<std::vector<TaskRecord>> GetTasks(JobId job, TaskIndex from, std::size_t limit,
                                           const std::vector<TaskState>& states) override {
    std::int64_t wanted = 0;
    for (const TaskState state : states) wanted |= std::int64_t{1} << static_cast<int>(state);
    get_tasks_.Int(job.value()).Int(from.value()).Int(states.empty() ? -1 : wanted);
    get_tasks_.Int(static_cast<std::int64_t>(limit));
    return Named(rows::ReadAll<TaskRecord>(get_tasks_, rows::ReadTask));
  }

  Result<std::vector<AttemptRecord>> GetAttempts(TaskRef task) override {
    get_attempts_.Int(task.job.value()).Int(task.task.value());
    return Named(rows::ReadAll<AttemptRecord>(get_attempts_, rows::ReadAttempt));
  }

 private:
  static constexpr int kByState = 1;
  static constexpr int kByUser = 2;

  bool Begin() override { return begin_.Run().ok(); }
  void End() override {
    if (!end_.Run().ok()) db_->Rollback();
  }

  template <typename T>
  Result<T> Named(Result<T> result) const {
    if (result.ok()) return result;
    return NameFile(*db_, result.status());
  }

  const std::unique_ptr<Database> db_;  // outlives the statements
  std::map<int, Statement> list_;
  Statement begin_;
  Statement end_;
  Statement get_job_;
  Statement get_spec_;
  Statement get_tasks_;
  Statement get_attempts_;
};

}  // namespace

Result<std::unique_ptr<StoreReader>> OpenStoreReader(const std::string& path) {
  GPULAYER_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                            Database::Open(path, Database::Mode::kReadOnly));
  auto reader = std::make_unique<SqliteReader>(std::move(db));
  GPULAYER_RETURN_IF_ERROR(reader->Prepare());
  return std::unique_ptr<StoreReader>(std::move(reader));
}

}  // namespace gpulayer
