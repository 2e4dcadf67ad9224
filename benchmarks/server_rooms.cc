// How fast the server's rooms are without a wire: server_rooms SCRATCH_FOLDER. One JSON object a
// line; what is measured beside a floor names it in the same line.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fs.h"
#include "base/random.h"
#include "server/blob/blob_store.h"
#include "server/engine.h"
#include "server/store/store.h"

namespace gpulayer {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::shared_ptr<const JobSpec> Spec(const std::string& request) {
  JobSpec spec;
  spec.name = "bench";
  spec.command = {"python", "train.py", "--epochs", "10"};
  for (int i = 0; i < 10; ++i) spec.env.push_back({"VARIABLE_" + std::to_string(i), "some value"});
  spec.wait_for_worker = true;
  spec.request_id = RequestId(request);
  return std::make_shared<const JobSpec>(std::move(spec));
}

JobRecord Job(std::int64_t id, TaskState state) {
  JobRecord job;
  job.id = JobId(id);
  job.user = UserName("ann");
  job.spec = Spec("r" + std::to_string(id));
  job.state = state;
  return job;
}

void Commits(const std::string& dir) {
  const auto store = *Store::Open({JoinPath(dir, "commits.db"), true});
  std::vector<double> waits;
  const double start = Seconds();
  for (std::int64_t id = 1; Seconds() - start < 3; ++id) {
    const double before = Seconds();
    WriteBatch batch;
    batch.insert_jobs = {Job(id, TaskState::kQueued)};
    Check(store->Write(batch));
    waits.push_back(Seconds() - before);
  }
  const double took = Seconds() - start;
  std::sort(waits.begin(), waits.end());
  std::printf(
      "{\"what\": \"commits of one job\", \"per_s\": %.0f, \"p50_ms\": %.3f, \"p99_ms\": %.2f}\n",
      static_cast<double>(waits.size()) / took, waits[waits.size() / 2] * 1e3,
      waits[waits.size() * 99 / 100] * 1e3);
}

void LargeStore(const std::string& dir) {
  const std::string path = JoinPath(dir, "large.db");
  {
    const auto store = *Store::Open({path, true});
    const double start = Seconds();
    for (std::int64_t id = 1; id <= 200'000;) {
      WriteBatch batch;
      for (int n = 0; n < 512 && id <= 200'000; ++n, ++id) {
        batch.insert_jobs.push_back(Job(id, TaskState::kSucceeded));
      }
      Check(store->Write(batch));
    }
    std::printf("{\"what\": \"jobs inserted, 512 a commit\", \"per_s\": %.0f}\n",
                200'000 / (Seconds() - start));
  }
  double start = Seconds();
  const auto store = *Store::Open({path, true});
  const double opened = Seconds() - start;
  start = Seconds();
  Check(store->Load().status());
  std::printf(
      "{\"what\": \"start with 200000 ended jobs\", \"open_and_check_s\": %.3f, "
      "\"load_s\": %.3f}\n",
      opened, Seconds() - start);
  const auto reader = *store->OpenReader();
  const auto list = [&](const char* what, const JobFilter& filter) {
    const double before = Seconds();
    const std::size_t found = reader->ListJobs(filter)->jobs.size();
    std::printf("{\"what\": \"list of 200000 jobs: %s\", \"found\": %zu, \"ms\": %.2f}\n", what,
                found, (Seconds() - before) * 1e3);
  };
  list("first page", {});
  list("page in the middle", {.before = JobId(100'000)});
  list("by user", {.user = UserName("ann")});
  list("by a state that none is in", {.state = TaskState::kFailed});
  list("by a name that none has", {.name_glob = "x*"});
}

void Submits(const std::string& dir, int outstanding) {
  const auto store =
      *Store::Open({JoinPath(dir, "submits" + std::to_string(outstanding) + ".db"), true});
  const auto engine = *Engine::Start({{std::chrono::seconds(10), std::chrono::seconds(60)}}, *store,
                                     Clock::System());
  std::atomic<int> waiting{0};
  std::atomic<int> done{0};
  const double start = Seconds();
  for (int n = 0; Seconds() - start < 3; ++n) {
    while (waiting.load() >= outstanding) std::this_thread::yield();
    core::SubmitJobs submit;
    submit.caller.user = UserName("ann");
    submit.specs = {Spec(std::to_string(n))};
    ++waiting;
    Check(engine->Post(std::move(submit), [&](core::ReplyBody) {
      --waiting;
      ++done;
    }));
  }
  const double took = Seconds() - start;
  engine->Stop();
  std::printf("{\"what\": \"submits through the engine, %d outstanding\", \"per_s\": %.0f}\n",
              outstanding, done.load() / took);
}

void Idle(const std::string& dir) {
  const auto store = *Store::Open({JoinPath(dir, "idle.db"), true});
  const auto engine = *Engine::Start({{std::chrono::seconds(10), std::chrono::seconds(60)}}, *store,
                                     Clock::System());
  const auto cpu = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  };
  const double before = cpu();
  std::this_thread::sleep_for(std::chrono::seconds(5));
  std::printf("{\"what\": \"idle engine\", \"percent_of_a_core\": %.3f}\n", (cpu() - before) * 20);
}

void SmallBlobs(const std::string& dir) {
  const auto store = *BlobStore::Open({JoinPath(dir, "small"), true, 0});
  std::vector<std::string> blobs(10'000);
  std::vector<Hash> hashes;
  for (std::string& blob : blobs) hashes.push_back(Hash::Of(blob = RandomBytes(1024)));
  double start = Seconds();
  const auto writer = store->NewWriter();
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    Check(writer->Begin(hashes[i], 1024));
    Check(writer->Append(blobs[i]));
    Check(writer->End());
  }
  const double written = Seconds() - start;
  Check(writer->Commit());
  const double all = Seconds() - start;
  start = Seconds();
  const std::size_t missing = store->Missing(hashes).size();
  std::printf(
      "{\"what\": \"10000 blobs of 1 KiB\", \"total_s\": %.3f, \"of_it_commit_s\": %.3f, "
      "\"missing_call_s\": %.3f, \"missing\": %zu}\n",
      all, all - written, Seconds() - start, missing);
}

void LargeBlob(const std::string& dir) {
  const std::string piece = RandomBytes(std::size_t{8} << 20);
  Hasher hasher;
  for (int i = 0; i < 128; ++i) hasher.Update(piece);
  const Hash hash = hasher.Finish();
  const auto floor = [&](const std::string& name) {
    const double start = Seconds();
    const UniqueFd fd = *OpenFile(JoinPath(dir, name), O_WRONLY | O_CREAT);
    for (int i = 0; i < 128; ++i) Check(WriteAll(fd.get(), piece));
    if (fsync(fd.get()) != 0) std::exit(1);
    return Seconds() - start;
  };
  const double floor_before = floor("floor1");
  const auto store = *BlobStore::Open({JoinPath(dir, "large"), true, 0});
  const double start = Seconds();
  const auto writer = store->NewWriter();
  Check(writer->Begin(hash, std::int64_t{1} << 30));
  for (int i = 0; i < 128; ++i) {
    for (std::size_t at = 0; at < piece.size(); at += 256 * 1024) {
      Check(writer->Append(std::string_view(piece).substr(at, 256 * 1024)));
    }
  }
  Check(writer->End());
  Check(writer->Commit());
  const double took = Seconds() - start;
  const double floor_after = floor("floor2");
  std::printf(
      "{\"what\": \"1 GiB blob\", \"MB_per_s\": %.0f, \"write_and_fsync_MB_per_s\": [%.0f, "
      "%.0f]}\n",
      1073.7 / took, 1073.7 / floor_before, 1073.7 / floor_after);
}

}  // namespace
}  // namespace gpulayer

int main(int argc, char** argv) {
  using namespace gpulayer;  // NOLINT: the program's own parts
  if (argc != 2) {
    std::fprintf(stderr, "usage: gpulayer_server_rooms_bench SCRATCH_FOLDER\n");
    return 2;
  }
  Result<std::string> dir = MakeTempDir(argv[1], "server-rooms-");
  Check(dir.status());
  SmallBlobs(*dir);
  LargeBlob(*dir);
  Commits(*dir);
  for (const int outstanding : {1, 64, 256}) Submits(*dir, outstanding);
  LargeStore(*dir);
  Idle(*dir);
  Check(RemoveTree(*dir));
}
