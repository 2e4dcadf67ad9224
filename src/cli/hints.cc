#include "cli/hints.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

struct Meant {
  const char* typed;
  const char* meant;
};

// Words of other programs that do the like.
constexpr Meant kVerbs[] = {
    {"list", "job list"},
    {"ls", "job list"},
    {"jobs", "job list"},
    {"queue", "job list"},
    {"log", "job logs"},
    {"tail", "job logs"},
    {"kill", "job cancel"},
    {"stop", "job cancel"},
    {"rm", "job cancel"},
    {"delete", "job cancel"},
    {"shell", "job exec"},
    {"ssh", "job exec"},
    {"show", "job show"},
    {"inspect", "job show"},
    {"why", "job explain"},
    {"download", "job result"},
    {"fetch", "job result"},
    {"results", "job result"},
    {"outputs", "job result"},
    {"workers", "worker list"},
    {"nodes", "worker list"},
    {"machines", "worker list"},
    {"hosts", "worker list"},
    {"tokens", "token list"},
    {"targets", "target list"},
    {"logins", "target list"},
    {"use", "target use"},
    {"detect", "resources detect"},
    {"devices", "resources detect"},
    {"gpus", "resources detect"},
    {"start", "up"},
    {"serve", "up"},
    {"info", "status"},
    {"shutdown", "down"},
    {"leave", "down"},
    {"help", "--help"},
};

constexpr Meant kVerbsOfGroup[] = {
    {"ls", "list"},         {"status", "show"},    {"info", "show"},     {"get", "show"},
    {"inspect", "show"},    {"describe", "show"},  {"kill", "cancel"},   {"stop", "cancel"},
    {"rm", "cancel"},       {"delete", "cancel"},  {"rm", "revoke"},     {"delete", "revoke"},
    {"remove", "revoke"},   {"rm", "remove"},      {"delete", "remove"}, {"log", "logs"},
    {"tail", "logs"},       {"why", "explain"},    {"new", "create"},    {"add", "create"},
    {"make", "create"},     {"switch", "use"},     {"set", "use"},       {"select", "use"},
    {"download", "result"}, {"outputs", "result"},
};

constexpr Meant kOptions[] = {
    {"--gpus", "--devices"},
    {"--gpu", "--devices"},
    {"--num-gpus", "--devices"},
    {"--ngpus", "--devices"},
    {"--gres", "--devices"},
    {"--cuda", "--accelerator"},
    {"--gpu-type", "--device-model"},
    {"--gpu-model", "--device-model"},
    {"--vram", "--device-memory"},
    {"--gpu-memory", "--device-memory"},
    {"--cpus", "--slots"},
    {"--cpu", "--slots"},
    {"--cores", "--slots"},
    {"--threads", "--slots"},
    {"--ncpus", "--slots"},
    {"--num-cpus", "--slots"},
    {"--ram", "--memory"},
    {"--timeout", "--time"},
    {"--time-limit", "--time"},
    {"--walltime", "--time"},
    {"--environment", "--env"},
    {"--var", "--env"},
    {"--src", "--source"},
    {"--code", "--source"},
    {"--dir", "--source"},
    {"--workdir", "--source"},
    {"--cwd", "--source"},
    {"--working-dir", "--source"},
    {"--host", "--worker"},
    {"--node", "--worker"},
    {"--nodelist", "--worker"},
    {"--machine", "--worker"},
    {"--background", "--detach"},
    {"--no-wait", "--detach"},
    {"--job-name", "--name"},
    {"--title", "--name"},
    {"--retry", "--retries"},
    {"--dependency", "--after"},
    {"--depends-on", "--after"},
    {"--num-nodes", "--nodes"},
    {"--ntasks-per-node", "--procs-per-node"},
    {"--nproc-per-node", "--procs-per-node"},
    {"--tag", "--label"},
    {"--constraint", "--label"},
    {"--out", "--output"},
    {"--artifacts", "--output"},
    {"--input-file", "--stdin"},
    {"--server", "--target"},
    {"--lines", "--tail"},
    {"--status", "--state"},
    {"--ttl", "--expires"},
    {"--life", "--expires"},
    {"--lifetime", "--expires"},
    {"--port", "--listen"},
    {"--bind", "--listen"},
    {"--address", "--listen"},
    {"--force", "--now"},
    {"--kill", "--now"},
    {"--dir", "--to"},
    {"--out", "--to"},
    {"--output", "--to"},
    {"--dest", "--to"},
    {"--shell-command", "--shell"},
    {"--format", "--json"},
};

bool Has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Letters put in, taken out or exchanged for others.
std::size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t other = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({other, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The one word that is nearly this one, or begins with it.
std::string Nearest(const std::string& typed, const std::vector<std::string>& words) {
  std::string best;
  std::size_t distance = std::min<std::size_t>(2, typed.size() / 3) + 1;
  for (const std::string& word : words) {
    if (typed.size() > 3 && word.rfind(typed, 0) == 0) return word;
    if (const std::size_t d = Distance(typed, word); d < distance) {
      distance = d;
      best = word;
    }
  }
  return best;
}

}  // namespace

std::string MeantVerb(const std::string& group, const std::string& typed,
                      const std::vector<std::string>& verbs) {
  const std::string before = group.empty() ? "" : group + " ";
  if (group.empty()) {
    for (const Meant& m : kVerbs) {
      if (m.typed == typed) return m.meant;
    }
    // "wait" is `job wait`: the first group that has it is the one of jobs where there are several.
    if (Has(verbs, "job " + typed)) return "job " + typed;
    for (const std::string& verb : verbs) {
      const std::size_t space = verb.find(' ');
      if (space != std::string::npos && verb.substr(space + 1) == typed) return verb;
    }
  } else {
    for (const Meant& m : kVerbsOfGroup) {
      if (m.typed == typed && Has(verbs, before + m.meant)) return before + m.meant;
    }
  }
  std::vector<std::string> beside;
  for (const std::string& verb : verbs) {
    if (verb.rfind(before, 0) != 0) continue;
    const std::string word = verb.substr(before.size());
    if (word.find(' ') == std::string::npos) beside.push_back(word);
  }
  const std::string nearest = Nearest(typed, beside);
  return nearest.empty() ? "" : before + nearest;
}

std::string MeantOption(const std::string& typed, const std::vector<std::string>& options) {
  for (const Meant& m : kOptions) {
    if (m.typed == typed && Has(options, m.meant)) return m.meant;
  }
  return Nearest(typed, options);
}

std::string NextStep(const Status& status) {
  const std::string& text = status.message();
  if (text.find("no worker is named ") != std::string::npos) {
    return "Name one of them, or queue it all the same with --wait-for-worker";
  }
  if (status.code() == StatusCode::kRejected && text.rfind("no worker can run this", 0) == 0) {
    return "Ask for less, or queue it all the same with --wait-for-worker";
  }
  if (text.rfind("read source folder", 0) == 0) return "--source wants a folder that is here";
  if (text.rfind("token: open ", 0) == 0) return "--token @FILE wants a file that is here";
  return "";
}

std::string TildeHint(const std::string& path) {
  if (path.empty() || path[0] != '~') return "";
  const std::string said = "the shell has not expanded ~ in " + Printable(path) + ": write ";
  const bool own = path.size() == 1 || path[1] == '/';
  return said + (own ? "$HOME" + Printable(path.substr(1)) : "the whole path");
}

namespace {

// A file without its right to be run.
std::string ChmodText(const std::string& program) {
  const std::string suffix = program.substr(program.rfind('.') + 1);
  const std::string reader = suffix == "py" ? "python3 " : suffix == "sh" ? "sh " : "";
  return "`chmod +x` it before the submit: modes ship" +
         (reader.empty() ? "" : ". Or write " + reader + Printable(program));
}

bool Ships(const std::string& source_dir, const std::string& file) {
  JobSpec spec;
  spec.source_dir = source_dir;
  spec.source_limit_bytes = INT64_MAX;
  spec.source_limit_files = INT64_MAX;
  const Result<SourceListing> listing = Client::PreviewSource(spec);
  if (!listing.ok()) return true;  // it was listed a moment ago: nothing better is known
  return std::any_of(listing->files.begin(), listing->files.end(),
                     [&](const SourceFile& ships) { return ships.path == file; });
}

}  // namespace

std::string ProgramText(const JobInfo& job, const std::string& source_dir) {
  const CauseKind cause = job.outcome.cause;
  if (cause != CauseKind::kNotFound && cause != CauseKind::kNotExecutable) return "";
  const std::string program = job.request.command.empty() ? "" : job.request.command.front();
  const std::string shown = Printable(program);
  const std::string why = Printable(job.outcome.cause_text);
  const std::string said = (shown.empty() ? "" : shown + ": ") + why + ". ";
  if (cause == CauseKind::kNotExecutable) {
    if (why.find("Permission denied") != std::string::npos) {
      return program[0] == '/' ? said + "On the worker it may not be executed"
                               : said + ChmodText(program);
    }
    if (why.find("No such file") != std::string::npos) {
      return said + "The program in its first line (#!) is not on the worker";
    }
    if (why.find("Argument list too long") != std::string::npos) {
      return said + "Arguments and environment are more than the worker's system takes";
    }
    return said + "A script needs a first line like #!/bin/sh, a program the worker's system";
  }
  if (!program.empty() && program[0] == '/') return said + "That path has to be on the worker";
  if (program.find('/') != std::string::npos) {
    if (job.source_hash.empty()) {
      return said +
             "It is looked for in the job's folder, which is empty: nothing ships without --source";
    }
    return said + "It is looked for in the job's folder, which is a copy of --source";
  }
  const std::string file = source_dir + "/" + program;
  if (!source_dir.empty() && ::access(file.c_str(), F_OK) == 0) {
    if (!Ships(source_dir, program)) {
      return said +
             "The file of that name here is left out by ignore rules: let it ship (a line !/" +
             shown + " in .gpulayerignore) and write ./" + shown;
    }
    const bool runs = ::access(file.c_str(), X_OK) == 0;
    return said + "That file ships: write ./" + shown +
           (runs ? "" : ". " + ChmodText("./" + program));
  }
  if (program.find_first_of(" \t\n") != std::string::npos) {
    return said + "It is one word, the name of a program; --shell takes a line of a shell";
  }
  return said + "It has to be on the worker's PATH; a file that ships is written ./" + shown;
}

std::string OneWordHint(const JobSpec& spec) {
  if (spec.command.size() != 1) return "";
  const std::string& word = spec.command.front();
  const std::size_t space = word.find_first_of(" \t\n");
  if (space == std::string::npos) return "";
  const std::string shipped = (spec.source_dir.empty() ? "." : spec.source_dir) + "/" + word;
  // A path of the worker's cannot be looked at from here.
  if (word[0] == '/' || ::access(shipped.c_str(), F_OK) == 0) return "";
  return "\"" + Printable(word) +
         "\" is one word, the name of the program. Write its words apart (-- " +
         Printable(word.substr(0, space)) + " …), or use --shell for a line of a shell";
}

}  // namespace gpulayer::cli
