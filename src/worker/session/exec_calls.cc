#include "worker/session/exec_calls.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "base/fs.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gpulayer/v1/exec.grpc.pb.h"

namespace gpulayer::worker {
namespace {

namespace pb = ::gpulayer::v1;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMostCalls = 16;
// That are only to be told that there are too many; who comes then hears it from the server.
constexpr std::size_t kMostRefusals = 16;
constexpr std::size_t kChunk = std::size_t{64} << 10;
constexpr auto kBeginPatience = std::chrono::seconds(10);
// For the server to end the call after the last word.
constexpr auto kEndPatience = std::chrono::seconds(5);
// For more output once the command is over: somebody else may hold its pipes.
constexpr auto kDrainPatience = std::chrono::seconds(1);
constexpr int kLateChunks = 64;
constexpr std::int32_t kOurFault = 125;
constexpr char kEndOfInput = 4;  // VEOF of a fresh terminal

pb::ExecOutput Ended(const std::string& error, std::int32_t exit_code) {
  pb::ExecOutput out;
  out.mutable_ended()->set_exit_code(exit_code);
  out.mutable_ended()->set_error(error);
  return out;
}

pb::ExecOutput NotStarted(const JoinReport& report, const std::string& program) {
  const std::string why = std::strerror(report.error);
  if (report.failed_step == StartStep::kExec && report.exit_code) {
    return Ended((*report.exit_code == 127 ? "program not found: " : "cannot be executed: ") +
                     program + ": " + why,
                 *report.exit_code);
  }
  if (report.failed_step == StartStep::kCwd) {
    return Ended("cannot enter the work folder: " + why, kOurFault);
  }
  return Ended("cannot start: " + why, kOurFault);
}

void Resize(int terminal, const pb::TerminalSize& size) {
  winsize to{};
  to.ws_row = static_cast<unsigned short>(std::min<std::uint32_t>(size.rows(), 9999));
  to.ws_col = static_cast<unsigned short>(std::min<std::uint32_t>(size.columns(), 9999));
  ioctl(terminal, TIOCSWINSZ, &to);
}

// Our ends of the command's input and output, and for a while the command's own.
struct Ends {
  UniqueFd in, out, err;  // non-blocking; of a terminal `in` alone, for both ways
  UniqueFd their_in, their_out, their_err;
  bool terminal = false;

  int OutFd() const { return terminal ? in.get() : out.get(); }
  JoinFds Theirs() const {
    if (terminal) return {their_in.get(), their_in.get(), their_in.get()};
    return {their_in.get(), their_out.get(), their_err.get()};
  }
  void CloseTheirs() {
    their_in.Reset();
    their_out.Reset();
    their_err.Reset();
  }
};

Status OpenTerminal(const pb::TerminalSize& size, Ends& ends) {
  ends.terminal = true;
  ends.in = UniqueFd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  char name[64];
  if (!ends.in.valid() || grantpt(ends.in.get()) != 0 || unlockpt(ends.in.get()) != 0 ||
      ptsname_r(ends.in.get(), name, sizeof(name)) != 0) {
    return ErrnoStatus("open a terminal", errno);
  }
  Resize(ends.in.get(), size);
  ends.their_in = UniqueFd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!ends.their_in.valid()) return ErrnoStatus("open a terminal", errno);
  return OkStatus();
}

Status OpenPipes(Ends& ends) {
  const auto make = [](UniqueFd& read, UniqueFd& write, UniqueFd& ours) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus("make a pipe", errno);
    read = UniqueFd(fds[0]);
    write = UniqueFd(fds[1]);
    fcntl(ours.get(), F_SETFL, O_NONBLOCK);
    return OkStatus();
  };
  GPULAYER_RETURN_IF_ERROR(make(ends.their_in, ends.in, ends.in));
  GPULAYER_RETURN_IF_ERROR(make(ends.out, ends.their_out, ends.out));
  return make(ends.err, ends.their_err, ends.err);
}

// One call, from its thread. gRPC's reactions note what happened and wake the thread, which does
// everything else. Lives until OnDone has been.
class Call : public grpc::ClientBidiReactor<pb::ExecOutput, pb::ExecInput> {
 public:
  Call(const ServerLink& link, ExecClient& exec, AttemptId id, std::string ticket,
       std::string refusal)
      : link_(link),
        exec_(exec),
        id_(std::move(id)),
        ticket_(std::move(ticket)),
        refusal_(std::move(refusal)),
        stub_(pb::Exec::NewStub(link.channel)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        gone_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  bool ok() const { return wake_.valid() && gone_.valid(); }
  bool finished() const { return finished_.load(); }  // Run() has nothing more to do
  void Run();

  // Hangs up. From any thread.
  void Cancel() {
    context_.TryCancel();
    MutexLock lock(mutex_);
    NoteOver();
  }

 private:
  void OnReadDone(bool ok) override {
    MutexLock lock(mutex_);
    reading_ = false;
    arrived_ = ok;
    if (!ok) NoteOver();
    Wake();
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) NoteOver();
    Wake();
  }
  void OnDone(const grpc::Status& status) override {
    MutexLock lock(mutex_);
    status_ = status;
    done_ = true;
    Wake();  // with the lock held: the thread may end this object next
  }

  static void Set(const UniqueFd& event) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(event.get(), &one, sizeof(one));
  }
  void Wake() { Set(wake_); }
  void NoteOver() GPULAYER_REQUIRES(mutex_) {
    over_ = true;
    Set(gone_);
    Wake();
  }

  // For the thread alone.
  pb::ExecOutput RunCommand();
  pb::ExecOutput Pump();
  bool TakeReport(pb::ExecOutput& last);
  void TakeInput();
  void PushInput();
  void CloseInput();
  bool input_taken() const { return input_at_ == input_.size() || input_closed_; }
  bool ReadOutput(UniqueFd& from, bool is_err);
  void Read();
  void Write(pb::ExecOutput message);
  // Until something happened, or `deadline`.
  void Await(steady_clock::time_point deadline);
  template <typename Condition>
  bool AwaitUntil(Duration patience, Condition condition);
  bool over() {
    MutexLock lock(mutex_);
    return over_;
  }
  bool idle() {
    MutexLock lock(mutex_);
    return !writing_;
  }
  bool arrived() {
    MutexLock lock(mutex_);
    return arrived_;
  }
  bool done() {
    MutexLock lock(mutex_);
    return done_;
  }

  const ServerLink link_;
  ExecClient& exec_;
  const AttemptId id_;
  const std::string ticket_;
  const std::string refusal_;  // not empty: all that there is to say
  const std::unique_ptr<pb::Exec::Stub> stub_;
  const UniqueFd wake_;  // something happened
  const UniqueFd gone_;  // over_
  grpc::ClientContext context_;
  pb::ExecInput incoming_;   // of the read under way, then the thread's
  pb::ExecOutput outgoing_;  // of the write under way

  // Of the thread.
  std::string program_;
  bool started_ = false;
  Ends ends_;
  UniqueFd keeper_;
  std::string input_;  // not yet taken by the command, from input_at_ on
  std::size_t input_at_ = 0;
  bool end_input_ = false;     // after that
  bool input_closed_ = false;  // nobody takes any more
  bool out_open_ = true;
  bool err_open_ = true;
  bool err_first_ = false;  // in turns, so that neither holds up the other

  std::atomic<bool> finished_{false};

  Mutex mutex_;
  bool reading_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool arrived_ GPULAYER_GUARDED_BY(mutex_) = false;  // incoming_ is to be taken
  bool writing_ GPULAYER_GUARDED_BY(mutex_) = false;
  bool over_ GPULAYER_GUARDED_BY(mutex_) = false;  // nobody is at the other end
  bool done_ GPULAYER_GUARDED_BY(mutex_) = false;
  grpc::Status status_ GPULAYER_GUARDED_BY(mutex_);
};

void Call::Read() {
  {
    MutexLock lock(mutex_);
    arrived_ = false;
    if (over_ || reading_) return;
    reading_ = true;
  }
  StartRead(&incoming_);
}

// REQUIRES: idle().
void Call::Write(pb::ExecOutput message) {
  outgoing_ = std::move(message);
  {
    MutexLock lock(mutex_);
    if (over_) return;
    writing_ = true;
  }
  StartWrite(&outgoing_);
}

int PollTimeout(steady_clock::time_point deadline) {
  if (deadline == steady_clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

void Drop(const UniqueFd& event) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(event.get(), &count, sizeof(count));
}

void Call::Await(steady_clock::time_point deadline) {
  pollfd wait = {wake_.get(), POLLIN, 0};
  poll(&wait, 1, PollTimeout(deadline));
  Drop(wake_);
}

template <typename Condition>
bool Call::AwaitUntil(Duration patience, Condition condition) {
  const auto deadline = patience == Duration::max() ? steady_clock::time_point::max()
                                                    : steady_clock::now() + patience;
  while (!condition()) {
    if (steady_clock::now() >= deadline) return false;
    Await(deadline);
  }
  return true;
}

void Call::Run() {
  // A command that closes its input must not end the worker, nor the test that runs one.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);

  Authorise(link_, context_);
  stub_->async()->Serve(&context_, this);
  AddHold();  // operations begin on this thread
  StartCall();
  pb::ExecOutput ticket;
  ticket.set_ticket(ticket_);
  Write(std::move(ticket));
  Read();
  pb::ExecOutput last = refusal_.empty() ? RunCommand() : Ended(refusal_, kOurFault);
  keeper_.Reset();  // whatever is left of the command ends
  ends_ = Ends();
  AwaitUntil(Duration::max(), [this] { return idle() || over(); });
  Write(std::move(last));
  AwaitUntil(Duration::max(), [this] { return idle() || over(); });
  if (!over()) StartWritesDone();
  AwaitUntil(kEndPatience, [this] {
    if (arrived()) Read();  // what was typed behind the end
    return over();
  });
  context_.TryCancel();
  RemoveHold();
  AwaitUntil(Duration::max(), [this] { return done(); });
  finished_.store(true);
}

pb::ExecOutput Call::RunCommand() {
  AwaitUntil(kBeginPatience, [this] { return arrived() || over(); });
  if (over() || !arrived()) return Ended("the server did not say what to run", kOurFault);
  if (!incoming_.has_begin()) return Ended("the server did not say what to run first", kOurFault);
  const pb::ExecInput::Begin begin = incoming_.begin();
  Read();
  JoinOrder order;
  order.argv.assign(begin.command().begin(), begin.command().end());
  order.terminal = begin.has_terminal();
  if (order.terminal) order.term = begin.term();
  if (!order.argv.empty()) program_ = order.argv.front();
  const Status opened = order.terminal ? OpenTerminal(begin.terminal(), ends_) : OpenPipes(ends_);
  if (!opened.ok()) return Ended(opened.message(), kOurFault);
  Result<UniqueFd> keeper = exec_.Join(id_, order, ends_.Theirs(), gone_.get());
  ends_.CloseTheirs();
  if (!keeper.ok()) return Ended(keeper.status().message(), kOurFault);
  keeper_ = *std::move(keeper);
  return Pump();
}

// What there is to say at the end, when that is.
pb::ExecOutput Call::Pump() {
  out_open_ = true;
  err_open_ = !ends_.terminal;
  std::optional<pb::ExecOutput> last;
  steady_clock::time_point drain_until = steady_clock::time_point::max();
  int late_chunks = 0;
  for (;;) {
    if (over()) return Ended("hung up", kOurFault);
    const bool may_write = idle();
    PushInput();
    while (input_taken() && arrived()) {
      TakeInput();
      PushInput();
    }
    if (last && ((!out_open_ && !err_open_) || late_chunks > kLateChunks)) return *last;
    const bool wants_in = !input_taken();
    pollfd fds[] = {{wake_.get(), POLLIN, 0},
                    {keeper_.valid() ? keeper_.get() : -1, POLLIN, 0},
                    {wants_in ? ends_.in.get() : -1, POLLOUT, 0},
                    {may_write && out_open_ ? ends_.OutFd() : -1, POLLIN, 0},
                    {may_write && err_open_ ? ends_.err.get() : -1, POLLIN, 0}};
    poll(fds, 5, may_write ? PollTimeout(drain_until) : -1);
    Drop(wake_);
    if (fds[1].revents != 0) {
      pb::ExecOutput report;
      if (TakeReport(report)) {
        last = std::move(report);
        keeper_.Reset();
        drain_until = steady_clock::now() + kDrainPatience;
      }
    }
    const bool out = fds[3].revents != 0;
    const bool err = fds[4].revents != 0;
    const bool took_err = err && (err_first_ || !out);
    if (!out && !err) {
      if (last && may_write && steady_clock::now() >= drain_until) return *last;
      continue;
    }
    err_first_ = !took_err;
    UniqueFd& from = took_err ? ends_.err : ends_.terminal ? ends_.in : ends_.out;
    if (!ReadOutput(from, took_err)) {
      (took_err ? err_open_ : out_open_) = false;
      if (ends_.terminal) CloseInput();
    } else if (last) {
      // The client's pace is not counted, only silence.
      ++late_chunks;
      drain_until = steady_clock::now() + kDrainPatience;
    }
  }
}

// False: it runs.
bool Call::TakeReport(pb::ExecOutput& last) {
  const Result<JoinReport> report = ReadJoinReport(keeper_);
  if (!report.ok()) {
    // Whoever refuses hangs up.
    last = Ended(started_ ? "how it ended is not known: " + report.status().message()
                          : "the task is not running any more",
                 kOurFault);
    return true;
  }
  switch (report->kind) {
    case JoinReport::Kind::kStarted: started_ = true; return false;
    case JoinReport::Kind::kNotStarted: last = NotStarted(*report, program_); return true;
    case JoinReport::Kind::kEnded: break;
  }
  if (report->signal) {
    last.mutable_ended()->set_signal(*report->signal);
  } else {
    last.mutable_ended()->set_exit_code(report->exit_code.value_or(kOurFault));
  }
  return true;
}

// The message that came. REQUIRES: the command has taken the one before.
void Call::TakeInput() {
  switch (incoming_.kind_case()) {
    case pb::ExecInput::kData:
      if (end_input_) break;
      input_ = std::move(*incoming_.mutable_data());
      input_at_ = 0;
      break;
    case pb::ExecInput::kEnd:
      if (end_input_) break;
      end_input_ = true;
      if (ends_.terminal) {
        input_.assign(1, kEndOfInput);
        input_at_ = 0;
      }
      break;
    case pb::ExecInput::kResize:
      if (ends_.terminal) Resize(ends_.in.get(), incoming_.resize());
      break;
    default: break;
  }
  Read();
}

void Call::CloseInput() {
  input_closed_ = true;
  input_.clear();
  input_at_ = 0;
  if (!ends_.terminal) ends_.in.Reset();
}

void Call::PushInput() {
  while (input_at_ < input_.size() && !input_closed_) {
    const ssize_t n = write(ends_.in.get(), input_.data() + input_at_, input_.size() - input_at_);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || (n < 0 && errno == EAGAIN)) return;
    if (n < 0) return CloseInput();
    input_at_ += static_cast<std::size_t>(n);
  }
  if (end_input_ && !ends_.terminal && !input_closed_) CloseInput();
}

// False: its end. A terminal's is an error.
bool Call::ReadOutput(UniqueFd& from, bool is_err) {
  std::string chunk(kChunk, '\0');
  const ssize_t n = read(from.get(), chunk.data(), chunk.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (n <= 0) return false;
  chunk.resize(static_cast<std::size_t>(n));
  pb::ExecOutput message;
  *(is_err ? message.mutable_err() : message.mutable_out()) = std::move(chunk);
  Write(std::move(message));
  return true;
}

}  // namespace

class ExecCalls::Impl {
 public:
  Impl(ServerLink link, ExecClient& exec) : link_(std::move(link)), exec_(exec) {}

  ~Impl() {
    std::list<Entry> all;
    {
      MutexLock lock(mutex_);
      closing_ = true;
      all.swap(calls_);
    }
    for (Entry& entry : all) entry.call->Cancel();
    for (Entry& entry : all) entry.thread.join();
  }

  void Open(const AttemptId& id, const std::string& ticket, bool runs) {
    for (Entry& entry : TakeFinished()) entry.thread.join();
    MutexLock lock(mutex_);
    if (closing_) return;
    const auto commands = static_cast<std::size_t>(
        std::count_if(calls_.begin(), calls_.end(), [](const Entry& e) { return !e.refused; }));
    std::string refusal;
    if (!runs) {
      refusal = "the task is not running any more";
    } else if (commands >= kMostCalls) {
      refusal = "this worker runs " + std::to_string(kMostCalls) + " such commands already";
    }
    Entry entry;
    entry.refused = !refusal.empty();
    if (calls_.size() < kMostCalls + kMostRefusals) {
      entry.call = std::make_unique<Call>(link_, exec_, id, ticket, std::move(refusal));
      if (entry.call->ok()) entry.thread = TryThread([call = entry.call.get()] { call->Run(); });
    }
    if (entry.thread.joinable()) {
      calls_.push_back(std::move(entry));
    } else {
      LogWarning("exec: there are too many commands, threads or descriptors; one is not answered");
    }
  }

 private:
  struct Entry {
    std::unique_ptr<Call> call;
    std::thread thread;
    bool refused = false;
  };

  std::list<Entry> TakeFinished() {
    std::list<Entry> finished;
    MutexLock lock(mutex_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      const auto next = std::next(it);
      if (it->call->finished()) finished.splice(finished.end(), calls_, it);
      it = next;
    }
    return finished;
  }

  const ServerLink link_;
  ExecClient& exec_;
  Mutex mutex_;
  std::list<Entry> calls_ GPULAYER_GUARDED_BY(mutex_);
  bool closing_ GPULAYER_GUARDED_BY(mutex_) = false;
};

ExecCalls::ExecCalls(ServerLink link, ExecClient& exec)
    : impl_(std::make_unique<Impl>(std::move(link), exec)) {}
ExecCalls::~ExecCalls() = default;
void ExecCalls::Open(const AttemptId& id, const std::string& ticket, bool runs) {
  impl_->Open(id, ticket, runs);
}

}  // namespace gpulayer::worker
