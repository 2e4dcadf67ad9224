// A server with workers and clients for a test: the same scenario runs inside this process and with the real
// programs.
//
// Threads:   one at a time.
// Blocking:  each call returns when what it says is so (a worker online, a server answering), or fails within
//            30 s.
// Ownership: the destructor ends every part and every job and removes the folders.
#ifndef GPULAYER_TESTS_SUPPORT_CLUSTER_H_
#define GPULAYER_TESTS_SUPPORT_CLUSTER_H_

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "gpulayer/client.h"
#include "support/temp_dir.h"

namespace gpulayer::testing {

// A test means the client's view of these words; the model has its own of the same names.
using namespace gpulayer::api;  // NOLINT
using api::AttemptState;
using api::CauseKind;
using api::Explanation;
using api::JobSpec;
using api::LogStream;
using api::Outcome;
using api::WorkerState;

struct ClusterWorker {
  std::string name;
  int slots = 2;
  std::string zone;
  std::map<std::string, std::string> labels;
};

class Cluster {
 public:
  enum class Kind { kInProcess, kRealPrograms };
  static Result<std::unique_ptr<Cluster>> Start(Kind kind);
  virtual ~Cluster() = default;

  virtual Status AddWorker(const ClusterWorker& worker) = 0;
  // The worker's daemon goes without a goodbye (real programs: SIGKILL); its jobs go on.
  virtual Status KillWorker(const std::string& name) = 0;
  // The same worker again, on the same data directory.
  virtual Status RestartWorker(const std::string& name) = 0;
  // In-process: an orderly stop; real programs: SIGKILL. Then a new server on the same data directory.
  virtual Status RestartServer() = 0;

  const std::string& data_dir() const { return data_dir_; }
  // A client that knows no login but this server.
  Result<Client> Connect() const;
  // Until `name` has the state, as the server sees it.
  Status WaitForWorker(const std::string& name, api::WorkerState state) const;
  // A folder of the test's own, removed with the cluster.
  std::string Scratch(std::string_view name) const { return dir_ / name; }

 protected:
  Cluster() : data_dir_(dir_ / "data") {}
  TempDir dir_;
  std::string data_dir_;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_CLUSTER_H_
