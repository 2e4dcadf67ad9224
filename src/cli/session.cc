#include "cli/session.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "cli/args.h"
#include "cli/print.h"
#include "cli/raw_terminal.h"
#include "cli/thread.h"

namespace gpulayer::cli {
namespace {

constexpr int kWake = SIGUSR1;  // ends the waiting thread; only ever sent by ourselves
constexpr auto kOnePress = std::chrono::milliseconds(500);
constexpr auto kCancelPatience = std::chrono::seconds(3);
constexpr auto kLeavePatience = std::chrono::seconds(3);

sigset_t OurSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, kWake}) ::sigaddset(&set, signal);
  return set;
}

}  // namespace

std::string AfterUs(std::int64_t job, bool private_server, const std::string& again) {
  const std::string name = "job " + std::to_string(job);
  if (private_server) return name + " ends too: its server was a private one of this command";
  return name + " goes on; follow it with `gpulayer " +
         (again.empty() ? "job attach " + std::to_string(job) : again) + "`";
}

Session::Session() {
  const sigset_t set = OurSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a reader that went away is an error of write()
  waiter_ = TryThread([this] { Run(); });
  // Nobody would hear them: they end the program, as they do any other.
  if (!waiter_.joinable()) ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Session::~Session() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  if (waiter_.joinable()) {
    ::pthread_kill(waiter_.native_handle(), kWake);
    waiter_.join();
  }
  if (canceller_.joinable()) canceller_.join();
}

ClientOptions Session::Options(const std::string& target) const {
  ClientOptions options;
  options.target = target;
  options.interrupt = leave_;
  options.on_notice = PrintNote;
  return options;
}

void Session::FollowsWith(const std::string& again) {
  const std::lock_guard<std::mutex> lock(mutex_);
  again_ = again;
}

void Session::Owns(const Client& client, std::int64_t job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  client_ = client;
  job_ = job;
  private_ = client.target() == "local";
}

void Session::Disowns() {
  std::optional<Client> gone;  // destroyed without the lock: with a local target that takes a while
  const std::lock_guard<std::mutex> lock(mutex_);
  gone.swap(client_);
}

int Session::left() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return left_;
}

int Session::Leave(std::int64_t job) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string name = "job " + std::to_string(job);
  const std::string attach = "`gpulayer job attach " + std::to_string(job) + "`";
  if (private_ || too_late_) {
    PrintNote(AfterUs(job, private_));
  } else if (cancelled_) {
    PrintNote(name + " is being cancelled; see its end with " + attach);
  } else if (cancelling_) {
    PrintNote("the server has not confirmed the cancel of " + name + "; look with " + attach);
  } else {
    PrintNote(AfterUs(job, false, again_));
  }
  return 128 + left_;
}

void Session::Run() {
  for (;;) {
    const int signal = NextSignal();
    if (signal == kWake) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stop_) return;
    } else if (signal != 0) {
      Take(signal);
    }
    TakeTimeout();
  }
}

// 0: none came before the deadline.
int Session::NextSignal() const {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    deadline = deadline_;
  }
  const sigset_t set = OurSignals();
  if (!deadline) {
    int signal = 0;
    return ::sigwait(&set, &signal) == 0 ? signal : 0;
  }
  const auto left = std::max(*deadline - std::chrono::steady_clock::now(),
                             std::chrono::steady_clock::duration::zero());
  const auto nanos = std::chrono::ceil<std::chrono::nanoseconds>(left).count();
  const timespec wait{nanos / 1'000'000'000, nanos % 1'000'000'000};
  return std::max(0, ::sigtimedwait(&set, nullptr, &wait));
}

void Session::Take(int signal) {
  std::optional<Client> client;
  std::int64_t job = 0;
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool same_press = now - pressed_ < kOnePress;
    if (leaving_ != 0) {
      if (signal == leaving_ && same_press) return;
      RawTerminal::Restore();
      ::_exit(128 + signal);
    }
    if (signal == SIGINT && cancelling_ && same_press) return;
    pressed_ = now;
    if (signal == SIGINT && client_ && !cancelling_) {
      cancelling_ = true;
      client = client_;
      job = job_;
    } else {
      leaving_ = signal;
      // Leaving ends the client's calls: the cancel that was asked for is one of them, and comes
      // first.
      deadline_ = now;
      if (cancelling_ && !answered_) *deadline_ += kCancelPatience;
    }
  }
  if (!client) return;
  PrintNote("cancelling job " + std::to_string(job) + " (Ctrl-C again leaves)");
  // Elsewhere: this thread has to hear the second Ctrl-C.
  canceller_ = TryThread([this, client = *client, job] { CancelJob(client, job); });
  if (!canceller_.joinable()) CancelJob(*std::move(client), job);
}

void Session::TakeTimeout() {
  std::optional<std::int64_t> stuck;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (leaving_ == 0 || !deadline_ || (now < *deadline_ && !(left_ == 0 && answered_))) return;
    deadline_.reset();
    if (left_ != 0) {
      stuck = job_;
    } else {
      left_ = leaving_;
      // A private server takes its time to end.
      if (cancelling_ && !private_) deadline_ = now + kLeavePatience;
    }
  }
  if (stuck) ::_exit(Leave(*stuck));
  leave_.Throw();
}

void Session::CancelJob(Client client, std::int64_t job) {
  const Result<CancelSummary> done = client.Cancel({{job, std::nullopt}});
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answered_ = true;
    cancelled_ = done.ok();
    too_late_ = done.ok() && done->cancelled == 0 && done->finishing > 0;
    if (!done.ok() && left_ == 0) PrintError(done.status());
    if (too_late_ && left_ == 0) {
      PrintNote("job " + std::to_string(job) + ": its program is over; its outputs travel");
    }
  }
  ::kill(::getpid(), kWake);  // who leaves has waited for this; that thread may be gone by now
}

}  // namespace gpulayer::cli
