// The values of jobs' secrets, apart from the database: a file for each job that has any, sealed
// with AES-256-GCM under a key of this server. A job's record holds the reference alone, so neither
// a copy of the database nor what is shown of a job says more than names.
//
// Threads:   any. One of its own erases.
// Blocking:  Put writes and syncs, not for gRPC threads. Get reads one small file. Erase does not
//            wait.
// Errors:    DATA_LOSS: sealed under another key, or changed. None holds a value.
// A file that no job names is of a submit that was refused or cut off: KeepOnly() removes it when the
// server starts.
#ifndef GPULAYER_SERVER_SECURITY_SECRET_STORE_H_
#define GPULAYER_SERVER_SECURITY_SECRET_STORE_H_

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/mutex.h"
#include "base/queue.h"
#include "base/status.h"
#include "model/job.h"

namespace gpulayer::security {

class SecretStore {
 public:
  // `dir`: of the sealed files, made if it is not there. `key_file`: made with the first Put; whoever
  // copies one of the two has no secret.
  static Result<std::unique_ptr<SecretStore>> Open(std::string dir, std::string key_file,
                                                   Durability durability);
  ~SecretStore();  // what Erase() was given is gone then
  SecretStore(const SecretStore&) = delete;
  SecretStore& operator=(const SecretStore&) = delete;

  // A new reference, drawn at random: fit for a file name, and no part of anything else. Durable when
  // it returns.
  Result<std::string> Put(const std::vector<EnvVar>& values);
  Result<std::vector<EnvVar>> Get(const std::string& reference) const;  // NOT_FOUND: erased
  // Overwritten and removed soon; of one that is not there, or empty, nothing happens.
  void Erase(const std::string& reference);
  // Erases all others. REQUIRES: no Put() meanwhile.
  void KeepOnly(const std::set<std::string>& references);

 private:
  SecretStore(std::string dir, std::string key_file, Durability durability);

  std::string PathOf(const std::string& reference) const;
  Result<std::string> LoadKey() const;  // NOT_FOUND
  Result<std::string> LoadOrMakeKey();
  void EraseNow(const std::string& reference) const;
  void Run();

  const std::string dir_;
  const std::string key_file_;
  const Durability durability_;
  Mutex key_mutex_;  // while it is made
  BoundedQueue<std::string> erase_;
  std::thread eraser_;  // last: it uses all of the above
};

}  // namespace gpulayer::security

#endif  // GPULAYER_SERVER_SECURITY_SECRET_STORE_H_
