// What a store would hold after the effects of the core so far, and the rules that rows must keep.
#ifndef GPULAYER_TESTS_CORE_STORE_IMAGE_H_
#define GPULAYER_TESTS_CORE_STORE_IMAGE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <variant>
#include <vector>

#include "model/records.h"
#include "server/core/core.h"

namespace gpulayer::testing {

class StoreImage {
 public:
  // Stores the Put* effects; a row that breaks a rule fails the test.
  void Write(const std::vector<core::Effect>& effects) {
    for (const core::Effect& effect : effects) {
      if (const auto* e = std::get_if<core::InsertJob>(&effect)) Insert(e->record);
      if (const auto* e = std::get_if<core::UpdateJob>(&effect)) Update(e->record);
      if (const auto* e = std::get_if<core::PutTask>(&effect)) Put(e->record);
      if (const auto* e = std::get_if<core::PutAttempt>(&effect)) Put(e->record);
      if (const auto* e = std::get_if<core::PutWorker>(&effect)) {
        workers[e->record.profile.id] = e->record;
      }
    }
  }

  core::Snapshot Load(const ServerIdentity& server) const {
    core::Snapshot s;
    s.server = server;
    for (const auto& [id, job] : jobs) {
      s.last_job = id;
      s.requests.push_back({job.user, job.spec->request_id, id});
      if (IsTerminal(job.state)) continue;
      s.jobs.push_back(job);
    }
    for (const auto& [ref, task] : tasks) {
      if (!IsTerminal(jobs.at(ref.job).state)) s.tasks.push_back(task);
    }
    for (const auto& [ref, attempt] : attempts) {
      if (!Over(attempt)) s.attempts.push_back(attempt);
    }
    for (const auto& [id, worker] : workers) s.workers.push_back(worker);
    return s;
  }

  std::map<JobId, JobRecord> jobs;
  std::map<TaskRef, TaskRecord> tasks;
  std::map<AttemptRef, AttemptRecord> attempts;
  std::map<WorkerId, WorkerRecord> workers;

 private:
  static bool Over(const AttemptRecord& a) {
    return a.state == AttemptState::kEnded || a.state == AttemptState::kLost;
  }

  void Insert(const JobRecord& record) {
    EXPECT_TRUE(jobs.emplace(record.id, record).second) << "inserted twice: " << record.id;
  }
  void Update(const JobRecord& record) {
    ASSERT_TRUE(jobs.contains(record.id)) << "updated before it was inserted: " << record.id;
    EXPECT_FALSE(IsTerminal(jobs[record.id].state)) << "changed after its end: " << record.id;
    jobs[record.id] = record;
  }
  void Put(const TaskRecord& record) {
    ASSERT_TRUE(jobs.contains(record.ref.job));
    const JobRecord& job = jobs[record.ref.job];
    EXPECT_FALSE(job.queued.Contains(job.spec->tasks.PositionOf(record.ref.task)))
        << "in both places: " << ToString(record.ref);
    const auto it = tasks.find(record.ref);
    if (it != tasks.end()) {
      EXPECT_FALSE(IsTerminal(it->second.state))
          << "changed after its end: " << ToString(record.ref);
    }
    tasks[record.ref] = record;
  }
  void Put(const AttemptRecord& record) {
    ASSERT_TRUE(tasks.contains(record.ref.task));
    const auto it = attempts.find(record.ref);
    if (it != attempts.end()) {
      EXPECT_FALSE(Over(it->second)) << "changed after its end: " << ToString(record.ref);
      EXPECT_EQ(it->second.id, record.id);
    }
    attempts[record.ref] = record;
  }
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_CORE_STORE_IMAGE_H_
