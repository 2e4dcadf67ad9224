// The documents that scripts read, against files: GPULAYER_UPDATE_GOLDEN=1 writes them anew.
#include "cli/json.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace gpulayer::cli {
namespace {

Time At(int seconds) {
  return Time(std::chrono::microseconds(1'700'000'000'000'000 + seconds * 1'000'000LL));
}

class JsonTest : public testing::Test {
 protected:
  JsonTest() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
  void Check(const std::string& name, const std::string& text) {
    const std::string path = std::string(GPULAYER_GOLDEN_DIR) + "/" + name;
    if (std::getenv("GPULAYER_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << text;
      return;
    }
    std::ifstream in(path);
    std::ostringstream wanted;
    wanted << in.rdbuf();
    EXPECT_EQ(text, wanted.str()) << path;
  }

  static JobInfo Ended() {
    JobInfo job;
    job.id = 42;
    job.user = "ann";
    job.state = JobState::kFailed;
    job.outcome = {std::nullopt, 11, CauseKind::kSignal, "ended by signal 11"};
    job.request.name = "render";
    job.request.command = {"./render", "a b", "", "\x80\xff"};
    job.request.env = {{"K", "v"}};
    job.request.resources.memory_bytes = 1 << 30;
    job.request.time_limit = std::chrono::seconds(10);
    job.request.request_id = "r1";
    job.source_hash = std::string(64, 'a');
    job.created = At(0);
    job.started = At(1);
    job.ended = At(2);
    TaskInfo task;
    task.state = JobState::kFailed;
    task.outcome = job.outcome;
    task.output_files = 1;
    task.output_bytes = 5;
    task.left_out = {{"big.bin", 9, "over the limit of 4B"}};
    task.left_out_count = 1;
    AttemptInfo attempt;
    attempt.number = 1;
    attempt.id = "u.1.0.1";
    attempt.worker = "box";
    attempt.state = AttemptState::kEnded;
    attempt.outcome = job.outcome;
    attempt.started = At(1);
    attempt.ended = At(2);
    attempt.log_bytes = 17;
    task.attempts = {attempt};
    job.tasks = {task};
    return job;
  }
};

TEST_F(JsonTest, Job) { Check("job.json", JobJson(Ended())); }

TEST_F(JsonTest, QueuedJob) {
  JobInfo job;
  job.id = 7;
  job.user = "ann";
  job.request.name = "true";
  job.request.command = {"true"};
  job.created = At(0);
  Check("job_queued.json", JobJson(job));
}

TEST_F(JsonTest, JobList) { Check("job_list.json", JobListJson({{Ended()}, 42})); }

TEST_F(JsonTest, Explanation) {
  api::Explanation why;
  why.job = 7;
  why.needs = "4 slots";
  why.waiting_since = At(0);
  why.workers = {{"box", api::Explanation::Kind::kNotNow, {"4 of 4 slots in use by job 6"}}};
  why.summary = "waiting for 4 slots";
  Check("explain.json", ExplanationJson(why));
}

TEST_F(JsonTest, Workers) {
  WorkerInfo w;
  w.id = std::string(32, 'b');
  w.name = "box";
  w.labels = {{"disk", "ssd"}};
  w.resources = {4, 1 << 30, {{"GPU-1", Accelerator::kCuda, "A100", 1 << 30}}};
  w.state = WorkerState::kOnline;
  w.version = "0.1.0";
  w.first_seen = At(0);
  w.last_seen = At(1);
  WorkerInfo held = w;
  held.held = "starts of 3 jobs failed in a row";
  Check("workers.json", WorkerListJson({w, held}));
}

TEST_F(JsonTest, Tokens) {
  TokenInfo t{"3f9c", false, "worker", "ann", "", "", At(0), At(9), std::nullopt};
  Check("tokens.json", TokenListJson({t}));
}

TEST_F(JsonTest, StatusKeepsAllBitsOfTheIncarnation) {
  ServerInfo server;
  server.incarnation = 3'458'764'513'820'540'929;  // a double would end in ...928
  EXPECT_NE(StatusJson(server, "here").find("\"incarnation\": \"3458764513820540929\""),
            std::string::npos);
}

TEST_F(JsonTest, Small) {
  WorkerInfo offered;
  offered.name = "box";
  offered.labels = {{"disk", "ssd"}};
  offered.resources = {4, 5, {}};
  Check("small.json", VersionJson("0.1.0") + NewTokenJson({"gl1.x", "3f9c"}) +
                          CancelJson({2, 1, 3}) + ResourcesJson(offered) +
                          TargetListJson({{"box", "box:7461", "ann", "client", "u", true}}));
  Check("verbs.json", DownJson({{"server", "worker"}, "", 2, 1, "/d"}) +
                          JoinJson({"box", "mac:7461", std::string(32, 'b'), true, false}) +
                          TargetJson({"box", "box:7461", "ann", "client", "u", true}) +
                          LogoutJson("box") + RevokedJson("3f9c"));
}

}  // namespace
}  // namespace gpulayer::cli
