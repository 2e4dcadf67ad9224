// Every limit of the system in one place, each with its reason. An error about a limit names it.
#ifndef GPULAYER_MODEL_LIMITS_H_
#define GPULAYER_MODEL_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gpulayer::limits {

using namespace std::chrono_literals;

// Wire. gRPC's own default is 4 MiB and only for receiving; both sides set this one in both
// directions.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{8} << 20;
// Blobs travel in larger pieces, for fewer hand-overs between threads per byte (measured on
// transfers of 1 GiB). Heartbeats share a worker's stream with its logs: no piece of these may hold
// them up.
inline constexpr std::size_t kBlobChunkBytes = std::size_t{1} << 20;
inline constexpr std::size_t kLogChunkBytes = std::size_t{256} << 10;
// Between a command inside an attempt and its terminal: short, for somebody waits for each.
inline constexpr std::size_t kExecPieceBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxExecs = 64;  // at once, of a server: each is two streams
// How long a worker may take to come for one.
inline constexpr auto kExecDeadline = 10s;
// From this size on a file is handed over as a file where both sides are on one machine. Each is
// flushed and committed by itself, about 10 ms: smaller ones are cheaper in a batch of bytes.
inline constexpr std::int64_t kHandOverBytes = std::int64_t{8} << 20;
inline constexpr std::size_t kMaxHashesPerCall = 50'000;  // 32 bytes each: 1.6 MB
inline constexpr std::size_t kMaxPageItems = 1'000;
// Of one wait: what the server looks at when it begins, and holds meanwhile (some 200 bytes each).
inline constexpr std::size_t kMaxWatchedJobs = 10'000;

// A spec must fit one message beside its envelope, a database row and, later, execve.
inline constexpr std::size_t kMaxSpecBytes = std::size_t{6} << 20;
inline constexpr std::size_t kMaxArgBytes = 128 * 1024 - 1;  // Linux: MAX_ARG_STRLEN, with its NUL
inline constexpr std::size_t kMaxArgsAndEnvBytes = std::size_t{2}
                                                   << 20;  // Linux: a quarter of the 8 MiB stack
// Keys, tokens, certificates. Kept in memory by client, server and worker on their way.
inline constexpr std::size_t kMaxSecretBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxSecretsBytes = std::size_t{256} << 10;  // of a job, with names
inline constexpr std::size_t kMaxNameBytes = 200;
inline constexpr std::int64_t kMaxTasksPerJob = 1'000'000;
// Of a retry: separate runs of tasks that it names. Each event of the job copies and stores those that
// wait still, a millisecond for so many.
inline constexpr std::int64_t kMaxTaskRuns = 10'000;
inline constexpr std::int64_t kMaxTaskNumber = 1'000'000'000'000;  // leaves room for products
// Of --each: kept whole in the memory of who submits.
inline constexpr std::int64_t kMaxItemsBytes = std::int64_t{256} << 20;

// Engine: events in one commit (the fsync is shared), and how many may wait.
inline constexpr std::size_t kCommitBatch = 512;
inline constexpr std::size_t kEngineQueueEvents = 65'536;

// Source, unless the user says otherwise.
inline constexpr std::int64_t kSourceLimitBytes = std::int64_t{512} << 20;
inline constexpr std::int64_t kSourceLimitFiles = 20'000;
inline constexpr std::size_t kLeftOutShown = 100;

// Liveness. A worker that is silent is first not given work, then given up.
inline constexpr auto kHeartbeat = 2s;
inline constexpr auto kSuspectAfter = 10s;
inline constexpr auto kLostAfter = 60s;

// Calls. Unary calls answer or fail in this time; streams have none but their keepalive.
inline constexpr auto kCallDeadline = 30s;
inline constexpr auto kConnectDeadline = 4s;  // "unreachable" is said within 5 s
// Of an address that took the connection: TLS and HTTP/2 are three round trips more, which on a
// slow link (1 s each way) are 6 s.
inline constexpr auto kAnswerDeadline = 15s;
inline constexpr auto kKeepalive = 10s;
inline constexpr auto kShutdownGrace = 5s;  // `down` ends within 10 s

inline constexpr auto kPrepareLimit = 30min;

// Of --memory: no program starts in less, and 4 is a slip for 4GiB.
inline constexpr std::int64_t kMinMemoryBytes = std::int64_t{1} << 20;

// A log's, unless the user says otherwise: days of chatter, and a small part of a disk. The least
// one holds a reader's screen of both of its ends.
inline constexpr std::int64_t kLogLimitBytes = std::int64_t{1} << 30;
inline constexpr std::int64_t kMinLogLimitBytes = std::int64_t{64} << 10;
inline constexpr std::int64_t kMaxLogLimitBytes = std::int64_t{1} << 50;  // more than any disk

// Work folders that --keep left on a worker: somebody looks at them within days or never, and each
// may hold a whole source.
inline constexpr std::size_t kKeptFolders = 20;
inline constexpr auto kKeptFor = 7 * 24h;

}  // namespace gpulayer::limits

#endif  // GPULAYER_MODEL_LIMITS_H_
