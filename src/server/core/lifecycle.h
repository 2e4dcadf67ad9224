// The steps that a task can make, each of which keeps counts, queue, worker and rows in agreement.
#ifndef GPULAYER_SERVER_CORE_LIFECYCLE_H_
#define GPULAYER_SERVER_CORE_LIFECYCLE_H_

#include <string>

#include "server/core/state.h"

namespace gpulayer::core {

// Puts the job into its class or takes it out, as it has queued tasks or not.
void SyncQueue(State& state, const Job& job);

// The key under which the worker's current session knows the task's current attempt.
AttemptKey KeyOf(const State& state, const Worker& worker, const AttemptRecord& attempt);

// The task whose current attempt is meant by `key` and runs on `worker`, whatever the key's epoch;
// null: the attempt is not current.
Task* FindCurrent(State& state, const Worker& worker, const AttemptKey& key);

// queued -> preparing. REQUIRES: the task is queued and `allocation` is free on the worker.
void StartAttempt(Turn& turn, Job& job, TaskIndex index, Worker& worker, Allocation allocation);
// A program started on the attempt's worker: what failed to start there before counts no more.
void NoteStarts(Turn& turn, Job& job, const AttemptRecord& attempt);
// preparing -> running, since `at`.
void MarkRunning(Turn& turn, Job& job, Task& task, WallTime at);
// preparing or running -> finishing: the allocation is free.
void MarkFinishing(Turn& turn, Job& job, Task& task, const Outcome& outcome);
// Closes the current attempt (record's state and outcome are set by the caller) and frees what it
// holds; the task must be ended or queued again next. It ended at `at`.
void CloseAttempt(Turn& turn, Task& task, AttemptState state, WallTime at);
// active or queued -> terminal, at `at`. `task` is gone afterwards.
void EndTask(Turn& turn, Job& job, Task& task, const Outcome& outcome, WallTime at);
// active -> queued, at its old place in the order.
void Requeue(Turn& turn, Job& job, Task& task);
// The machine or its daemon is gone, `why` for people. The task ends if a stop was ordered or if
// this happened too often, else it is queued again.
void LoseAttempt(Turn& turn, TaskRef ref, const std::string& why);
// Notes an ended task in the job's outcome and end.
void NoteEnd(Job& job, TaskIndex task, TaskState state, const Outcome& outcome, WallTime at);

}  // namespace gpulayer::core

#endif  // GPULAYER_SERVER_CORE_LIFECYCLE_H_
