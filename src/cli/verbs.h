// What can be typed, by group of verbs. A new option goes where its verb is.
#ifndef GPULAYER_CLI_VERBS_H_
#define GPULAYER_CLI_VERBS_H_

#include <string>

#include "cli/args.h"
#include "cli/parser.h"

namespace gpulayer::cli {

void AddHostVerbs(Parser& parser);    // host_verbs.cc: up, down, join
void AddLoginVerbs(Parser& parser);   // access_verbs.cc: login, logout, target
void AddSubmitVerbs(Parser& parser);  // submit_verbs.cc: submit, run
void AddJobVerbs(Parser& parser);     // job_verbs.cc: job, ps, logs, cancel
void AddWorkerVerbs(Parser& parser);  // admin_verbs.cc: worker, resources
void AddTokenVerbs(Parser& parser);   // access_verbs.cc: token
void AddOtherVerbs(Parser& parser);   // admin_verbs.cc: status, doctor, version, completion

inline void AddTarget(Verb& verb, std::string* target) {
  verb.Text("--target", "NAME", target, "local, here, a login's name, or remote: the login in use");
}

inline void AddJson(Verb& verb, bool* json) {
  verb.Flag("--json", json, "print one JSON document");
}

inline void AddCommon(Verb& verb, Common* common) {
  AddTarget(verb, &common->target);
  AddJson(verb, &common->json);
}

inline void AddAllLogs(Verb& verb, bool* all_logs) {
  verb.Flag("--all-logs", all_logs, "print all tasks' output, each line behind its task");
}

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_VERBS_H_
