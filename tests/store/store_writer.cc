// Writes jobs in batches and says so after each, until it is killed: store_writer PATH.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/fs.h"
#include "server/store/store.h"

int main(int argc, char** argv) {
  using namespace gpulayer;  // NOLINT: a program of thirty lines
  if (argc != 2) return 2;
  Result<std::unique_ptr<Store>> store = Store::Open({argv[1], true});
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
    return 1;
  }
  Result<LoadedState> state = (*store)->Load();
  if (!state.ok()) {
    std::fprintf(stderr, "%s\n", state.status().ToString().c_str());
    return 1;
  }
  for (std::int64_t id = state->last_job.value(); id < 1'000'000;) {
    WriteBatch batch;
    for (int n = 0; n < 3; ++n) {
      ++id;
      JobRecord job;
      job.id = JobId(id);
      job.user = UserName("ann");
      job.spec = std::make_shared<const JobSpec>(
          JobSpec{.name = "job", .command = {"true"}, .request_id = RequestId(std::to_string(id))});
      batch.insert_jobs.push_back(job);
      batch.tasks.push_back({.ref = {JobId(id), TaskIndex(0)}});
    }
    if (Status written = (*store)->Write(batch); !written.ok()) {
      std::fprintf(stderr, "%s\n", written.ToString().c_str());
      return 1;
    }
    if (!WriteAll(STDOUT_FILENO, std::to_string(id) + "\n").ok()) return 1;
  }
}
