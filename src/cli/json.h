// The documents of --json: names of fields are a contract. Strict UTF-8; bytes that are not text
// stand as {"$bytes": "<base64>"}.
#ifndef GPULAYER_CLI_JSON_H_
#define GPULAYER_CLI_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpulayer/client.h"
#include "gpulayer/doctor.h"
#include "gpulayer/host.h"

namespace gpulayer::cli {

// Each returns one document with a newline at its end.
std::string JobJson(const JobInfo& job);  // with tasks
std::string JobListJson(const JobPage& page);
std::string ExplanationJson(const Explanation& explanation);
std::string WorkerListJson(const std::vector<WorkerInfo>& workers);
std::string WorkerJson(const WorkerInfo& worker);
std::string DoctorJson(const std::vector<Finding>& findings);
std::string StatusJson(const ServerInfo& server, const std::string& target);
std::string TokenListJson(const std::vector<TokenInfo>& tokens);
std::string NewTokenJson(const NewToken& token);
std::string TargetListJson(const std::vector<TargetInfo>& targets);
std::string ResourcesJson(const WorkerInfo& offered);  // of `resources detect`
std::string VersionJson(const std::string& version);
struct SubmittedDocument {
  std::int64_t job = 0;
  bool existed = false;
  std::vector<std::string> warnings;
};
std::string SubmittedJson(const SubmittedDocument& submitted);
std::string SourceJson(const SourceListing& listing);
std::string CancelJson(const CancelSummary& summary);
std::string UpJson(const UpReport& report);
std::string DownJson(const DownReport& report);
std::string JoinJson(const JoinReport& report);
std::string TargetJson(const TargetInfo& target);
std::string LogoutJson(const std::string& name);
std::string RevokedJson(const std::string& id);

struct ResultDocument {
  JobInfo job;
  std::optional<DownloadReport> outputs;
};
std::string ResultJson(const ResultDocument& result);
std::string ResultListJson(const std::vector<JobResult>& results);

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_JSON_H_
