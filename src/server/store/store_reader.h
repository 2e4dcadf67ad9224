// The store's own view of its reader: StoreReader plus the way to open one.
#ifndef GPULAYER_SERVER_STORE_STORE_READER_H_
#define GPULAYER_SERVER_STORE_STORE_READER_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "server/store/sqlite.h"
#include "server/store/store.h"

namespace gpulayer {

Result<std::unique_ptr<StoreReader>> OpenStoreReader(const std::string& path);

// The spec of a job, by its own table. `query` is "SELECT spec FROM job_specs WHERE job_id = ?".
// `bytes`, if given, grows by its stored size.
Result<std::shared_ptr<const JobSpec>> ReadSpec(sqlite::Database& db, sqlite::Statement& query,
                                                JobId job, std::size_t* bytes = nullptr);
inline constexpr std::string_view kSpecQuery = "SELECT spec FROM job_specs WHERE job_id = ?";

// DATA_LOSS that rows.h found gets the file's name and what to do.
Status NameFile(const sqlite::Database& db, const Status& status);

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_STORE_STORE_READER_H_
