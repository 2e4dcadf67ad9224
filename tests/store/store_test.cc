#include "server/store/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "base/fs.h"
#include "server/store/sqlite.h"
#include "store/random_records.h"
#include "support/small_disk.h"
#include "support/temp_dir.h"

namespace gpulayer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

JobRecord SimpleJob(std::int64_t id, TaskState state = TaskState::kQueued,
                    const std::string& user = "ann", const std::string& name = "job") {
  JobRecord job;
  job.id = JobId(id);
  job.user = UserName(user);
  job.spec = std::make_shared<const JobSpec>(JobSpec{
      .name = name, .command = {"true"}, .request_id = RequestId("r" + std::to_string(id))});
  job.state = state;
  return job;
}

bool Same(const JobRecord& a, const JobRecord& b) {
  JobRecord copy = a;
  copy.spec = b.spec;  // compared by what it points to
  return copy == b && *a.spec == *b.spec;
}

std::vector<std::int64_t> Ids(const std::vector<JobRecord>& jobs) {
  std::vector<std::int64_t> ids;
  for (const JobRecord& job : jobs) ids.push_back(job.id.value());
  return ids;
}

class StoreTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Store>> TryOpen() { return Store::Open({path_, true}); }
  std::unique_ptr<Store> Open() {
    Result<std::unique_ptr<Store>> store = TryOpen();
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return *std::move(store);
  }
  void WriteJobs(Store& store, std::int64_t first, std::int64_t end) {
    WriteBatch batch;
    for (std::int64_t id = first; id < end; ++id) batch.insert_jobs.push_back(SimpleJob(id));
    ASSERT_TRUE(store.Write(batch).ok());
  }
  // Zeros in the middle of the file.
  void Damage(std::int64_t offset, std::size_t size) {
    const UniqueFd fd = *OpenFile(path_, O_RDWR);
    ASSERT_EQ(pwrite(fd.get(), std::string(size, '\0').data(), size, offset),
              static_cast<ssize_t>(size));
  }

  testing::TempDir dir_;
  std::string path_ = dir_ / "state.db";
};

TEST_F(StoreTest, AFreshStoreIsEmptyAndKeepsItsIdentity) {
  ServerIdentity identity;
  {
    const auto store = Open();
    identity = store->identity();
    EXPECT_THAT(identity.uuid, SizeIs(32));
    EXPECT_GT(identity.incarnation, 0);
    const LoadedState state = *store->Load();
    EXPECT_EQ(state.server, identity);
    EXPECT_EQ(state.last_job, JobId(0));
    EXPECT_THAT(state.jobs, IsEmpty());
    EXPECT_TRUE(store->Write({}).ok());
  }
  EXPECT_EQ(Open()->identity(), identity);
  struct stat st{};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600U);
}

// Random batches, and a restart after each: what is loaded and read is what was written.
TEST_F(StoreTest, ARestartGivesBackWhatWasWritten) {
  auto store = Open();
  std::map<JobId, JobRecord> jobs;
  std::map<TaskRef, TaskRecord> tasks;
  std::map<AttemptRef, AttemptRecord> attempts;
  std::map<std::string, WorkerRecord> workers;
  std::int64_t last = 0;
  EXPECT_TRUE(rc::check([&] {
    WriteBatch batch;
    for (std::int64_t n = testing::Below(4); n > 0; --n) {
      const JobRecord job =
          testing::RandomJob(JobId(++last), static_cast<TaskState>(1 + testing::Below(9)));
      batch.insert_jobs.push_back(job);
      jobs[job.id] = job;
    }
    for (std::int64_t n = jobs.empty() ? 0 : testing::Below(4); n > 0; --n) {
      JobRecord job = std::next(jobs.begin(), testing::Below(std::ssize(jobs)))->second;
      testing::RandomJobState(job, static_cast<TaskState>(1 + testing::Below(9)));
      batch.update_jobs.push_back(job);
      jobs[job.id] = job;
      const TaskRecord task = testing::RandomTask({job.id, TaskIndex(testing::Below(3))});
      batch.tasks.push_back(task);
      tasks[task.ref] = task;
      const AttemptRecord attempt =
          testing::RandomAttempt({task.ref, AttemptNo(1 + static_cast<int>(testing::Below(3)))},
                                 static_cast<AttemptState>(1 + testing::Below(5)));
      batch.attempts.push_back(attempt);
      attempts[attempt.ref] = attempt;
    }
    if (testing::Coin()) {
      batch.workers.push_back(testing::RandomWorker(std::to_string(testing::Below(5))));
      workers[batch.workers.back().profile.id.value()] = batch.workers.back();
    }
    const Status written = store->Write(batch);
    RC_ASSERT(written == OkStatus());

    store.reset();
    store = *TryOpen();
    const LoadedState state = *store->Load();
    RC_ASSERT(state.last_job == JobId(last));
    RC_ASSERT(state.requests.size() == jobs.size());
    std::size_t open_jobs = 0;
    for (const auto& [id, job] : jobs) open_jobs += IsTerminal(job.state) ? 0 : 1;
    RC_ASSERT(state.jobs.size() == open_jobs);
    for (const JobRecord& job : state.jobs) RC_ASSERT(Same(job, jobs.at(job.id)));
    std::size_t open_tasks = 0;
    for (const auto& [ref, task] : tasks) open_tasks += IsTerminal(jobs.at(ref.job).state) ? 0 : 1;
    RC_ASSERT(state.tasks.size() == open_tasks);
    for (const TaskRecord& task : state.tasks) RC_ASSERT(task == tasks.at(task.ref));
    std::size_t open_attempts = 0;
    for (const auto& [ref, attempt] : attempts) {
      open_attempts +=
          attempt.state < AttemptState::kEnded && !IsTerminal(jobs.at(ref.task.job).state) ? 1 : 0;
    }
    RC_ASSERT(state.attempts.size() == open_attempts);
    for (const AttemptRecord& a : state.attempts) RC_ASSERT(a == attempts.at(a.ref));
    RC_ASSERT(state.workers.size() == workers.size());
    for (const WorkerRecord& w : state.workers) RC_ASSERT(w == workers.at(w.profile.id.value()));
  }));
  const auto reader = *store->OpenReader();
  for (const auto& [id, job] : jobs) EXPECT_TRUE(Same(*reader->GetJob(id), job)) << id;
  for (const auto& [ref, task] : tasks) {
    EXPECT_EQ(reader->GetTasks(ref.job, ref.task, 1)->at(0), task);
  }
  for (const auto& [ref, attempt] : attempts) {
    const std::vector<AttemptRecord> found = *reader->GetAttempts(ref.task);
    EXPECT_TRUE(std::find(found.begin(), found.end(), attempt) != found.end());
  }
}

TEST_F(StoreTest, AFailedBatchLeavesNothing) {
  const auto store = Open();
  WriteJobs(*store, 1, 2);
  WriteBatch batch;
  batch.insert_jobs = {SimpleJob(2), SimpleJob(1)};
  EXPECT_FALSE(store->Write(batch).ok());
  EXPECT_EQ(store->Load()->last_job, JobId(1));
  batch.insert_jobs = {SimpleJob(2)};
  batch.update_jobs = {SimpleJob(3)};  // no such row
  EXPECT_FALSE(store->Write(batch).ok());
  batch.update_jobs.clear();
  EXPECT_TRUE(store->Write(batch).ok());
  EXPECT_EQ(store->Load()->last_job, JobId(2));
}

TEST_F(StoreTest, ListsNewestFirstByPageAndFilter) {
  const auto store = Open();
  WriteBatch batch;
  batch.insert_jobs = {SimpleJob(1, TaskState::kFailed, "ann", "train-1"),
                       SimpleJob(2, TaskState::kQueued, "bob", "train-2"),
                       SimpleJob(3, TaskState::kFailed, "bob", "[x]"),
                       SimpleJob(4, TaskState::kRunning, "ann", "eval"),
                       SimpleJob(5, TaskState::kFailed, "ann", "train-3")};
  ASSERT_TRUE(store->Write(batch).ok());
  const auto reader = *store->OpenReader();
  const auto list = [&](const JobFilter& filter) { return Ids(reader->ListJobs(filter)->jobs); };
  using V = std::vector<std::int64_t>;
  EXPECT_EQ(list({}), (V{5, 4, 3, 2, 1}));
  EXPECT_EQ(list({.limit = 2}), (V{5, 4}));
  EXPECT_EQ(list({.before = JobId(4), .limit = 2}), (V{3, 2}));
  EXPECT_EQ(list({.state = TaskState::kFailed}), (V{5, 3, 1}));
  EXPECT_EQ(list({.user = UserName("bob")}), (V{3, 2}));
  EXPECT_EQ(list({.state = TaskState::kFailed, .user = UserName("ann")}), (V{5, 1}));
  EXPECT_EQ(list({.name_glob = "train-?"}), (V{5, 2, 1}));
  EXPECT_EQ(list({.name_glob = "[x]"}), (V{3}));
  EXPECT_EQ(list({.user = UserName("ann"), .name_glob = "train*", .limit = 1}), (V{5}));
  EXPECT_EQ(reader->GetJob(JobId(9)).status().code(), StatusCode::kNotFound);
}

TEST_F(StoreTest, ListsNoMoreSpecsThanItMay) {
  const auto store = Open();
  WriteBatch batch;
  for (int i = 1; i <= 5; ++i) {
    JobRecord job = SimpleJob(i);
    JobSpec spec = *job.spec;
    spec.env = {{"LARGE", std::string(100'000, 'x')}};
    job.spec = std::make_shared<const JobSpec>(std::move(spec));
    batch.insert_jobs.push_back(std::move(job));
  }
  ASSERT_TRUE(store->Write(batch).ok());
  const auto reader = *store->OpenReader();
  JobFilter filter{.limit = 1000, .max_spec_bytes = 150'000};
  std::vector<std::vector<std::int64_t>> pages;
  for (bool more = true; more && pages.size() < 9; filter.before = JobId(pages.back().back())) {
    const auto page = reader->ListJobs(filter);
    ASSERT_TRUE(page.ok());
    ASSERT_FALSE(page->jobs.empty());
    pages.push_back(Ids(page->jobs));
    more = page->more;
  }
  EXPECT_EQ(pages, (std::vector<std::vector<std::int64_t>>{{5, 4}, {3, 2}, {1}}));
}

TEST_F(StoreTest, TokensComeBack) {
  const auto store = Open();
  TokenRecord token{.id = "t1",
                    .secret_hash = Hash::Of("secret"),
                    .kind = TokenRecord::Kind::kCredential,
                    .role = Role::kWorker,
                    .user = UserName("ann"),
                    .parent = "t0",
                    .subject = "box",
                    .created = FromMicros(5),
                    .expires = FromMicros(9),
                    .revoked = std::nullopt};
  ASSERT_TRUE(store->PutToken(token).ok());
  token.revoked = FromMicros(7);
  ASSERT_TRUE(store->PutToken(token).ok());
  ASSERT_TRUE(store->PutToken({.id = "t2", .created = FromMicros(6)}).ok());
  const TokenRecord found = store->ListTokens()->front();
  EXPECT_EQ(found.secret_hash, token.secret_hash);
  EXPECT_EQ(found.kind, token.kind);
  EXPECT_EQ(found.role, token.role);
  EXPECT_EQ(found.user, token.user);
  EXPECT_EQ(found.parent, "t0");
  EXPECT_EQ(found.subject, "box");
  EXPECT_EQ(found.created, token.created);
  EXPECT_EQ(found.expires, token.expires);
  EXPECT_EQ(found.revoked, token.revoked);
  EXPECT_THAT(*store->ListTokens(), SizeIs(2));
}

TEST_F(StoreTest, ASecondServerIsRefusedAndToldByWhom) {
  auto first = Open();
  const Status second = TryOpen().status();
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(),
              HasSubstr("held by another server (pid " + std::to_string(getpid()) + ")"));
  first.reset();
  EXPECT_TRUE(TryOpen().ok());
}

TEST_F(StoreTest, ANewerSchemaIsRefused) {
  Open().reset();
  {
    auto db = *sqlite::Database::Open(path_, sqlite::Database::Mode::kReadWrite);
    ASSERT_TRUE(db->Execute("PRAGMA user_version = 999").ok());
  }
  const Status newer = TryOpen().status();
  EXPECT_EQ(newer.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(newer.message(), HasSubstr("newer version (schema 999"));
}

// Attempts of the first version had no kept folder.
TEST_F(StoreTest, AnOlderSchemaIsBroughtUpToDateWithWhatIsInIt) {
  WriteBatch batch;
  batch.insert_jobs = {SimpleJob(1, TaskState::kRunning)};
  AttemptRecord attempt;
  attempt.ref = {{JobId(1), TaskIndex(0)}, AttemptNo(1)};
  attempt.id = AttemptId("a1");
  attempt.worker_name = "box";
  attempt.state = AttemptState::kRunning;
  attempt.log_bytes = 7;
  batch.attempts = {attempt};
  ASSERT_TRUE(Open()->Write(batch).ok());
  {
    auto db = *sqlite::Database::Open(path_, sqlite::Database::Mode::kReadWrite);
    ASSERT_TRUE(db->Execute("ALTER TABLE attempts DROP COLUMN kept_folder").ok());
    ASSERT_TRUE(db->Execute("PRAGMA user_version = 1").ok());
  }
  const auto store = Open();
  EXPECT_THAT(store->Load()->attempts, ElementsAre(attempt));
  batch = WriteBatch();
  attempt.kept_folder = "/kept/a1";
  batch.attempts = {attempt};
  ASSERT_TRUE(store->Write(batch).ok());
  EXPECT_THAT(store->Load()->attempts, ElementsAre(attempt));
}

TEST_F(StoreTest, AnotherProgramsDatabaseIsRefused) {
  ASSERT_TRUE(WriteFileAtomic(path_, "").ok());
  {
    auto db = *sqlite::Database::Open(path_, sqlite::Database::Mode::kReadWrite);
    ASSERT_TRUE(db->Execute("CREATE TABLE theirs (x)").ok());
  }
  EXPECT_THAT(TryOpen().status().message(), HasSubstr("another program's"));
}

TEST_F(StoreTest, DamageIsSaidWithTheFileAndWhatToDo) {
  const auto expect_said = [&] {
    const Status status = TryOpen().status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(path_));
    EXPECT_THAT(status.message(), HasSubstr("backup"));
  };
  WriteJobs(*Open(), 1, 1000);
  const std::string good = *ReadFile(path_);
  for (std::size_t page = 1; page < good.size() / 4096; page += good.size() / 4096 / 10) {
    Damage(static_cast<std::int64_t>(page * 4096), 4096);
    expect_said();
    ASSERT_TRUE(WriteFileAtomic(path_, good).ok());
  }
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(good.size() / 2)), 0);
  expect_said();
  ASSERT_TRUE(WriteFileAtomic(path_, "no database at all, but quite some text").ok());
  expect_said();
  ASSERT_TRUE(WriteFileAtomic(path_, good).ok());
  EXPECT_EQ(Open()->Load()->last_job, JobId(999));
}

TEST_F(StoreTest, ADamagedSpecIsSaid) {
  WriteBatch batch;
  JobRecord job = SimpleJob(1);
  JobSpec spec = *job.spec;
  spec.env = {{"LARGE", std::string(40'000, 'x')}};
  job.spec = std::make_shared<const JobSpec>(spec);
  batch.insert_jobs = {job};
  ASSERT_TRUE(Open()->Write(batch).ok());
  const std::string good = *ReadFile(path_);
  // Inside an overflow page, where the file's own structure is not touched.
  Damage(static_cast<std::int64_t>(good.find(std::string(4000, 'x')) + 1000), 100);
  const auto store = Open();
  EXPECT_EQ(store->Load().status().code(), StatusCode::kDataLoss);
  const Status read = (*store->OpenReader())->GetJob(JobId(1)).status();
  EXPECT_EQ(read.code(), StatusCode::kDataLoss);
  EXPECT_THAT(read.message(), HasSubstr("job 1"));
  EXPECT_THAT(read.message(), HasSubstr(path_));
}

TEST_F(StoreTest, AnOutsideLockIsWaitedFor) {
  const auto store = Open();
  auto outside = *sqlite::Database::Open(path_, sqlite::Database::Mode::kReadWrite);
  ASSERT_TRUE(outside->Begin().ok());
  std::atomic<int> done{0};
  std::thread writer([&] {
    WriteBatch batch;
    batch.insert_jobs = {SimpleJob(1)};
    EXPECT_TRUE(store->Write(batch).ok());
    ++done;
  });
  std::thread token([&] {
    EXPECT_TRUE(store->PutToken({.id = "t"}).ok());
    ++done;
  });
  const auto reader = *store->OpenReader();
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
    ASSERT_THAT(reader->ListJobs({})->jobs, IsEmpty());  // readers and token checks do not wait
    ASSERT_THAT(*store->ListTokens(), IsEmpty());
    ASSERT_EQ(done.load(), 0);
  }
  ASSERT_TRUE(outside->Commit().ok());
  writer.join();
  token.join();
  EXPECT_THAT(reader->ListJobs({})->jobs, SizeIs(1));
}

TEST_F(StoreTest, AReaderInTheMiddleOfARowDoesNotHoldUpTheWriter) {
  const auto store = Open();
  WriteJobs(*store, 1, 100);
  auto db = *sqlite::Database::Open(path_, sqlite::Database::Mode::kReadOnly);
  auto query = *db->Prepare("SELECT id FROM jobs");
  ASSERT_TRUE(*query.Step());
  const auto start = std::chrono::steady_clock::now();
  WriteJobs(*store, 100, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_THAT((*store->OpenReader())->ListJobs({.limit = 1000})->jobs, SizeIs(199));
}

TEST_F(StoreTest, ReadersBesideTheWriter) {
  const auto store = Open();
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      const auto reader = *store->OpenReader();
      while (!stop.load()) {
        Result<StoreReader::JobPage> jobs = reader->ListJobs({.limit = 20});
        ASSERT_TRUE(jobs.ok()) << jobs.status().ToString();
        // Batches of ten: a reader sees all of a batch or nothing.
        if (!jobs->jobs.empty()) {
          ASSERT_EQ(jobs->jobs.front().id.value() % 10, 0);
        }
        ASSERT_TRUE(store->PutToken({.id = "t"}).ok());
        ASSERT_THAT(*store->ListTokens(), SizeIs(1));
      }
    });
  }
  for (std::int64_t first = 1; first <= 1000; first += 10) WriteJobs(*store, first, first + 10);
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
}

TEST(StoreFullDiskTest, AFullDiskIsSaidAndTheBatchMayComeAgain) {
  testing::SmallDisk disk("4m");
  if (!disk.mounted()) GTEST_SKIP() << disk.SkipReason();
  const auto store = *Store::Open({disk / "state.db", true});
  WriteBatch batch;
  for (std::int64_t id = 1; id <= 5000; ++id) batch.insert_jobs.push_back(SimpleJob(id));
  ASSERT_TRUE(disk.Fill(100'000).ok());
  for (int n = 0; n < 3; ++n) {
    const Status full = store->Write(batch);
    EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full.ToString();
    EXPECT_THAT(full.message(), HasSubstr("server disk full"));
    EXPECT_THAT((*store->OpenReader())->ListJobs({})->jobs, IsEmpty());
  }
  ASSERT_TRUE(disk.MakeRoom().ok());
  ASSERT_TRUE(store->Write(batch).ok());
  EXPECT_EQ(store->Load()->jobs.size(), 5000U);
}

}  // namespace
}  // namespace gpulayer
