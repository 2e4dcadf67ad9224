#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "cli/args.h"
#include "cli/follow.h"
#include "cli/hints.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/session.h"
#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

void Refused(const Status& status) {
  const std::string step = NextStep(status);
  PrintNote(status.message() + (step.empty() ? "" : ". " + step));
}

// "data/, sq and 3 more"; a folder stands for all in it.
std::string IgnoredText(const std::vector<std::string>& ignored) {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, ignored.size()); ++i) {
    text += (i == 0 ? "" : ", ") + Printable(ignored[i]);
  }
  if (ignored.size() > kShown) text += " and " + std::to_string(ignored.size() - kShown) + " more";
  return text;
}

// Bytes that somebody handed to us and the job does not get: `seq 10 | gpulayer submit -- wc -l`.
bool HasUnreadInput() {
  struct stat info = {};
  if (::fstat(STDIN_FILENO, &info) != 0) return false;
  // Where it has been read from, a shell's loop over its lines is about to go on with it.
  if (S_ISREG(info.st_mode)) return info.st_size > 0 && ::lseek(STDIN_FILENO, 0, SEEK_CUR) == 0;
  if (!S_ISFIFO(info.st_mode) && !S_ISSOCK(info.st_mode)) return false;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  int bytes = 0;  // an end of the stream is readable too
  return ::poll(&input, 1, 0) == 1 && ::ioctl(STDIN_FILENO, FIONREAD, &bytes) == 0 && bytes > 0;
}

// What was not typed and is asked for all the same.
void NoteDefaults(const SubmitArgs& args) {
  std::string names;
  for (const std::string& name : args.project_options) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) PrintNote("defaults of " + Printable(args.project_file) + ": " + names);
}

// The other verbs look into no project.
void NoteTarget(const SubmitArgs& args) {
  const std::vector<std::string>& options = args.project_options;
  if (std::find(options.begin(), options.end(), "target") == options.end()) return;
  const std::string target = Printable(args.common.target);
  const std::string why = ", as " + Printable(args.project_file) + " says";
  PrintNote(target == "local" ? "this runs here, alone" + why
                              : "this goes to " + target + why +
                                    ": `gpulayer job` wants --target " + target + " for it");
}

int DryRun(const SubmitArgs& args) {
  NoteDefaults(args);
  const Result<SourceListing> listing = Client::PreviewSource(args.spec);
  if (!listing.ok()) return Refused(listing.status()), kCouldNot;
  for (const std::string& warning : listing->warnings) PrintNote(warning);
  if (args.common.json) return PrintOut(SourceJson(*listing)), 0;
  std::string text;  // a line each: a name's own line ends are in the document only
  for (const SourceFile& file : listing->files) {
    text += FormatSize(file.size_bytes) + "\t" + Printable(file.path) + "\n";
  }
  PrintOut(text);
  if (!listing->ignored.empty()) {
    PrintNote("left out by ignore rules: " + IgnoredText(listing->ignored));
  }
  PrintNote(std::to_string(listing->files.size()) +
            (listing->files.size() == 1 ? " file, " : " files, ") +
            FormatSize(listing->total_bytes) + " would ship; nothing was submitted");
  return 0;
}

// Ctrl-C came while the server's answer was on its way: the client's calls are over, so another asks.
int CancelAtOnce(const SubmitArgs& args, std::int64_t job) {
  ClientOptions options;
  options.target = args.common.target;
  options.call_timeout = std::chrono::seconds(5);
  PrintNote("cancelling job " + std::to_string(job));
  Result<Client> client = Client::Connect(options);
  const Result<CancelSummary> done =
      client.ok() ? client->Cancel({{job, std::nullopt}}) : client.status();
  if (!done.ok()) {
    PrintError(done.status());
    PrintNote(AfterUs(job, false));
  }
  return 128 + SIGINT;
}

}  // namespace

int RunSubmit(const SubmitArgs& args) {
  if (args.dry_run) return DryRun(args);
  if (!args.fit.ok()) return PrintError(args.fit), kCouldNot;
  if (const std::string hint = OneWordHint(args.spec); !hint.empty()) PrintNote(hint);
  if (args.spec.stdin_file.empty() && HasUnreadInput()) {
    PrintNote(
        "the job does not get what stands in standard input: write it into a file, and name that "
        "with --stdin FILE");
  }
  // A place that is not there is better known before the work than after it.
  if (!args.detach && args.spec.outputs.collect) {
    if (const Status place = Client::CheckDownload(); !place.ok()) {
      PrintError(place);
      PrintNote(
          "nothing was submitted; --no-outputs brings nothing home, --detach leaves it on the "
          "server");
      return kCouldNot;
    }
  }
  NoteTarget(args);
  Session session;
  Result<Client> client = Client::Connect(session.Options(args.common.target));
  // GPULAYER_TARGET may say so too, which the parser does not see.
  if (client.ok() && args.detach && client->target() == "local") {
    PrintUsageError("--detach: a local run ends with its command; it cannot be left", "submit");
    return kUsage;
  }
  Result<Job> job = client.ok() ? client->Submit(args.spec) : client.status();
  if (!client.ok() && session.left() != 0) {
    PrintNote("interrupted: nothing was submitted");
    return 128 + session.left();
  }
  if (!job.ok()) {
    Refused(job.status());
    if (client.ok()) NoteDefaults(args);
    return session.left() != 0 ? 128 + session.left() : kCouldNot;
  }
  if (session.left() == SIGINT && client->target() != "local") {
    return CancelAtOnce(args, job->id());
  }
  for (const std::string& warning : job->warnings()) PrintNote(warning);
  if (args.detach) {
    PrintOut(args.common.json ? SubmittedJson({job->id(), job->existed(), job->warnings()})
                              : std::to_string(job->id()) + "\n");
    return 0;
  }
  session.Owns(*client, job->id());
  FollowOptions options;
  options.json = args.common.json;
  options.outputs = args.spec.outputs.collect;
  options.array = args.spec.array || !args.spec.items.empty();
  options.all_logs = args.all_logs;
  options.source_dir = args.spec.source_dir;
  return FollowJob(session, *client, job->id(), options);
}

}  // namespace gpulayer::cli
