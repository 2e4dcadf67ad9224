// The documents that scripts read, against files: GPULAYER_UPDATE_GOLDEN=1 writes them anew.
#include "cli/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "cli/verbs.h"

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
    attempt.kept_folder = "/var/lib/gpulayer/worker/kept/u.1.0.1";
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

TEST_F(JsonTest, ArrayWithItems) {
  JobInfo job;
  job.id = 8;
  job.user = "ann";
  job.state = JobState::kRunning;
  job.request.name = "convert";
  job.request.command = {"convert", "{}"};
  job.request.array = TaskRange{0, 4, 2};
  job.request.max_parallel = 2;
  job.created = At(0);
  job.started = At(1);
  job.retry_of = 3;
  job.is_array = job.has_items = true;
  job.task_count = 3;
  job.task_states = {{JobState::kQueued, 2}, {JobState::kRunning, 1}};
  TaskInfo task;
  task.index = 4;
  task.item = "a\xff.png";
  task.state = JobState::kRunning;
  job.tasks = {task};
  job.next_task = 5;
  Check("job_array.json", JobJson(job));
}

TEST_F(JsonTest, Worker) {
  WorkerInfo w;
  w.id = std::string(32, 'b');
  w.name = "box";
  w.zone = "hall";
  w.region = "north";
  w.state = WorkerState::kSuspect;
  w.slots_used = 1;
  w.memory_used_bytes = 2;
  w.devices_used = {"GPU-1"};
  w.running = 1;
  Check("worker.json", WorkerJson(w));
}

TEST_F(JsonTest, Status) {
  ServerInfo server;
  server.version = "0.1.0";
  server.uuid = std::string(32, 'c');
  server.incarnation = 5;
  server.role = "admin";
  server.user = "ann";
  server.started = At(0);
  server.task_counts = {{"queued", 2}, {"running", 1}};
  server.workers_online = 1;
  server.workers_known = 2;
  server.slots_total = 8;
  server.slots_used = 4;
  server.blobs_received = 3;
  server.blob_bytes_received = 300;
  server.addresses = {"192.168.1.5:7461"};
  server.data_dir = "/d";
  Check("status.json", StatusJson(server, "here"));
}

TEST_F(JsonTest, Doctor) {
  Check("doctor.json", DoctorJson({{"limits", true, "1024 open files"},
                                   {"login box", false, "box:7461: nobody listens there."}}));
}

TEST_F(JsonTest, Up) {
  UpReport report;
  report.was_up = true;
  report.restarted = {"worker"};
  report.data_dir = "/d";
  report.addresses = {"192.168.1.5:7461"};
  report.join_token = "gl1.worker.x";
  report.login_token = "gl1.client.x";
  Check("up.json", UpJson(report));
}

TEST_F(JsonTest, SubmittedAndSource) {
  Check("submitted.json", SubmittedJson({7, true, {"no worker is known yet"}}));
  SourceListing listing;
  listing.files = {{"a.txt", 3}, {"b\xff", 4}};
  listing.total_bytes = 7;
  listing.ignored = {"data/"};
  listing.warnings = {"link: it leaves the folder"};
  Check("source.json", SourceJson(listing));
}

TEST_F(JsonTest, Results) {
  DownloadReport outputs;
  outputs.folder = "gpulayer_runs/42";
  outputs.files = 1;
  outputs.bytes = 5;
  outputs.left_out = {{"big.bin", 9, "over the limit of 4B"}};
  outputs.left_out_count = 1;
  Check("result.json", ResultJson({Ended(), outputs}));
  JobResult fine;
  fine.job = 7;
  fine.state = JobState::kSucceeded;
  fine.exit_code = 0;
  fine.cause = CauseKind::kProgram;
  fine.created = At(0);
  fine.started = At(1);
  fine.ended = At(2);
  Check("results.json", ResultListJson({ResultOf(Ended()), fine}));
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

// A document is a contract: who adds a verb, or --json to one, pins what it prints.
TEST(JsonOfVerbsTest, EachHasAGoldenFile) {
  const std::map<std::string, std::string> golden = {
      {"up", "up.json"},
      {"down", "verbs.json"},
      {"join", "verbs.json"},
      {"login", "verbs.json"},
      {"logout", "verbs.json"},
      {"target list", "small.json"},
      {"target use", "verbs.json"},
      {"submit", "submitted.json source.json result.json"},  // --detach, --dry-run, attached
      {"run", "result.json"},
      {"job list", "job_list.json"},
      {"ps", "job_list.json"},
      {"job show", "job.json"},
      {"job explain", "explain.json"},
      {"job attach", "result.json"},
      {"job wait", "results.json"},
      {"job cancel", "small.json"},
      {"cancel", "small.json"},
      {"job result", "result.json"},
      {"job retry", "submitted.json"},
      {"worker list", "workers.json"},
      {"worker show", "worker.json"},
      {"resources detect", "small.json"},
      {"token create", "small.json"},
      {"token list", "tokens.json"},
      {"token revoke", "verbs.json"},
      {"status", "status.json"},
      {"doctor", "doctor.json"},
      {"version", "small.json"},
  };
  Parser parser("", "");
  for (auto* add : {AddHostVerbs, AddLoginVerbs, AddSubmitVerbs, AddJobVerbs, AddWorkerVerbs,
                    AddTokenVerbs, AddOtherVerbs}) {
    add(parser);
  }
  std::set<std::string> verbs, pinned;
  for (const VerbInfo& verb : parser.Describe()) {
    if (std::count(verb.options.begin(), verb.options.end(), "--json") == 0) continue;
    std::string path;
    for (const std::string& word : verb.path) path += (path.empty() ? "" : " ") + word;
    verbs.insert(path);
  }
  for (const auto& [verb, files] : golden) {
    pinned.insert(verb);
    std::istringstream names(files);
    for (std::string name; names >> name;) {
      EXPECT_TRUE(std::ifstream(std::string(GPULAYER_GOLDEN_DIR) + "/" + name).good()) << name;
    }
  }
  EXPECT_EQ(verbs, pinned);
}

}  // namespace
}  // namespace gpulayer::cli
