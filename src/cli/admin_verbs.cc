// worker, resources; status, doctor, version, completion; verbs that there will be.
#include <memory>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace gpulayer::cli {
namespace {

void AddWorkerList(Parser& parser) {
  auto args = std::make_shared<WorkerArgs>();
  Verb verb = parser.Add("worker list", "List workers.", "gpulayer worker list");
  AddCommon(verb, &args->common);
  verb.Runs([args] { return RunWorkerList(*args); });
}

void AddWorkerShow(Parser& parser) {
  auto args = std::make_shared<WorkerArgs>();
  Verb verb = parser.Add("worker show", "Show one worker.", "gpulayer worker show gpu-box");
  AddCommon(verb, &args->common);
  verb.Word("NAME", &args->worker, "name or id");
  verb.Check([args] {
    if (args->worker.empty()) Usage("which worker? Give its name or id");
  });
  verb.Runs([args] { return RunWorkerShow(*args); });
}

void AddDetect(Parser& parser) {
  auto args = std::make_shared<Common>();
  Verb verb = parser.Add("resources detect", "What a worker on this machine would offer.",
                         "gpulayer resources detect");
  AddJson(verb, &args->json);
  verb.Runs([args] { return RunDetect(*args); });
}

void AddStatus(Parser& parser) {
  auto args = std::make_shared<Common>();
  Verb verb = parser.Add("status", "Show the server and what it does.", "gpulayer status");
  AddCommon(verb, args.get());
  verb.Runs([args] { return RunStatus(*args); });
}

void AddDoctor(Parser& parser) {
  auto args = std::make_shared<DoctorArgs>();
  Verb verb = parser.Add("doctor", "Look for what is in the way when something does not work.",
                         "gpulayer doctor");
  AddTarget(verb, &args->options.target);
  verb.Text("--data-dir", kFolder, &args->options.data_dir, "as given to up or join");
  AddJson(verb, &args->json);
  verb.Runs([args] { return RunDoctor(*args); });
}

void AddVersion(Parser& parser) {
  auto args = std::make_shared<Common>();
  Verb verb = parser.Add("version", "Print the version.", "gpulayer version");
  AddJson(verb, &args->json);
  verb.Runs([args] { return RunVersion(*args); });
}

void AddCompletion(Parser& parser) {
  struct Typed {
    std::string shell;
    std::vector<VerbInfo> verbs;
  };
  auto typed = std::make_shared<Typed>();
  Verb verb = parser.Add("completion", "Print completions for a shell.",
                         "source <(gpulayer completion bash)");
  verb.Word("SHELL", &typed->shell, "bash, zsh or fish");
  verb.Check([typed, &parser] {
    if (typed->shell != "bash" && typed->shell != "zsh" && typed->shell != "fish") {
      Usage("which shell? bash, zsh or fish");
    }
    typed->verbs = parser.Describe();
  });
  verb.Runs([typed] { return RunCompletion(typed->shell, typed->verbs); });
}

}  // namespace

void AddWorkerVerbs(Parser& parser) {
  parser.Group("worker", "Look at the machines that run work.", "gpulayer worker list");
  AddWorkerList(parser);
  AddWorkerShow(parser);
  parser.NotBuilt({"worker drain", "worker resume", "worker remove"});
  parser.Group("resources", "Look at this machine.", "gpulayer resources detect");
  AddDetect(parser);
}

void AddOtherVerbs(Parser& parser) {
  AddStatus(parser);
  AddDoctor(parser);
  AddVersion(parser);
  AddCompletion(parser);
  parser.NotBuilt({"top", "server"});
}

}  // namespace gpulayer::cli
