// SQLite as this room uses it: a connection, prepared statements, and its errors as Status.
//
// Threads: a Database and its statements belong to one thread at a time (no mutex of SQLite's).
// Errors:  RESOURCE_EXHAUSTED: disk full; UNAVAILABLE: another process held the lock longer than
//          kLockPatience; DATA_LOSS: damaged; all name the file.
#ifndef GPULAYER_SERVER_STORE_SQLITE_H_
#define GPULAYER_SERVER_STORE_SQLITE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gpulayer::sqlite {

// A backup program may hold the write lock for a while; nobody's command fails for that.
inline constexpr std::chrono::seconds kLockPatience{60};

class Database;

// Values are bound in order and columns read in order, so that neither has numbers to get wrong.
class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;
  ~Statement();

  Statement& Int(std::int64_t value);
  Statement& Int(std::optional<std::int64_t> value);
  Statement& Text(std::string_view value);
  Statement& Blob(std::string_view value);
  Statement& Time(WallTime value) { return Int(ToMicros(value)); }
  Statement& Time(std::optional<WallTime> value);

  Result<bool> Step();  // true: a row stands ready
  Status Run();         // to the end, then Reset()
  void Reset();         // fit for the next use; ends the read transaction that Step() began

  // REQUIRES: Step() gave true. Views hold until the next Step() or Reset().
  std::int64_t Int();
  std::optional<std::int64_t> OptionalInt();
  std::string_view Text();
  std::string_view Blob();
  WallTime Time() { return FromMicros(Int()); }
  std::optional<WallTime> OptionalTime();

 private:
  friend class Database;
  Statement(Database* db, sqlite3_stmt* handle) : db_(db), handle_(handle) {}
  void Bound(int rc);

  Database* db_ = nullptr;
  sqlite3_stmt* handle_ = nullptr;
  int next_parameter_ = 1;
  int next_column_ = 0;
  int bind_error_ = 0;
};

// Resets a statement at the end of the scope.
class ResetAtEnd {
 public:
  explicit ResetAtEnd(Statement& statement) : statement_(statement) {}
  ~ResetAtEnd() { statement_.Reset(); }
  ResetAtEnd(const ResetAtEnd&) = delete;
  ResetAtEnd& operator=(const ResetAtEnd&) = delete;

 private:
  Statement& statement_;
};

class Database {
 public:
  enum class Mode { kReadWrite, kReadOnly };
  static Result<std::unique_ptr<Database>> Open(const std::string& path, Mode mode);
  ~Database();  // REQUIRES: its statements are gone
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Status Execute(const std::string& sql);  // one or more statements without parameters
  Result<Statement> Prepare(std::string_view sql);
  Result<std::int64_t> QueryInt(std::string_view sql);
  std::int64_t Changes() const;

  Status Begin() { return Execute("BEGIN IMMEDIATE"); }
  Status Commit() { return Execute("COMMIT"); }
  void Rollback();

  const std::string& path() const { return path_; }
  Status Error(int rc) const;                   // of the last call
  Status Damaged(std::string_view what) const;  // DATA_LOSS with what to do

 private:
  Database(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}
  const std::string path_;
  sqlite3* const handle_;
};

}  // namespace gpulayer::sqlite

#endif  // GPULAYER_SERVER_STORE_SQLITE_H_
