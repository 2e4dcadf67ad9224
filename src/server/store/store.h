// The server's database: SQLite in WAL mode with synchronous=FULL, STRICT tables, numbered
// migrations.
//
// Threads:   Write(), Load() and the token calls of the writer: the engine thread only. Reader
// objects: one
//            thread each, any number beside the writer; they see committed rows only and never hold
//            it up.
// Errors:    RESOURCE_EXHAUSTED: disk full; DATA_LOSS: a damaged file, the message names it and
// says what to
//            do; FAILED_PRECONDITION: written by a newer version, or held by another server.
#ifndef GPULAYER_SERVER_STORE_STORE_H_
#define GPULAYER_SERVER_STORE_STORE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/records.h"

namespace gpulayer {

// One transaction's worth of rows, in order.
struct WriteBatch {
  std::vector<JobRecord> insert_jobs;
  std::vector<JobRecord> update_jobs;  // the spec is not written again
  std::vector<TaskRecord> tasks;
  std::vector<AttemptRecord> attempts;
  std::vector<WorkerRecord> workers;
  bool empty() const {
    return insert_jobs.empty() && update_jobs.empty() && tasks.empty() && attempts.empty() &&
           workers.empty();
  }
};

struct StoredRequest {
  UserName user;
  RequestId id;
  JobId job;
};

struct LoadedState {
  ServerIdentity server;
  JobId last_job;
  std::vector<JobRecord> jobs;          // not terminal
  std::vector<TaskRecord> tasks;        // of those
  std::vector<AttemptRecord> attempts;  // of those, not ended or lost
  std::vector<WorkerRecord> workers;
  std::vector<StoredRequest> requests;  // of all jobs
};

// Credentials and tokens; only hashes of secrets are stored.
enum class Role : std::int32_t { kClient = 1, kWorker = 2, kAdmin = 3 };
std::string_view ToString(Role role);

struct TokenRecord {
  std::string id;    // public part
  Hash secret_hash;  // SHA-256 of the secret
  enum class Kind : std::int32_t { kToken = 1, kCredential = 2 } kind = Kind::kToken;
  Role role = Role::kClient;
  UserName user;
  std::string
      parent;  // the token that a credential was exchanged for; revoking it does not revoke this
  std::string subject;  // credential: worker id or login's host name
  WallTime created;
  std::optional<WallTime> expires;
  std::optional<WallTime> revoked;
};

struct JobFilter {
  std::optional<TaskState> state;
  std::optional<UserName> user;
  std::string name_glob;        // empty: any
  std::optional<JobId> before;  // page: only smaller ids
  std::size_t limit = 100;
  // Specs are up to megabytes each: with this much of them read no further job is. At least one is.
  std::size_t max_spec_bytes = std::size_t{8} << 20;
};

class StoreReader {
 public:
  // While one lives all reads see one state, and cost a part of what they do alone.
  class Snapshot {
   public:
    explicit Snapshot(StoreReader& reader) : reader_(reader), begun_(reader.Begin()) {}
    ~Snapshot() {
      if (begun_) reader_.End();
    }
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;

   private:
    StoreReader& reader_;
    const bool begun_;  // where it could not be, each read sees the state of its own moment
  };

  virtual ~StoreReader() = default;
  struct JobPage {
    std::vector<JobRecord> jobs;  // newest first
    bool more = false;            // there may be more that match
  };
  virtual Result<JobPage> ListJobs(const JobFilter& filter) = 0;
  virtual Result<JobRecord> GetJob(JobId job) = 0;  // NOT_FOUND
  // Tasks with a row, `from` on, at most `limit`; those never out of `queued` have none. `states`:
  // only tasks in one of them; none: any.
  virtual Result<std::vector<TaskRecord>> GetTasks(JobId job, TaskIndex from, std::size_t limit,
                                                   const std::vector<TaskState>& states = {}) = 0;
  virtual Result<std::vector<AttemptRecord>> GetAttempts(TaskRef task) = 0;

 private:
  virtual bool Begin() = 0;
  virtual void End() = 0;
};

class Store {
 public:
  struct Options {
    std::string path;     // database file
    bool durable = true;  // false: synchronous=OFF, for a server that dies with its client
  };
  static Result<std::unique_ptr<Store>> Open(const Options& options);  // makes or migrates
  virtual ~Store() = default;

  virtual ServerIdentity identity() const = 0;  // drawn when the file was made
  virtual Result<LoadedState> Load() = 0;
  virtual Status Write(const WriteBatch& batch) = 0;  // one durable transaction

  // Tokens: small and rare; any thread (own connection and transaction each).
  virtual Status PutToken(const TokenRecord& token) = 0;
  virtual Result<std::vector<TokenRecord>> ListTokens() = 0;

  virtual Result<std::unique_ptr<StoreReader>> OpenReader() = 0;  // any thread
};

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_STORE_STORE_H_
