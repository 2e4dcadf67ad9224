#include "server/store/schema.h"

#include <array>
#include <string>

namespace gpulayer {
namespace {

// "GPLY" in the file's header: `file` and we know whose it is.
constexpr std::int64_t kApplicationId = 0x47504C59;

// Enumerators are stored by number (model/job.h). A NULL exit_code, signal or time: there is none.
constexpr const char* k001Initial = R"sql(
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  id                INTEGER PRIMARY KEY,
  user_name         TEXT NOT NULL,
  request_id        TEXT NOT NULL,
  name              TEXT NOT NULL,
  state             INTEGER NOT NULL,
  queued            TEXT NOT NULL,     -- positions of the tasks still queued: "0-99,105"
  count_blocked     INTEGER NOT NULL,
  count_queued      INTEGER NOT NULL,
  count_preparing   INTEGER NOT NULL,
  count_running     INTEGER NOT NULL,
  count_finishing   INTEGER NOT NULL,
  count_succeeded   INTEGER NOT NULL,
  count_failed      INTEGER NOT NULL,
  count_cancelled   INTEGER NOT NULL,
  count_timed_out   INTEGER NOT NULL,
  exit_code         INTEGER,
  signal            INTEGER,
  cause_kind        INTEGER NOT NULL,
  cause_text        TEXT NOT NULL,
  created_at_us     INTEGER NOT NULL,
  started_at_us     INTEGER,
  ended_at_us       INTEGER
) STRICT;
CREATE UNIQUE INDEX jobs_by_request ON jobs (user_name, request_id);
-- Each ends in the id (the rowid), which is the order of a list.
CREATE INDEX jobs_by_user ON jobs (user_name);
CREATE INDEX jobs_by_state ON jobs (state);

-- Apart from the job's row, which is written again at every change of state.
CREATE TABLE job_specs (
  job_id INTEGER PRIMARY KEY,
  spec   BLOB NOT NULL
) STRICT;

CREATE TABLE tasks (
  job_id      INTEGER NOT NULL,
  task_index  INTEGER NOT NULL,
  state       INTEGER NOT NULL,
  exit_code   INTEGER,
  signal      INTEGER,
  cause_kind  INTEGER NOT NULL,
  cause_text  TEXT NOT NULL,
  attempts    INTEGER NOT NULL,
  failures    INTEGER NOT NULL,
  losses      INTEGER NOT NULL,
  outputs     BLOB NOT NULL,
  PRIMARY KEY (job_id, task_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
  job_id         INTEGER NOT NULL,
  task_index     INTEGER NOT NULL,
  number         INTEGER NOT NULL,
  attempt_id     TEXT NOT NULL,
  worker_id      TEXT NOT NULL,
  worker_name    TEXT NOT NULL,
  state          INTEGER NOT NULL,
  allocation     BLOB NOT NULL,
  exit_code      INTEGER,
  signal         INTEGER,
  cause_kind     INTEGER NOT NULL,
  cause_text     TEXT NOT NULL,
  stop_kind      INTEGER NOT NULL,
  stop_text      TEXT NOT NULL,
  created_at_us  INTEGER NOT NULL,
  started_at_us  INTEGER,
  ended_at_us    INTEGER,
  log_bytes      INTEGER NOT NULL,
  PRIMARY KEY (job_id, task_index, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
  id                TEXT PRIMARY KEY,
  profile           BLOB NOT NULL,
  epoch             INTEGER NOT NULL,
  boot_id           TEXT NOT NULL,
  first_seen_at_us  INTEGER NOT NULL,
  last_seen_at_us   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
  id             TEXT PRIMARY KEY,
  secret_hash    BLOB NOT NULL,        -- SHA-256; the secret itself is nowhere
  kind           INTEGER NOT NULL,
  role           INTEGER NOT NULL,
  user_name      TEXT NOT NULL,
  parent         TEXT NOT NULL,
  subject        TEXT NOT NULL,
  created_at_us  INTEGER NOT NULL,
  expires_at_us  INTEGER,
  revoked_at_us  INTEGER
) STRICT, WITHOUT ROWID;
)sql";

constexpr const char* k002KeptFolder = R"sql(
ALTER TABLE attempts ADD COLUMN kept_folder BLOB NOT NULL DEFAULT x'';
)sql";

constexpr std::array kMigrations = {k001Initial, k002KeptFolder};
constexpr auto kNewest = static_cast<std::int64_t>(kMigrations.size());

Status Apply(sqlite::Database& db, std::int64_t number) {
  GPULAYER_RETURN_IF_ERROR(db.Begin());
  Status status = db.Execute(kMigrations[static_cast<std::size_t>(number - 1)]);
  if (status.ok()) status = db.Execute("PRAGMA user_version = " + std::to_string(number));
  if (status.ok() && number == 1) {
    status = db.Execute("PRAGMA application_id = " + std::to_string(kApplicationId));
  }
  if (status.ok()) status = db.Commit();
  if (!status.ok()) db.Rollback();
  return status;
}

}  // namespace

Status Migrate(sqlite::Database& db) {
  GPULAYER_ASSIGN_OR_RETURN(const std::int64_t version, db.QueryInt("PRAGMA user_version"));
  GPULAYER_ASSIGN_OR_RETURN(const std::int64_t application, db.QueryInt("PRAGMA application_id"));
  GPULAYER_ASSIGN_OR_RETURN(const std::int64_t tables,
                            db.QueryInt("SELECT count(*) FROM sqlite_schema"));
  if (application != kApplicationId && (version != 0 || tables != 0)) {
    return FailedPrecondition("database " + db.path() +
                              ": another program's. Name another data directory.");
  }
  if (version > kNewest) {
    return FailedPrecondition(
        "database " + db.path() + ": written by a newer version (schema " +
        std::to_string(version) + ", this one knows " + std::to_string(kNewest) +
        "). Start that version, or put back a backup from before the upgrade.");
  }
  for (std::int64_t number = version + 1; number <= kNewest; ++number) {
    GPULAYER_RETURN_IF_ERROR(Apply(db, number));
  }
  return OkStatus();
}

}  // namespace gpulayer
