// A worker's data directory with a real gpulayer-exec, for tests that run real programs.
#ifndef GPULAYER_TESTS_EXEC_EXEC_FIXTURE_H_
#define GPULAYER_TESTS_EXEC_EXEC_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "model/log_frame.h"
#include "support/census.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "worker/exec/attempt_dir.h"
#include "worker/exec/exec_client.h"

namespace gpulayer::testing {

using namespace std::chrono_literals;

// What the sink heard.
class Ear {
 public:
  ExecClient::Sink sink() {
    return [this](ExecEvent event) {
      MutexLock lock(mutex_);
      if (event.kind == ExecEvent::Kind::kStarted) {
        started_[event.id.value()] = event.started;
      } else {
        ended_.emplace(event.id.value(), event.status);
      }
    };
  }
  void Forget() {
    MutexLock lock(mutex_);
    started_.clear();
    ended_.clear();
  }
  bool Started(const AttemptId& id) {
    MutexLock lock(mutex_);
    return started_.count(id.value()) != 0;
  }
  std::int64_t Pid(const AttemptId& id) {
    MutexLock lock(mutex_);
    return started_[id.value()].pid;
  }
  std::size_t Ends(const AttemptId& id) {
    MutexLock lock(mutex_);
    return ended_.count(id.value());
  }
  std::size_t AllEnds() {
    MutexLock lock(mutex_);
    return ended_.size();
  }
  AttemptStatus End(const AttemptId& id) {
    MutexLock lock(mutex_);
    const auto it = ended_.find(id.value());
    return it == ended_.end() ? AttemptStatus{} : it->second;
  }

 private:
  Mutex mutex_;
  std::map<std::string, AttemptStarted> started_;
  std::multimap<std::string, AttemptStatus> ended_;
};

class ExecTest : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(ExecClientOptions::Life::kDiesWithWorker); }

  void TearDown() override {
    client_.reset();
    EXPECT_TRUE(Eventually([&] { return ExecPid() == 0; })) << "gpulayer-exec is left";
    EXPECT_THAT(OwnCensus(), ::testing::IsEmpty());
  }

  ExecClientOptions Options(ExecClientOptions::Life life) {
    ExecClientOptions options;
    options.data_dir = dir_.path();
    options.program = GPULAYER_EXEC_PROGRAM;
    options.life = life;
    return options;
  }
  void Reopen(ExecClientOptions::Life life) {
    client_.reset();
    Result<std::unique_ptr<ExecClient>> client = ExecClient::Open(Options(life), ear_.sink());
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_ = *std::move(client);
  }
  // Of this directory's gpulayer-exec; 0: none runs.
  pid_t ExecPid() {
    const Result<std::vector<std::string>> entries = ListDir("/proc");
    for (const std::string& entry : *entries) {
      if (entry.find_first_not_of("0123456789") != std::string::npos) continue;
      const Result<std::string> cmdline = ReadFile("/proc/" + entry + "/cmdline");
      const Result<std::string> comm = ReadFile("/proc/" + entry + "/comm");
      if (!cmdline.ok() || !comm.ok() || *comm != "gpulayer-exec\n") continue;
      if (cmdline->find(dir_.path() + std::string(1, '\0')) == std::string::npos) continue;
      return static_cast<pid_t>(std::strtol(entry.c_str(), nullptr, 10));
    }
    return 0;
  }
  std::vector<pid_t> OwnCensus() { return Census(Prefix(), CensusMatch::kPrefix); }

  AttemptSpec Spec(std::vector<std::string> argv) {
    AttemptSpec spec;
    spec.argv = std::move(argv);
    spec.env = {"PATH=/usr/local/bin:/usr/bin:/bin", "D=" + dir_.path()};
    spec.cwd = dir_.path();
    spec.grace = 5s;
    return spec;
  }
  AttemptSpec Shell(const std::string& script) { return Spec({"bash", "-c", script}); }

  // Of this test's attempts: unlike those of tests that run beside it.
  std::string Prefix() { return BaseName(dir_.path()) + "."; }
  // Makes the folder and the spec of a new attempt.
  AttemptId Prepare(AttemptSpec spec) {
    const AttemptId id(Prefix() + std::to_string(ids_.size()));
    ids_.push_back(id);
    spec.env.push_back("GPULAYER_ATTEMPT_ID=" + id.value());
    const Result<std::string> path = store_.Create(id);
    EXPECT_TRUE(path.ok()) << path.status().ToString();
    const Status written = store_.WriteSpec(id, spec);
    EXPECT_TRUE(written.ok()) << written.ToString();
    return id;
  }
  AttemptId Start(AttemptSpec spec) {
    AttemptId id = Prepare(std::move(spec));
    const Status status = client_->Start(id);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return id;
  }
  AttemptStatus Await(const AttemptId& id, std::chrono::milliseconds patience = 20s) {
    EXPECT_TRUE(Eventually([&] { return ear_.Ends(id) > 0; }, patience)) << id;
    EXPECT_EQ(ear_.Ends(id), 1u);
    const Result<AttemptStatus> stored = store_.ReadStatus(id);
    EXPECT_TRUE(stored.ok()) << stored.status().ToString();
    AttemptStatus end = ear_.End(id);
    EXPECT_EQ(stored.value_or(AttemptStatus{}), end);
    if (ids_.size() <= 10) {  // it reads all of /proc; TearDown looks again
      EXPECT_THAT(Census(id.value()), ::testing::IsEmpty());
    }
    return end;
  }
  AttemptStatus Run(AttemptSpec spec) { return Await(last_ = Start(std::move(spec))); }

  std::string Output(const AttemptId& id, LogStream stream = LogStream::kOut) {
    Result<std::string> bytes = ReadFile(JoinPath(store_.PathOf(id), kLogFile));
    EXPECT_TRUE(bytes.ok());
    if (!bytes.ok()) return "";
    Result<std::vector<FrameView>> frames = ParseFrames(*bytes);
    EXPECT_TRUE(frames.ok());
    std::string out;
    std::size_t whole = 0;
    for (const FrameView& frame : *frames) {
      whole += frame.size;
      if (frame.stream == stream) out += frame.data;
    }
    EXPECT_EQ(whole, bytes->size());
    return out;
  }
  std::string LastOutput(LogStream stream = LogStream::kOut) { return Output(last_, stream); }
  bool Prints(const AttemptId& id, const std::string& text) {
    return Eventually([&] {
      Result<std::string> bytes = ReadFile(JoinPath(store_.PathOf(id), kLogFile));
      return bytes.ok() && bytes->find(text) != std::string::npos;
    });
  }
  std::string WriteScript(const std::string& name, const std::string& text, mode_t mode = 0755) {
    const std::string path = dir_ / name;
    EXPECT_TRUE(WriteFileAtomic(path, text, mode, Durability::kNone).ok());
    return path;
  }

  TempDir dir_;
  AttemptStore store_ = *AttemptStore::Open(dir_.path());
  Ear ear_;
  std::unique_ptr<ExecClient> client_;
  std::vector<AttemptId> ids_;
  AttemptId last_;
};

inline std::chrono::milliseconds Took(const AttemptStatus& s) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(s.ended.mono - s.started->at.mono);
}

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_EXEC_EXEC_FIXTURE_H_
