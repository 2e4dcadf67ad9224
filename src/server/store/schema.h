// The tables and how an older file becomes a newer one.
//
// Migrations are numbered and never edited once released: a change is a new one at the end. The
// file's user_version is the number of those it has seen.
#ifndef GPULAYER_SERVER_STORE_SCHEMA_H_
#define GPULAYER_SERVER_STORE_SCHEMA_H_

#include "base/status.h"
#include "server/store/sqlite.h"

namespace gpulayer {

// FAILED_PRECONDITION: a newer version wrote it, or it is no database of ours.
Status Migrate(sqlite::Database& db);

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_STORE_SCHEMA_H_
