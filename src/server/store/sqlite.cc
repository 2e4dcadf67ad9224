#include "server/store/sqlite.h"

#include <sqlite3.h>

#include <cerrno>
#include <utility>

namespace gpulayer::sqlite {

Statement::Statement(Statement&& other) noexcept { *this = std::move(other); }

Statement& Statement::operator=(Statement&& other) noexcept {
  if (this != &other) {
    sqlite3_finalize(handle_);
    db_ = other.db_;
    handle_ = std::exchange(other.handle_, nullptr);
    next_parameter_ = other.next_parameter_;
    next_column_ = other.next_column_;
    bind_error_ = other.bind_error_;
  }
  return *this;
}

Statement::~Statement() { sqlite3_finalize(handle_); }

void Statement::Bound(int rc) {
  if (bind_error_ == SQLITE_OK) bind_error_ = rc;
}

Statement& Statement::Int(std::int64_t value) {
  Bound(sqlite3_bind_int64(handle_, next_parameter_++, value));
  return *this;
}

Statement& Statement::Int(std::optional<std::int64_t> value) {
  if (value) return Int(*value);
  Bound(sqlite3_bind_null(handle_, next_parameter_++));
  return *this;
}

Statement& Statement::Text(std::string_view value) {
  Bound(sqlite3_bind_text64(handle_, next_parameter_++, value.data() ? value.data() : "",
                            value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::Blob(std::string_view value) {
  Bound(sqlite3_bind_blob64(handle_, next_parameter_++, value.data() ? value.data() : "",
                            value.size(), SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::Time(std::optional<WallTime> value) {
  return Int(value ? std::optional<std::int64_t>(ToMicros(*value)) : std::nullopt);
}

Result<bool> Statement::Step() {
  if (bind_error_ != SQLITE_OK) return db_->Error(bind_error_);
  next_column_ = 0;
  const int rc = sqlite3_step(handle_);
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  return db_->Error(rc);
}

Status Statement::Run() {
  Result<bool> row = Step();
  while (row.ok() && *row) row = Step();
  Reset();
  return row.status();
}

void Statement::Reset() {
  sqlite3_reset(handle_);
  sqlite3_clear_bindings(handle_);
  next_parameter_ = 1;
  next_column_ = 0;
  bind_error_ = SQLITE_OK;
}

std::int64_t Statement::Int() { return sqlite3_column_int64(handle_, next_column_++); }

std::optional<std::int64_t> Statement::OptionalInt() {
  const int column = next_column_++;
  if (sqlite3_column_type(handle_, column) == SQLITE_NULL) return std::nullopt;
  return sqlite3_column_int64(handle_, column);
}

std::string_view Statement::Text() {
  const int column = next_column_++;
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(handle_, column))};
}

std::string_view Statement::Blob() {
  const int column = next_column_++;
  const auto* data = static_cast<const char*>(sqlite3_column_blob(handle_, column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(handle_, column))};
}

std::optional<WallTime> Statement::OptionalTime() {
  const std::optional<std::int64_t> us = OptionalInt();
  return us ? std::optional<WallTime>(FromMicros(*us)) : std::nullopt;
}

Result<std::unique_ptr<Database>> Database::Open(const std::string& path, Mode mode) {
  const int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                    (mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
  sqlite3* handle = nullptr;
  const int rc = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  if (handle == nullptr) return ResourceExhausted("database " + path + ": no memory to open it");
  std::unique_ptr<Database> db(new Database(path, handle));
  if (rc != SQLITE_OK) return db->Error(rc);
  sqlite3_busy_timeout(handle, static_cast<int>(std::chrono::milliseconds(kLockPatience).count()));
  return db;
}

Database::~Database() { sqlite3_close(handle_); }

Status Database::Execute(const std::string& sql) {
  const int rc = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return rc == SQLITE_OK ? OkStatus() : Error(rc);
}

Result<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int rc = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                    SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (rc != SQLITE_OK) return Error(rc);
  return Statement(this, statement);
}

Result<std::int64_t> Database::QueryInt(std::string_view sql) {
  GPULAYER_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  GPULAYER_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.Int() : 0;
}

std::int64_t Database::Changes() const { return sqlite3_changes64(handle_); }

void Database::Rollback() {
  // After some errors SQLite has rolled back by itself; a second time is an error of no meaning.
  if (sqlite3_get_autocommit(handle_) == 0) {
    IgnoreError(Execute("ROLLBACK"), "closing the connection rolls back, too");
  }
}

Status Database::Error(int rc) const {
  const int error = sqlite3_system_errno(handle_);
  const std::string why = sqlite3_errmsg(handle_);
  switch (rc & 0xFF) {
    case SQLITE_FULL:
      return ResourceExhausted("server disk full: database " + path_ +
                               ": no space left. Make room on that disk.");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Unavailable("database " + path_ +
                         ": another process holds its lock. Find it with "
                         "`fuser " +
                         path_ + "`, or wait.");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Damaged(why);
    case SQLITE_IOERR:
      if (error == ENOSPC || error == EDQUOT || rc == SQLITE_IOERR_SHMSIZE) {
        return ResourceExhausted("server disk full: database " + path_ +
                                 ": no space left. Make room on that disk.");
      }
      if (rc == SQLITE_IOERR_SHORT_READ || rc == SQLITE_IOERR_READ) return Damaged(why);
      return ErrnoStatus(
          "database " + path_ + ": " + why + " (SQLite code " + std::to_string(rc) + ")", error);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return FailedPrecondition("database " + path_ + ": " + why + ". Check that the server may " +
                                "write to the file and its folder.");
    default:
      return Internal("database " + path_ + ": " + why + " (SQLite code " + std::to_string(rc) +
                      ")");
  }
}

Status Database::Damaged(std::string_view what) const {
  return DataLoss("database " + path_ + ": damaged: " + std::string(what) +
                  ". Stop the server, then put a backup back in its place, or move the file away "
                  "to start empty.");
}

}  // namespace gpulayer::sqlite
