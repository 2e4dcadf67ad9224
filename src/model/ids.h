// Names of things. A job is counted by its server; an attempt's id is unique in the world.
#ifndef GPULAYER_MODEL_IDS_H_
#define GPULAYER_MODEL_IDS_H_

#include <compare>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/strong.h"

namespace gpulayer {

using JobId = Strong<struct JobIdTag, std::int64_t>;  // 1, 2, ...; 0 is none
using TaskIndex =
    Strong<struct TaskIndexTag, std::int64_t>;  // array index, line, position; 0 for one command
using AttemptNo = Strong<struct AttemptNoTag, std::int32_t>;  // 1, 2, ... within a task
using AttemptId =
    Strong<struct AttemptIdTag, std::string>;  // unique in the world, fit for a file name
using WorkerId =
    Strong<struct WorkerIdTag, std::string>;  // 32 hex digits drawn by the worker itself, once
using WorkerEpoch =
    Strong<struct WorkerEpochTag, std::int64_t>;  // grows with each session of a worker
using SessionId =
    Strong<struct SessionIdTag, std::int64_t>;  // one connection of a worker; not stored
using UserName = Strong<struct UserNameTag, std::string>;
using RequestId = Strong<struct RequestIdTag, std::string>;  // drawn by a client; same id, same job

// Which life of which server: a restored backup is another incarnation.
struct ServerIdentity {
  std::string uuid;  // 32 hex digits
  std::int64_t incarnation = 0;
  friend bool operator==(const ServerIdentity&, const ServerIdentity&) = default;
};

struct TaskRef {
  JobId job;
  TaskIndex task;
  friend auto operator<=>(const TaskRef&, const TaskRef&) = default;
  friend bool operator==(const TaskRef&, const TaskRef&) = default;
};

struct AttemptRef {
  TaskRef task;
  AttemptNo number;
  friend auto operator<=>(const AttemptRef&, const AttemptRef&) = default;
  friend bool operator==(const AttemptRef&, const AttemptRef&) = default;
};

// What every report, log piece and output of an attempt carries. The server takes it only if all of
// it is current.
struct AttemptKey {
  ServerIdentity server;
  AttemptRef ref;
  AttemptId id;
  WorkerEpoch epoch;
  friend bool operator==(const AttemptKey&, const AttemptKey&) = default;
};

std::string ToString(JobId job);                  // "42"
std::string ToString(const TaskRef& task);        // "42.7"
std::string ToString(const AttemptRef& attempt);  // "42.7#2"

// "42" (task 0 is meant, has_task false) or "42.7". INVALID_ARGUMENT names the text.
struct ParsedTask {
  TaskRef ref;
  bool has_task = false;
};
Result<ParsedTask> ParseTaskRef(std::string_view text);

}  // namespace gpulayer

template <>
struct std::hash<gpulayer::TaskRef> {
  std::size_t operator()(const gpulayer::TaskRef& t) const noexcept {
    return static_cast<std::size_t>(t.job.value()) * 0x9E3779B97F4A7C15ULL ^
           static_cast<std::size_t>(t.task.value());
  }
};

#endif  // GPULAYER_MODEL_IDS_H_
