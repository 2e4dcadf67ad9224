// One run of a verb that waits: which signals came, and what they mean for a job.
#ifndef GPULAYER_CLI_SESSION_H_
#define GPULAYER_CLI_SESSION_H_

#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "gpulayer/client.h"

namespace gpulayer::cli {

// "job 7 goes on; follow it with ...", or that it ends with us and its private server. `again`: the verb
// that follows it, as "logs -f 7"; empty: attach.
std::string AfterUs(std::int64_t job, bool private_server, const std::string& again = "");

// Ctrl-C before there is a job: stops what is being done. With a job that is ours: cancels it; a
// later one leaves while the cancel stands. Signals within half a second of the first are the same
// press: `timeout -s INT` signals the process and its group. With a job that is only looked at:
// leaves. SIGTERM and SIGHUP: leave, the job goes on unless its server is a private one. A signal
// after the one that made us leave ends the process at once, wherever the main thread is.
//
// Threads:   made before any other thread of the process, so that all inherit the blocked signals;
//            methods from the main thread. A thread of its own waits for signals.
// Blocking:  the destructor waits for a cancel that is on its way; leaving, for at most 3 s. Another
//            3 s after a second Ctrl-C the process ends, whatever its main thread is at.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // For Client::Connect: leaving ends its calls; what it notices is printed.
  ClientOptions Options(const std::string& target) const;
  const Interrupt& leave() const { return leave_; }

  // Names another verb than attach when we leave, as AfterUs().
  void FollowsWith(const std::string& again);
  // From now on Ctrl-C cancels this job.
  void Owns(const Client& client, std::int64_t job);
  void Disowns();  // it is over

  // The signal that made us leave; 0: none did.
  int left() const;
  // Says what becomes of the job and returns the exit code. REQUIRES: left() != 0.
  int Leave(std::int64_t job) const;

 private:
  void Run();
  int NextSignal() const;
  void Take(int signal);
  void TakeTimeout();
  void CancelJob(Client client, std::int64_t job);

  Interrupt leave_;
  mutable std::mutex mutex_;
  int left_ = 0;
  int leaving_ = 0;  // asked to, perhaps not done yet: left_ is next
  bool cancelling_ = false;
  std::chrono::steady_clock::time_point pressed_;                  // the last signal that counted
  std::optional<std::chrono::steady_clock::time_point> deadline_;  // of what is waited for now
  bool answered_ = false;                                          // the cancel's call is over
  bool cancelled_ = false;
  bool too_late_ = false;  // its program was over
  bool stop_ = false;
  bool private_ = false;  // the job's server ends with us
  std::optional<Client> client_;
  std::int64_t job_ = 0;
  std::string again_;
  std::thread waiter_;
  std::thread canceller_;
};

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_SESSION_H_
