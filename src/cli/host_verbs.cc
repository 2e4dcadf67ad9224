// up, down, join.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/verbs.h"

namespace gpulayer::cli {
namespace {

constexpr char kDataDirHelp[] =
    "where all is kept (default: $GPULAYER_DATA_DIR, as root /var/lib/gpulayer, else "
    "~/.local/state/gpulayer)";

void AddSlots(Verb& verb, std::optional<std::int32_t>* slots) {
  verb.Number("--slots", kNumber, slots, "CPUs to offer (default: all)");
}

void CheckSlots(const std::optional<std::int32_t>& slots) {
  if (slots.value_or(1) < 1) Usage("--slots: at least 1");
}

void AddUp(Parser& parser) {
  struct Typed {
    UpArgs args;
    bool no_worker = false;
    bool worker = false;
  };
  auto typed = std::make_shared<Typed>();
  UpOptions& options = typed->args.options;
  Verb verb = parser.Add("up", "Start server and worker on this machine.", "gpulayer up");
  verb.Text(
      "--listen", "ADDRESS:PORT",
      [&options](const std::string& text) {
        Need(CheckListen(text));
        options.listen = text;
      },
      "address for other machines (default: 0.0.0.0:7461)");
  verb.Text("--data-dir", kFolder, &options.data_dir, kDataDirHelp);
  AddSlots(verb, &options.slots);
  verb.Flag("--no-worker", &typed->no_worker,
            "server only: this machine runs no jobs, until --worker");
  verb.Flag("--worker", &typed->worker, "a worker too, after --no-worker");
  verb.Flag("--foreground", &typed->args.foreground, "stay until a signal, then stop");
  AddJson(verb, &typed->args.json);
  verb.NotBuilt({"--http", "--service"});
  verb.Check([typed, &options] {
    if (typed->no_worker && typed->worker) Usage("--worker and --no-worker: give one of them");
    if (typed->no_worker || typed->worker) options.worker = typed->worker;
    options.only_start = typed->args.foreground;
    CheckSlots(options.slots);
  });
  verb.Runs([typed] { return RunUp(typed->args); });
}

void AddDown(Parser& parser) {
  auto args = std::make_shared<DownArgs>();
  Verb verb = parser.Add("down", "Stop what up or join started here.", "gpulayer down");
  verb.Text("--data-dir", kFolder, &args->options.data_dir,
            "as given to up or join (default: as theirs)");
  AddJson(verb, &args->json);
  verb.NotBuilt({"--drain"});
  verb.Runs([args] { return RunDown(*args); });
}

void AddJoin(Parser& parser) {
  auto args = std::make_shared<JoinArgs>();
  JoinOptions& options = args->options;
  Verb verb = parser.Add("join", "Make this machine a worker of another one's server.",
                         "gpulayer join server-box:7461 --token @token");
  verb.OptionalWord(
      "ADDRESS", &options.address,
      "HOST[:PORT] of the server (port: 7461); none: start again the worker that this "
      "machine is");
  verb.Text("--token", kToken, &options.token,
            "token, - (standard input), @FILE, or GPULAYER_TOKEN");
  verb.Text("--name", "NAME", &options.name, "name of this worker (default: the host's)");
  AddSlots(verb, &options.slots);
  verb.Text("--zone", "NAME", &options.zone, "name of its site, for jobs that ask for --zone");
  verb.Text("--region", "NAME", &options.region,
            "name of a group of sites, for jobs that ask for --region");
  verb.ManyPairs("--label", &options.labels, "what jobs can ask for with --label (repeat)");
  verb.Text("--data-dir", kFolder, &options.data_dir, kDataDirHelp);
  verb.Flag("--foreground", &args->foreground, "stay until a signal, then stop");
  AddJson(verb, &args->json);
  verb.NotBuilt({"--advertise-address", "--service"});
  verb.Check([args, &options] {
    options.only_start = args->foreground;
    if (options.address.empty() && !options.token.empty()) Usage("which server? Give its address");
    Need(CheckJoin(options));
    CheckSlots(options.slots);
  });
  verb.Runs([args] { return RunJoin(*args); });
}

}  // namespace

void AddHostVerbs(Parser& parser) {
  AddUp(parser);
  AddDown(parser);
  AddJoin(parser);
}

}  // namespace gpulayer::cli
