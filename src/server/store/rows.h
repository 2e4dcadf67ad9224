// Rows <-> model. Each pair of a column list and its Bind/Read names the columns in the same order.
//
// Errors: DATA_LOSS for a row that cannot be; the caller names the file.
#ifndef GPULAYER_SERVER_STORE_ROWS_H_
#define GPULAYER_SERVER_STORE_ROWS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "model/records.h"
#include "server/store/sqlite.h"
#include "server/store/store.h"

namespace gpulayer::rows {

// What changes in a job, in the order of jobs' columns from `state` on.
void BindJobState(sqlite::Statement& to, const JobRecord& job);

// "name, id, user_name, ...", without the spec. The caller takes the name first and may then leave
// the rest: a list by name passes over many rows.
extern const char* const kJobColumns;
Result<JobRecord> ReadJob(sqlite::Statement& from);

extern const char* const kTaskColumns;
void Bind(sqlite::Statement& to, const TaskRecord& task);
Result<TaskRecord> ReadTask(sqlite::Statement& from);

extern const char* const kAttemptColumns;
void Bind(sqlite::Statement& to, const AttemptRecord& attempt);
Result<AttemptRecord> ReadAttempt(sqlite::Statement& from);

extern const char* const kWorkerColumns;
void Bind(sqlite::Statement& to, const WorkerRecord& worker);
Result<WorkerRecord> ReadWorker(sqlite::Statement& from);

extern const char* const kTokenColumns;
void Bind(sqlite::Statement& to, const TokenRecord& token);
Result<TokenRecord> ReadToken(sqlite::Statement& from);

// All rows of `query`, whose values are bound already; resets it.
template <typename Record>
Result<std::vector<Record>> ReadAll(sqlite::Statement& query,
                                    Result<Record> (*read)(sqlite::Statement&)) {
  const sqlite::ResetAtEnd reset(query);
  std::vector<Record> records;
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return records;
    GPULAYER_ASSIGN_OR_RETURN(Record record, read(query));
    records.push_back(std::move(record));
  }
}

}  // namespace gpulayer::rows

#endif  // GPULAYER_SERVER_STORE_ROWS_H_
