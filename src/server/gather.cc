#include "server/gather.h"

#include <utility>
#include <variant>
#include <vector>

namespace gpulayer {
namespace {

template <typename Key, typename Record>
void PutLast(std::map<Key, std::size_t>& index, std::vector<Record>& records, const Key& key,
             Record record) {
  const auto [it, is_new] = index.try_emplace(key, records.size());
  if (is_new) {
    records.push_back(std::move(record));
  } else {
    records[it->second] = std::move(record);
  }
}

}  // namespace

bool Gather::Take(core::Effect& effect) {
  if (auto* insert = std::get_if<core::InsertJob>(&effect)) {
    inserted_[insert->record.id] = batch_.insert_jobs.size();
    batch_.insert_jobs.push_back(std::move(insert->record));
  } else if (auto* update = std::get_if<core::UpdateJob>(&effect)) {
    Update(std::move(update->record));
  } else if (auto* task = std::get_if<core::PutTask>(&effect)) {
    const TaskRef key = task->record.ref;
    PutLast(tasks_, batch_.tasks, key, std::move(task->record));
  } else if (auto* attempt = std::get_if<core::PutAttempt>(&effect)) {
    const AttemptRef key = attempt->record.ref;
    PutLast(attempts_, batch_.attempts, key, std::move(attempt->record));
  } else if (auto* worker = std::get_if<core::PutWorker>(&effect)) {
    const WorkerId key = worker->record.profile.id;
    PutLast(workers_, batch_.workers, key, std::move(worker->record));
  } else {
    return false;
  }
  return true;
}

void Gather::Update(JobRecord record) {
  const auto it = inserted_.find(record.id);
  if (it == inserted_.end()) {
    const JobId key = record.id;
    PutLast(updated_, batch_.update_jobs, key, std::move(record));
    return;
  }
  JobRecord& insert = batch_.insert_jobs[it->second];
  std::shared_ptr<const JobSpec> spec = std::move(insert.spec);  // an update need not carry it
  insert = std::move(record);
  insert.spec = std::move(spec);
}

}  // namespace gpulayer
