#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/doctor_rules.h"
#include "model/blob_file.h"

namespace gpulayer::client {
namespace {

using api::Finding;
using api::WorkerInfo;
using api::WorkerState;
using std::chrono::seconds;

const ProcessId kSome;

DaemonsView Up() {
  DaemonsView view;
  view.dir = "/d";
  view.record.emplace();
  view.record->server_process = view.record->worker_process = kSome;
  view.server_lives = view.worker_lives = view.socket_left = true;
  return view;
}

TEST(DoctorTest, DaemonsThatDiedAndThoseThatWereStopped) {
  EXPECT_EQ(OfDaemons(Up()).text, "/d: server and worker are up");
  DaemonsView none;
  none.dir = "/d";
  EXPECT_TRUE(OfDaemons(none).ok);
  none.socket_left = true;
  EXPECT_FALSE(OfDaemons(none).ok);
  DaemonsView down = Up();
  down.record->server_process = down.record->worker_process = std::nullopt;
  down.server_lives = down.worker_lives = down.socket_left = false;
  EXPECT_EQ(OfDaemons(down).text, "/d: nothing is up");
  DaemonsView no_server = Up();
  no_server.server_lives = false;
  EXPECT_EQ(OfDaemons(no_server).text,
            "/d: the server has died. See /d/log, and run `gpulayer up`, which starts again what "
            "has died.");
  DaemonsView no_worker = Up();
  no_worker.worker_lives = false;
  EXPECT_FALSE(OfDaemons(no_worker).ok);
  no_worker.record->worker = false;  // up --no-worker
  EXPECT_TRUE(OfDaemons(no_worker).ok);
  DaemonsView joined = Up();
  joined.record->kind = DaemonRecord::Kind::kJoin;
  joined.record->address = "box:7461";
  joined.server_lives = false;
  EXPECT_EQ(OfDaemons(joined).text, "/d: a worker of box:7461 is up");
  joined.worker_lives = false;
  EXPECT_NE(OfDaemons(joined).text.find("`gpulayer join`"), std::string::npos);
}

TEST(DoctorTest, ADiskBelowWhatAServerTakes) {
  EXPECT_TRUE(OfDisk("/d", kBlobDiskFloorBytes).ok);
  EXPECT_FALSE(OfDisk("/d", kBlobDiskFloorBytes - 1).ok);
}

WorkerInfo Worker(const std::string& name, WorkerState state) {
  WorkerInfo out;
  out.name = name;
  out.state = state;
  return out;
}

Finding Workers(const std::vector<WorkerInfo>& workers) {
  ServerView view;
  view.workers = workers;
  return OfServer("here", view).back();
}

TEST(DoctorTest, WorkersThatRunNothing) {
  const WorkerInfo online = Worker("a", WorkerState::kOnline);
  const WorkerInfo offline = Worker("b", WorkerState::kOffline);
  EXPECT_FALSE(Workers({}).ok);
  EXPECT_FALSE(Workers({offline}).ok);
  EXPECT_EQ(Workers({online, offline}).text, "1 of 2 online");
  EXPECT_TRUE(Workers({online, offline}).ok);
  WorkerInfo held = online;
  held.held = "starts of 3 jobs failed in a row";
  EXPECT_EQ(
      Workers({online, held, Worker("c", WorkerState::kSuspect)}).text,
      "a is given no work: starts of 3 jobs failed in a row; c does not answer any more: look at "
      "the machine and its network.");
}

std::optional<Finding> Clock(seconds since_heard) {
  ServerView view;
  view.asked = api::Time(seconds(1'700'000'000));
  view.workers = {Worker("a", WorkerState::kOnline), Worker("b", WorkerState::kOffline)};
  view.workers[0].last_seen = view.asked - since_heard;
  return OfClock(view);
}

TEST(DoctorTest, AClockIsJudgedByWhenAWorkerWasHeardOf) {
  for (const int fine : {-5, 0, 2, 10, 15}) EXPECT_TRUE(Clock(seconds(fine))->ok) << fine;
  EXPECT_NE(Clock(seconds(3610))->text.find("at least 1h ahead of"), std::string::npos);
  EXPECT_NE(Clock(seconds(-3600))->text.find("at least 1h behind"), std::string::npos);
  EXPECT_FALSE(OfClock({}).has_value());
}

}  // namespace
}  // namespace gpulayer::client
