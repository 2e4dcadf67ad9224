// A server without a wire: submits jobs in groups and prints each acknowledged id, until it is
// killed: engine_submitter PATH.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/fault_point.h"
#include "base/fs.h"
#include "server/engine.h"
#include "server/store/store.h"

int main(int argc, char** argv) {
  using namespace gpulayer;  // NOLINT: a program of thirty lines
  if (argc != 2) return 2;
  ArmFaultPointsFromEnvironment();
  Result<std::unique_ptr<Store>> store = Store::Open({argv[1], true});
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
    return 1;
  }
  Result<std::unique_ptr<Engine>> engine = Engine::Start(
      {{std::chrono::seconds(10), std::chrono::seconds(60)}}, **store, Clock::System());
  if (!engine.ok()) return 1;
  const std::string mine = std::to_string(getpid());
  std::atomic<int> waiting{0};
  for (int n = 0; n < 1'000'000; ++n) {
    JobSpec spec;
    spec.command = {"true"};
    spec.wait_for_worker = true;
    spec.request_id = RequestId(mine + "-" + std::to_string(n));
    core::SubmitJobs submit;
    submit.caller.user = UserName("ann");
    submit.specs.push_back(std::make_shared<const JobSpec>(spec));
    while (waiting.load() >= 16) std::this_thread::yield();
    ++waiting;
    const Status posted = (*engine)->Post(std::move(submit), [&](core::ReplyBody body) {
      const auto* reply = std::get_if<core::SubmitReply>(&body);
      if (reply == nullptr) _exit(3);
      if (!WriteAll(STDOUT_FILENO, ToString(reply->jobs.at(0).job) + "\n").ok()) _exit(4);
      --waiting;
    });
    if (!posted.ok()) return 1;
  }
}
