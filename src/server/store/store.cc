#include "server/store/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fs.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/text.h"
#include "server/store/codec.h"
#include "server/store/rows.h"
#include "server/store/schema.h"
#include "server/store/sqlite.h"
#include "server/store/store_reader.h"

namespace gpulayer {

std::string_view ToString(Role role) {
  switch (role) {
    case Role::kClient: return "client";
    case Role::kWorker: return "worker";
    case Role::kAdmin: return "admin";
  }
  return "unknown";
}

namespace {

using sqlite::Database;
using sqlite::Statement;

// The pages that wait in the write-ahead file before a commit moves them into the database. More
// than SQLite's 1000: the move syncs twice, and a page that changed often in between moves once.
constexpr const char* kCheckpointPages = "4000";

class SqliteStore : public Store {
 public:
  SqliteStore(std::string path, FileLock lock, std::unique_ptr<Database> db)
      : path_(std::move(path)), lock_(std::move(lock)), db_(std::move(db)) {}

  Status Prepare(bool durable) {
    GPULAYER_RETURN_IF_ERROR(Configure(*db_, durable));
    GPULAYER_RETURN_IF_ERROR(Check());
    GPULAYER_RETURN_IF_ERROR(Migrate(*db_));
    GPULAYER_RETURN_IF_ERROR(LoadIdentity());
    GPULAYER_RETURN_IF_ERROR(PrepareWriter());
    return PrepareTokens(durable);
  }

  ServerIdentity identity() const override { return identity_; }

  Result<LoadedState> Load() override {
    LoadedState state;
    state.server = identity_;
    GPULAYER_ASSIGN_OR_RETURN(const std::int64_t last, db_->QueryInt("SELECT max(id) FROM jobs"));
    state.last_job = JobId(last);
    // Jobs that are not over are few beside those that are; jobs_by_state finds them.
    const std::string open = "state < " + std::to_string(static_cast<int>(TaskState::kSucceeded));
    GPULAYER_ASSIGN_OR_RETURN(state.jobs, LoadJobs(open));
    const std::string of_open = " WHERE job_id IN (SELECT id FROM jobs WHERE " + open + ")";
    GPULAYER_ASSIGN_OR_RETURN(
        state.tasks,
        LoadAll<TaskRecord>(std::string("SELECT ") + rows::kTaskColumns + " FROM tasks" + of_open,
                            rows::ReadTask));
    GPULAYER_ASSIGN_OR_RETURN(
        state.attempts,
        LoadAll<AttemptRecord>(std::string("SELECT ") + rows::kAttemptColumns + " FROM attempts" +
                                   of_open + " AND state < " +
                                   std::to_string(static_cast<int>(AttemptState::kEnded)),
                               rows::ReadAttempt));
    GPULAYER_ASSIGN_OR_RETURN(
        state.workers,
        LoadAll<WorkerRecord>(std::string("SELECT ") + rows::kWorkerColumns + " FROM workers",
                              rows::ReadWorker));
    GPULAYER_ASSIGN_OR_RETURN(
        state.requests,
        LoadAll<StoredRequest>("SELECT user_name, request_id, id FROM jobs", ReadRequest));
    return state;
  }

  Status Write(const WriteBatch& batch) override {
    if (batch.empty()) return OkStatus();
    GPULAYER_RETURN_IF_ERROR(begin_.Run());
    Status status = WriteRows(batch);
    if (status.ok()) status = commit_.Run();
    if (!status.ok()) db_->Rollback();  // nothing of it is there: the same batch may come again
    return status;
  }

  Status PutToken(const TokenRecord& token) override {
    MutexLock lock(put_token_mutex_);
    rows::Bind(put_token_, token);
    return put_token_.Run();  // one statement is one transaction
  }

  Result<std::vector<TokenRecord>> ListTokens() override {
    MutexLock lock(read_token_mutex_);
    return NamedAll(rows::ReadAll<TokenRecord>(list_tokens_, rows::ReadToken));
  }

  Result<std::unique_ptr<StoreReader>> OpenReader() override { return OpenStoreReader(path_); }

 private:
  static Status Configure(Database& db, bool durable) {
    return db.Execute(std::string("PRAGMA journal_mode = WAL; PRAGMA synchronous = ") +
                      (durable ? "FULL" : "OFF") +
                      "; PRAGMA wal_autocheckpoint = " + kCheckpointPages +
                      "; PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -8000");
  }

  // A damaged page in the middle is said at the start, not when a job happens to touch it.
  Status Check() {
    GPULAYER_ASSIGN_OR_RETURN(Statement check, db_->Prepare("PRAGMA quick_check(1)"));
    GPULAYER_ASSIGN_OR_RETURN(const bool row, check.Step());
    const std::string found(row ? check.Text() : std::string_view("ok"));
    return found == "ok" ? OkStatus() : db_->Damaged(found);
  }

  Status LoadIdentity() {
    // Drawn by whoever finds none; a file made by a server that died before this gets one, too.
    GPULAYER_RETURN_IF_ERROR(db_->Begin());
    Status status = DrawIdentity();
    if (status.ok()) status = db_->Commit();
    if (!status.ok()) db_->Rollback();
    return status;
  }

  Status DrawIdentity() {
    GPULAYER_ASSIGN_OR_RETURN(Statement get, db_->Prepare("SELECT value FROM meta WHERE key = ?"));
    GPULAYER_ASSIGN_OR_RETURN(Statement put, db_->Prepare("INSERT INTO meta VALUES (?, ?)"));
    GPULAYER_ASSIGN_OR_RETURN(identity_.uuid, ReadMeta(get, "server_uuid"));
    if (identity_.uuid.empty()) {
      identity_ = {RandomHex(16), RandomIncarnation()};
      GPULAYER_RETURN_IF_ERROR(put.Text("server_uuid").Text(identity_.uuid).Run());
      return put.Text("incarnation").Text(std::to_string(identity_.incarnation)).Run();
    }
    GPULAYER_ASSIGN_OR_RETURN(const std::string incarnation, ReadMeta(get, "incarnation"));
    identity_.incarnation = std::strtoll(incarnation.c_str(), nullptr, 10);
    if (identity_.incarnation <= 0) return db_->Damaged("meta has no incarnation");
    return OkStatus();
  }

  static Result<std::string> ReadMeta(Statement& get, std::string_view key) {
    const sqlite::ResetAtEnd reset(get);
    GPULAYER_ASSIGN_OR_RETURN(const bool row, get.Text(key).Step());
    return row ? std::string(get.Text()) : std::string();
  }

  // Positive, and never the same for two restored copies.
  static std::int64_t RandomIncarnation() {
    std::int64_t n = 0;
    std::memcpy(&n, RandomBytes(sizeof n).data(), sizeof n);
    return (n & INT64_MAX) | 1;
  }

  Status PrepareWriter() {
    GPULAYER_ASSIGN_OR_RETURN(begin_, db_->Prepare("BEGIN IMMEDIATE"));
    GPULAYER_ASSIGN_OR_RETURN(commit_, db_->Prepare("COMMIT"));
    GPULAYER_ASSIGN_OR_RETURN(
        insert_job_,
        db_->Prepare("INSERT INTO jobs VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    GPULAYER_ASSIGN_OR_RETURN(insert_spec_, db_->Prepare("INSERT INTO job_specs VALUES (?, ?)"));
    GPULAYER_ASSIGN_OR_RETURN(
        update_job_,
        db_->Prepare("UPDATE jobs SET state = ?, queued = ?, count_blocked = ?, count_queued = ?, "
                     "count_preparing = ?, count_running = ?, count_finishing = ?, "
                     "count_succeeded = ?, count_failed = ?, count_cancelled = ?, "
                     "count_timed_out = ?, exit_code = ?, signal = ?, cause_kind = ?, "
                     "cause_text = ?, created_at_us = ?, started_at_us = ?, ended_at_us = ? "
                     "WHERE id = ?"));
    GPULAYER_ASSIGN_OR_RETURN(
        put_task_, db_->Prepare("INSERT OR REPLACE INTO tasks VALUES (?,?,?,?,?,?,?,?,?,?,?)"));
    GPULAYER_ASSIGN_OR_RETURN(put_attempt_,
                              db_->Prepare("INSERT OR REPLACE INTO attempts VALUES "
                                           "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    GPULAYER_ASSIGN_OR_RETURN(put_worker_,
                              db_->Prepare("INSERT OR REPLACE INTO workers VALUES (?,?,?,?,?,?)"));
    return OkStatus();
  }

  // Connections of their own: tokens are written and asked for by other threads than the engine's.
  // Two, so that a question never waits behind a writer that waits for somebody's lock.
  Status PrepareTokens(bool durable) {
    MutexLock put_lock(put_token_mutex_);
    MutexLock read_lock(read_token_mutex_);
    GPULAYER_ASSIGN_OR_RETURN(put_token_db_, Database::Open(path_, Database::Mode::kReadWrite));
    GPULAYER_RETURN_IF_ERROR(Configure(*put_token_db_, durable));
    GPULAYER_ASSIGN_OR_RETURN(put_token_,
                              put_token_db_->Prepare("INSERT OR REPLACE INTO tokens VALUES "
                                                     "(?,?,?,?,?,?,?,?,?,?)"));
    GPULAYER_ASSIGN_OR_RETURN(read_token_db_, Database::Open(path_, Database::Mode::kReadOnly));
    const std::string select = std::string("SELECT ") + rows::kTokenColumns + " FROM tokens ";
    GPULAYER_ASSIGN_OR_RETURN(list_tokens_,
                              read_token_db_->Prepare(select + "ORDER BY created_at_us, id"));
    return OkStatus();
  }

  Status WriteRows(const WriteBatch& batch) {
    for (const JobRecord& job : batch.insert_jobs) {
      insert_job_.Int(job.id.value()).Text(job.user.value());
      insert_job_.Text(job.spec->request_id.value()).Text(job.spec->name);
      rows::BindJobState(insert_job_, job);
      GPULAYER_RETURN_IF_ERROR(insert_job_.Run());
      insert_spec_.Int(job.id.value()).Blob(codec::Encode(*job.spec));
      GPULAYER_RETURN_IF_ERROR(insert_spec_.Run());
    }
    for (const JobRecord& job : batch.update_jobs) {
      rows::BindJobState(update_job_, job);
      GPULAYER_RETURN_IF_ERROR(update_job_.Int(job.id.value()).Run());
      if (db_->Changes() != 1) return Internal("update job " + ToString(job.id) + ": no such row");
    }
    GPULAYER_RETURN_IF_ERROR(PutAll(put_task_, batch.tasks));
    GPULAYER_RETURN_IF_ERROR(PutAll(put_attempt_, batch.attempts));
    return PutAll(put_worker_, batch.workers);
  }

  template <typename Record>
  static Status PutAll(Statement& put, const std::vector<Record>& records) {
    for (const Record& record : records) {
      rows::Bind(put, record);
      GPULAYER_RETURN_IF_ERROR(put.Run());
    }
    return OkStatus();
  }

  Result<std::vector<JobRecord>> LoadJobs(const std::string& condition) {
    GPULAYER_ASSIGN_OR_RETURN(Statement spec, db_->Prepare(kSpecQuery));
    GPULAYER_ASSIGN_OR_RETURN(Statement query,
                              db_->Prepare(std::string("SELECT ") + rows::kJobColumns +
                                           " FROM jobs WHERE " + condition + " ORDER BY id"));
    std::vector<JobRecord> jobs;
    for (;;) {
      GPULAYER_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return jobs;
      query.Text();  // the name, which the spec has, too
      Result<JobRecord> job = rows::ReadJob(query);
      if (!job.ok()) return NameFile(*db_, job.status());
      GPULAYER_ASSIGN_OR_RETURN(job->spec, ReadSpec(*db_, spec, job->id));
      jobs.push_back(*std::move(job));
    }
  }

  template <typename Record>
  Result<std::vector<Record>> LoadAll(const std::string& sql, Result<Record> (*read)(Statement&)) {
    GPULAYER_ASSIGN_OR_RETURN(Statement query, db_->Prepare(sql));
    return NamedAll(rows::ReadAll<Record>(query, read));
  }

  template <typename Record>
  Result<std::vector<Record>> NamedAll(Result<std::vector<Record>> result) const {
    if (result.ok()) return result;
    return NameFile(*db_, result.status());
  }

  static Result<StoredRequest> ReadRequest(Statement& from) {
    StoredRequest request;
    request.user = UserName(std::string(from.Text()));
    request.id = RequestId(std::string(from.Text()));
    request.job = JobId(from.Int());
    return request;
  }

  // Constant once open.
  const std::string path_;
  const FileLock lock_;
  ServerIdentity identity_;

  // The engine thread's.
  const std::unique_ptr<Database> db_;
  Statement begin_;
  Statement commit_;
  Statement insert_job_;
  Statement insert_spec_;
  Statement update_job_;
  Statement put_task_;
  Statement put_attempt_;
  Statement put_worker_;

  // Held across the database's I/O: a connection cannot be shared otherwise. Tokens are small and
  // rare; nothing else waits for these two.
  Mutex put_token_mutex_;
  std::unique_ptr<Database> put_token_db_ GPULAYER_GUARDED_BY(put_token_mutex_);
  Statement put_token_ GPULAYER_GUARDED_BY(put_token_mutex_);
  Mutex read_token_mutex_;
  std::unique_ptr<Database> read_token_db_ GPULAYER_GUARDED_BY(read_token_mutex_);
  Statement list_tokens_ GPULAYER_GUARDED_BY(read_token_mutex_);
};

Result<FileLock> LockDatabase(const std::string& path) {
  std::string pid;
  Result<FileLock> lock = FileLock::AcquireWithPid(path + ".lock", &pid);
  if (lock.status().code() == StatusCode::kFailedPrecondition) {
    return FailedPrecondition("database " + path + ": held by another server (pid " +
                              (pid.empty() ? "unknown" : pid) +
                              "). Stop that one, or name another data directory.");
  }
  return lock;
}

}  // namespace

Result<std::unique_ptr<Store>> Store::Open(const Options& options) {
  GPULAYER_RETURN_IF_ERROR(MakeDirs(DirName(options.path)));
  GPULAYER_ASSIGN_OR_RETURN(FileLock lock, LockDatabase(options.path));
  {
    // Made by us, so that it and the files beside it are nobody else's to read.
    Result<UniqueFd> made = OpenFile(options.path, O_RDWR | O_CREAT, 0600);
    if (!made.ok()) return made.status().Prefixed("open database");
  }
  GPULAYER_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                            Database::Open(options.path, Database::Mode::kReadWrite));
  auto store = std::make_unique<SqliteStore>(options.path, std::move(lock), std::move(db));
  GPULAYER_RETURN_IF_ERROR(store->Prepare(options.durable));
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace gpulayer
