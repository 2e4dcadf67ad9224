// Turns the Put* effects of many events into one transaction's rows: of several Puts of one row
// only the last is written, and a job that was made and changed in the same batch is one insert.
//
// Threads: one at a time.
#ifndef GPULAYER_SERVER_GATHER_H_
#define GPULAYER_SERVER_GATHER_H_

#include <cstddef>
#include <map>

#include "server/core/effects.h"
#include "server/store/store.h"

namespace gpulayer {

class Gather {
 public:
  // Takes the effect's record and gives true if it is one to be stored; else leaves it as it is.
  bool Take(core::Effect& effect);
  const WriteBatch& batch() const { return batch_; }

 private:
  void Update(JobRecord record);

  WriteBatch batch_;
  // Where in the batch a row stands.
  std::map<JobId, std::size_t> inserted_;
  std::map<JobId, std::size_t> updated_;
  std::map<TaskRef, std::size_t> tasks_;
  std::map<AttemptRef, std::size_t> attempts_;
  std::map<WorkerId, std::size_t> workers_;
};

}  // namespace gpulayer

#endif  // GPULAYER_SERVER_GATHER_H_
