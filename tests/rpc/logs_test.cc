#include <gtest/gtest.h>

#include "model/job.h"
#include "rpc/fake_worker.h"
#include "rpc/fixture.h"
#include "server/rpc/log_tail.h"
#include "support/eventually.h"

namespace gpulayer::testing {
namespace {

constexpr int kRunning = 2;

class LogsTest : public BothTransports {
 protected:
  void SetUp() override {
    BothTransports::SetUp();
    if (!server_) return;
    const std::string bearer =
        GetParam() == Transport::kTls ? Credential(Role::kWorker, FakeWorker::kId) : "";
    worker_ = std::make_unique<FakeWorker>(ConnectTo(*server_, GetParam()), bearer);
    ASSERT_TRUE(worker_->Greet());
  }
  void TearDown() override {
    worker_.reset();
    BothTransports::TearDown();
  }

  v1::AttemptKey StartJob(const std::string& request_id) {
    job_ = Submit(Spec({"true"}, request_id));
    const auto assign = worker_->NextAssign();
    EXPECT_TRUE(assign);
    if (!assign) return {};
    EXPECT_TRUE(worker_->SendProgress(assign->key(), kRunning));
    return assign->key();
  }

  // Sends frames and waits until the server has stored them.
  void Append(const v1::AttemptKey& key, const std::string& frames) {
    ASSERT_TRUE(worker_->SendLog(key, sent_, frames));
    sent_ += static_cast<std::int64_t>(frames.size());
    const auto ack = worker_->Next();
    ASSERT_TRUE(ack && ack->has_log_ack());
    EXPECT_TRUE(ack->log_ack().current());
    EXPECT_EQ(ack->log_ack().size(), sent_);
  }

  void End(const v1::AttemptKey& key) {
    ASSERT_TRUE(worker_->SendEnded(key, 0, sent_));
    const auto ack = worker_->Next();
    ASSERT_TRUE(ack && ack->has_end_ack());
    EXPECT_FALSE(ack->end_ack().has_resend_log_from());
  }

  v1::ReadLogsRequest Request() const {
    v1::ReadLogsRequest request;
    request.set_job(job_);
    return request;
  }

  // Everything that is there now.
  std::string ReadAll(const v1::ReadLogsRequest& request) {
    Call call(client_);
    auto stream = logs_->Read(&call, request);
    std::string all;
    v1::LogChunk chunk;
    while (stream->Read(&chunk)) {
      for (const auto& piece : chunk.pieces()) all += piece.data();
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return all;
  }

  std::unique_ptr<FakeWorker> worker_;
  std::int64_t job_ = 0;
  std::int64_t sent_ = 0;
};
GPULAYER_BOTH_TRANSPORTS(LogsTest);

TEST_P(LogsTest, FollowGoesFromBeforeTheStartToTheEnd) {
  job_ = Submit(Spec({"true"}, "f"));
  Call call(client_);
  v1::ReadLogsRequest request = Request();
  request.set_follow(true);
  auto stream = logs_->Read(&call, request);

  const auto assign = worker_->NextAssign();
  ASSERT_TRUE(assign);
  ASSERT_TRUE(worker_->SendProgress(assign->key(), kRunning));
  Append(assign->key(), FakeWorker::Frame(LogStream::kOut, "one\n"));
  v1::LogChunk chunk;
  ASSERT_TRUE(stream->Read(&chunk));
  ASSERT_EQ(chunk.pieces_size(), 1);
  EXPECT_EQ(chunk.pieces(0).data(), "one\n");
  EXPECT_EQ(chunk.attempt(), 1);
  EXPECT_EQ(chunk.next_offset(), sent_);

  Append(assign->key(), FakeWorker::Frame(LogStream::kErr, "two\n"));
  ASSERT_TRUE(stream->Read(&chunk));
  EXPECT_EQ(chunk.pieces(0).stream(), 2);
  End(assign->key());
  EXPECT_FALSE(stream->Read(&chunk));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_P(LogsTest, WhatIsMissingIsSaidApartAndThatMoreFollowsOnlyToWhoWaits) {
  const v1::AttemptKey key = StartJob("d");
  Append(key, FakeWorker::Frame(LogStream::kOut, "head\n") +
                  FakeWorker::Frame(LogStream::kNote, std::string(kHeldBackNote)));
  EXPECT_EQ(ReadAll(Request()), "head\n" + std::string(kHeldBackNote));
  const std::string note = DroppedNote(70, " of output here (--log-limit 64KiB)");
  Append(key,
         FakeWorker::Frame(LogStream::kNote, note) + FakeWorker::Frame(LogStream::kOut, "tail\n"));
  End(key);
  EXPECT_EQ(ReadAll(Request()), "head\n" + note + "tail\n");
  Call call(client_);
  auto stream = logs_->Read(&call, Request());
  v1::LogChunk chunk;
  ASSERT_TRUE(stream->Read(&chunk));
  ASSERT_EQ(chunk.pieces_size(), 3);
  EXPECT_EQ(chunk.pieces(0).dropped_bytes(), 0);
  EXPECT_EQ(chunk.pieces(1).stream(), static_cast<int>(LogStream::kNote));
  EXPECT_EQ(chunk.pieces(1).dropped_bytes(), 70);
}

TEST_P(LogsTest, F33_WhoComesJustAsItEndsSeesAll) {
  for (int i = 0; i < 100; ++i) {
    sent_ = 0;
    const v1::AttemptKey key = StartJob("j" + std::to_string(i));
    Append(key, FakeWorker::Frame(LogStream::kOut, "last"));
    ASSERT_TRUE(worker_->SendEnded(key, 0, sent_));
    v1::ReadLogsRequest request = Request();
    request.set_follow(true);
    EXPECT_EQ(ReadAll(request), "last") << i;
    const auto ack = worker_->Next();
    ASSERT_TRUE(ack && ack->has_end_ack());
  }
}

// One that knows no limit, say.
TEST_P(LogsTest, AWorkerCannotMakeTheServerStoreMoreThanTheLimit) {
  v1::JobSpec spec = Spec({"true"}, "l");
  spec.set_log_limit_bytes(64 << 10);
  job_ = Submit(spec);
  const auto assign = worker_->NextAssign();
  ASSERT_TRUE(assign);
  ASSERT_TRUE(worker_->SendProgress(assign->key(), kRunning));
  for (int i = 0; i < 20; ++i) {
    Append(assign->key(), FakeWorker::Frame(LogStream::kOut, std::string(20'000, 'x')));
  }
  End(assign->key());
  const std::string stored = ReadAll(Request());
  EXPECT_GT(stored.size(), std::size_t{64} << 10);
  EXPECT_LE(stored.size(), std::size_t{128} << 10);
}

TEST_P(LogsTest, AFollowerIsToldThatTheNextAttemptBegins) {
  const v1::AttemptKey first = StartJob("a");
  Append(first, FakeWorker::Frame(LogStream::kOut, "one\n"));
  Call call(client_);
  v1::ReadLogsRequest request = Request();
  request.set_follow(true);
  auto stream = logs_->Read(&call, request);
  v1::LogChunk chunk;
  ASSERT_TRUE(stream->Read(&chunk));
  // Its worker comes back without it.
  const std::string bearer =
      GetParam() == Transport::kTls ? Credential(Role::kWorker, FakeWorker::kId) : "";
  auto back = std::make_unique<FakeWorker>(ConnectTo(*server_, GetParam()), bearer);
  ASSERT_TRUE(back->Greet());
  worker_ = std::move(back);
  const auto second = worker_->NextAssign();
  ASSERT_TRUE(second);
  ASSERT_TRUE(stream->Read(&chunk));
  ASSERT_EQ(chunk.pieces_size(), 1);
  EXPECT_EQ(chunk.pieces(0).stream(), static_cast<int>(LogStream::kNote));
  EXPECT_EQ(chunk.pieces(0).data(),
            "attempt 1 was lost on w1 (worker w1 has it no more), attempt 2 starts on w1\n");
  EXPECT_EQ(chunk.attempt(), 2);
  EXPECT_EQ(chunk.next_offset(), 0);
  ASSERT_TRUE(worker_->SendProgress(second->key(), kRunning));
  sent_ = 0;
  Append(second->key(), FakeWorker::Frame(LogStream::kOut, "again\n"));
  ASSERT_TRUE(stream->Read(&chunk));
  EXPECT_EQ(chunk.pieces(0).data(), "again\n");
  End(second->key());
  EXPECT_FALSE(stream->Read(&chunk));
}

TEST_P(LogsTest, AFollowerMayAskForTheAttemptThatItWaitsFor) {
  v1::JobSpec spec = Spec({"true"}, "w");
  spec.mutable_requirements()->set_slots(2);
  const std::int64_t first = Submit(spec);
  const auto holder = worker_->NextAssign();
  ASSERT_TRUE(holder);
  spec.set_request_id("w2");
  job_ = Submit(spec);  // finds no room
  v1::ReadLogsRequest request = Request();
  request.set_attempt(1);  // as the keepalive of a server that was restarted had said
  request.set_follow(true);
  Call call(client_);
  auto stream = logs_->Read(&call, request);
  ASSERT_EQ(holder->key().job(), first);
  End(holder->key());
  const auto assign = worker_->NextAssign();
  ASSERT_TRUE(assign);
  ASSERT_TRUE(worker_->SendProgress(assign->key(), kRunning));
  Append(assign->key(), FakeWorker::Frame(LogStream::kOut, "one\n"));
  v1::LogChunk chunk;
  ASSERT_TRUE(stream->Read(&chunk)) << stream->Finish().error_message();
  ASSERT_EQ(chunk.pieces_size(), 1);
  EXPECT_EQ(chunk.pieces(0).data(), "one\n");
  End(assign->key());
  EXPECT_FALSE(stream->Read(&chunk));
  EXPECT_TRUE(stream->Finish().ok());
  // The next one, which never came: the end, not a mistake.
  request.set_attempt(2);
  EXPECT_EQ(ReadAll(request), "");
  request.set_attempt(3);
  Call wrong(client_);
  auto none = logs_->Read(&wrong, request);
  EXPECT_FALSE(none->Read(&chunk));
  EXPECT_EQ(none->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

// More than may wait for the disk: reading pauses and goes on, on two threads at once.
TEST_P(LogsTest, AFloodIsTakenWholeAndInOrder) {
  const v1::AttemptKey key = StartJob("flood");
  std::string whole;
  constexpr int kMessages = 256;
  for (int i = 0; i < kMessages; ++i) {
    const std::string data = std::string(60'000, static_cast<char>('a' + i % 26)) + "\n";
    whole += data;
    const std::string frame = FakeWorker::Frame(LogStream::kOut, data);
    ASSERT_TRUE(worker_->SendLog(key, sent_, frame));
    sent_ += static_cast<std::int64_t>(frame.size());
  }
  std::int64_t acknowledged = 0;
  for (int i = 0; i < kMessages; ++i) {
    const auto ack = worker_->Next();
    ASSERT_TRUE(ack && ack->has_log_ack());
    EXPECT_GT(ack->log_ack().size(), acknowledged);
    acknowledged = ack->log_ack().size();
  }
  EXPECT_EQ(acknowledged, sent_);
  End(key);
  EXPECT_EQ(ReadAll(Request()), whole);
}

TEST_P(LogsTest, ResumesAtAnOffsetWithoutGapOrRepeat) {
  const v1::AttemptKey key = StartJob("r");
  for (int i = 0; i < 50; ++i) {
    Append(key, FakeWorker::Frame(LogStream::kOut, "line " + std::to_string(i) + "\n"));
  }
  End(key);
  const std::string whole = ReadAll(Request());
  v1::ReadLogsRequest request = Request();
  request.set_attempt(1);
  request.set_offset(
      static_cast<std::int64_t>(FakeWorker::Frame(LogStream::kOut, "line 0\n").size()) * 3);
  EXPECT_EQ(ReadAll(request), whole.substr(whole.find("line 3")));
  request.set_offset(sent_);
  EXPECT_EQ(ReadAll(request), "");
}

TEST_P(LogsTest, TailAndStreamsChooseWhatIsShown) {
  const v1::AttemptKey key = StartJob("t");
  for (int i = 0; i < 2000; ++i) {
    const LogStream stream = i % 2 == 0 ? LogStream::kOut : LogStream::kErr;
    ASSERT_TRUE(worker_->SendLog(key, sent_, FakeWorker::Frame(stream, std::to_string(i) + "\n")));
    sent_ += static_cast<std::int64_t>(FakeWorker::Frame(stream, std::to_string(i) + "\n").size());
  }
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(worker_->Next());
  End(key);
  v1::ReadLogsRequest request = Request();
  request.set_tail_lines(3);
  EXPECT_EQ(ReadAll(request), "1997\n1998\n1999\n");
  request.set_no_stderr(true);
  EXPECT_EQ(ReadAll(request), "1994\n1996\n1998\n");
  request.set_tail_lines(0);
  EXPECT_EQ(ReadAll(request), "");
  request.set_tail_lines(1'000'000);
  v1::ReadLogsRequest out_only = Request();
  out_only.set_no_stderr(true);
  EXPECT_EQ(ReadAll(request), ReadAll(out_only));
}

TEST_P(LogsTest, AnEndBeforeItsLogIsAskedForTheRest) {
  const v1::AttemptKey key = StartJob("g");
  const std::string frame = FakeWorker::Frame(LogStream::kOut, "all of it\n");
  ASSERT_TRUE(worker_->SendEnded(key, 0, static_cast<std::int64_t>(frame.size())));
  auto ack = worker_->Next();
  ASSERT_TRUE(ack && ack->has_end_ack());
  ASSERT_TRUE(ack->end_ack().has_resend_log_from());
  EXPECT_EQ(ack->end_ack().resend_log_from(), 0);
  // The report that it runs may be stored after this answer, an end would have been stored for good.
  EXPECT_TRUE(
      Eventually([&] { return Get(job_).job().state() == static_cast<int>(TaskState::kRunning); }));
  Append(key, frame);
  End(key);
  EXPECT_EQ(ReadAll(Request()), "all of it\n");
}

TEST_P(LogsTest, GapsAreAnsweredWithWhatIsThereAndStrangersAreNotTaken) {
  v1::AttemptKey key = StartJob("s");
  Append(key, FakeWorker::Frame(LogStream::kOut, "a\n"));
  ASSERT_TRUE(worker_->SendLog(key, sent_ + 100, "x"));
  auto ack = worker_->Next();
  ASSERT_TRUE(ack && ack->has_log_ack());
  EXPECT_TRUE(ack->log_ack().current());
  EXPECT_EQ(ack->log_ack().size(), sent_);
  key.set_worker_epoch(key.worker_epoch() + 1);
  ASSERT_TRUE(worker_->SendLog(key, sent_, "x"));
  ack = worker_->Next();
  ASSERT_TRUE(ack && ack->has_log_ack());
  EXPECT_FALSE(ack->log_ack().current());
}

TEST_P(LogsTest, UnknownThingsAreNotFound) {
  StartJob("u");
  const auto code = [&](std::int64_t job, std::int64_t task, int attempt) {
    v1::ReadLogsRequest request;
    request.set_job(job);
    request.set_task(task);
    request.set_attempt(attempt);
    Call call(client_);
    auto stream = logs_->Read(&call, request);
    v1::LogChunk chunk;
    while (stream->Read(&chunk)) {
    }
    return stream->Finish().error_code();
  };
  EXPECT_EQ(code(99, 0, 0), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code(job_, 1, 0), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code(job_, 0, 5), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code(job_, 0, 1), grpc::StatusCode::OK);
}

TEST_P(LogsTest, AReaderThatDoesNotReadHoldsUpNobody) {
  const v1::AttemptKey key = StartJob("z");
  Call slow_call(client_);
  v1::ReadLogsRequest follow = Request();
  follow.set_follow(true);
  auto slow = logs_->Read(&slow_call, follow);
  std::string frames;
  for (int i = 0; i < 8; ++i)
    frames += FakeWorker::Frame(LogStream::kOut, std::string(32 * 1024, 'x'));
  for (int i = 0; i < 64; ++i) Append(key, frames);  // 16 MiB, far over any window
  End(key);
  EXPECT_EQ(ReadAll(Request()).size(), 64U * 8 * 32 * 1024);
  std::size_t late = 0;
  v1::LogChunk chunk;
  while (slow->Read(&chunk)) {
    for (const auto& piece : chunk.pieces()) late += piece.data().size();
  }
  EXPECT_TRUE(slow->Finish().ok());
  EXPECT_EQ(late, 64U * 8 * 32 * 1024);
}

std::string Tail(const std::vector<std::string>& blocks, std::int64_t lines) {
  rpc::LogTail tail;
  std::int64_t offset = 0;
  for (const std::string& block : blocks) {
    FrameView frame;
    frame.data = block;
    tail.Add(offset, {frame});
    offset += static_cast<std::int64_t>(block.size());
  }
  const rpc::LogTail::Start start = tail.Find(lines, offset);
  std::string rest;
  offset = 0;
  std::int64_t skip = start.skip_newlines;
  for (const std::string& block : blocks) {
    if (offset >= start.offset) rest += rpc::SkipLines(block, &skip);
    offset += static_cast<std::int64_t>(block.size());
  }
  return rest;
}

TEST(LogTailTest, FindsLinesAcrossBlocks) {
  EXPECT_EQ(Tail({"a\nb\n", "c\nd\n"}, 1), "d\n");
  EXPECT_EQ(Tail({"a\nb\n", "c\nd\n"}, 3), "b\nc\nd\n");
  EXPECT_EQ(Tail({"a\nb\n", "c\nd\n"}, 9), "a\nb\nc\nd\n");
  EXPECT_EQ(Tail({"a\nb\nc", "d\ne"}, 1), "e");
  EXPECT_EQ(Tail({"a\nb\nc", "d\ne"}, 2), "cd\ne");
  EXPECT_EQ(Tail({"a\nb\n"}, 0), "");
  EXPECT_EQ(Tail({}, 3), "");
  EXPECT_EQ(Tail({"no newline"}, 2), "no newline");
  EXPECT_EQ(Tail({"\n\n\n"}, 2), "\n\n");
}

}  // namespace
}  // namespace gpulayer::testing
