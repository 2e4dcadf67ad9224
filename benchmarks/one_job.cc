// Drives one_job.py's parts that need a connected client.
//   gpulayer_one_job_bench TARGET tiny JOBS OUTSTANDING   a request each; {"submits_per_s", "jobs_per_s"}
//   gpulayer_one_job_bench TARGET cancel TIMES            {"seconds": from a cancel to the job's end}
#include <gpulayer/client.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::steady_clock;

double Since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

[[noreturn]] void Fail(const gpulayer::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

gpulayer::JobSpec Spec(std::vector<std::string> command) {
  gpulayer::JobSpec spec;
  spec.command = std::move(command);
  spec.outputs.collect = false;
  return spec;
}

int Tiny(gpulayer::Client& client, int jobs, int outstanding) {
  const auto start = steady_clock::now();
  std::vector<std::int64_t> ids(static_cast<std::size_t>(jobs));
  std::atomic<int> next{0};
  const auto in_parallel = [&](auto&& each) {
    next = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < outstanding; ++i) {
      threads.emplace_back([&] {
        for (int at = next++; at < jobs; at = next++) each(static_cast<std::size_t>(at));
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  in_parallel([&](std::size_t i) {
    const auto job = client.Submit(Spec({"true"}));
    if (!job.ok()) Fail(job.status());
    ids[i] = job->id();
  });
  const double submitted = Since(start);
  const auto waited = client.WaitEach(ids, [](const gpulayer::JobInfo& job) {
    if (job.outcome.exit_code != 0)
      Fail({gpulayer::StatusCode::kInternal, "a job did not end with 0"});
    return true;
  });
  if (!waited.ok()) Fail(waited);
  const double all = Since(start);
  std::printf("{\"submits_per_s\": %.1f, \"jobs_per_s\": %.1f}\n", jobs / submitted, jobs / all);
  return 0;
}

int Cancel(gpulayer::Client& client, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) {
    auto job = client.Submit(Spec({"sleep", "600"}));
    if (!job.ok()) Fail(job.status());
    const auto running = [](const gpulayer::JobInfo& info) {
      return info.state == gpulayer::JobState::kRunning;
    };
    for (;;) {
      const auto info = job->Info();
      if (!info.ok()) Fail(info.status());
      if (running(*info)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const auto start = steady_clock::now();
    if (const auto cancelled = job->Cancel(); !cancelled.ok()) Fail(cancelled.status());
    if (const auto done = job->Wait(); !done.ok()) Fail(done.status());
    out += (out.empty() ? "" : ", ") + std::to_string(Since(start));
  }
  std::printf("{\"seconds\": [%s]}\n", out.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 2 ? argv[2] : "";
  if (!(part == "tiny" && argc == 5) && !(part == "cancel" && argc == 4)) {
    std::fprintf(stderr, "usage: %s TARGET tiny JOBS OUTSTANDING | cancel TIMES\n", argv[0]);
    return 2;
  }
  gpulayer::ClientOptions options;
  options.target = argv[1];
  auto client = gpulayer::Client::Connect(options);
  if (!client.ok()) Fail(client.status());
  if (part == "tiny") return Tiny(*client, std::atoi(argv[3]), std::atoi(argv[4]));
  return Cancel(*client, std::atoi(argv[3]));
}
