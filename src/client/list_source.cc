#include "client/list_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/daemon.h"
#include "base/fs.h"
#include "base/host.h"
#include "base/text.h"
#include "client/paths.h"

namespace gpulayer::client {
namespace {

// The file of the source that this text names from inside; empty: none.
std::string FileInside(const std::string& dir, const std::string& text) {
  const auto path = std::filesystem::path(text).lexically_normal();
  if (text.empty() || path.is_absolute() || *path.begin() == "..") return "";
  struct stat info = {};
  const bool found = ::stat(JoinPath(dir, path.string()).c_str(), &info) == 0;
  return found && S_ISREG(info.st_mode) ? path.string() : "";
}

// The virtual environment that the file is a part of; empty: of none.
std::string VirtualEnvironmentOf(const std::string& dir, const std::string& file) {
  for (std::size_t end = file.find('/'); end != std::string::npos; end = file.find('/', end + 1)) {
    const std::string folder = file.substr(0, end);
    if (PathExists(JoinPath(JoinPath(dir, folder), "pyvenv.cfg"))) return folder;
  }
  return "";
}

constexpr std::size_t kNamed = 3;

// The file of the source that a word names and the rules leave out; empty: none.
std::string LeftOutFile(const std::string& dir, const std::string& word,
                        const tree::Listing& listing, std::string* lines) {
  const std::size_t equals = word.find('=');  // --data=data/big.csv
  std::string file = FileInside(dir, word);
  if (file.empty() && equals != std::string::npos) file = FileInside(dir, word.substr(equals + 1));
  *lines = file.empty() ? "" : tree::LinesToShip(listing, file);
  return lines->empty() ? "" : file;
}

void WarnOfWhatIsNamed(const std::string& dir,
                       const std::vector<std::vector<std::string>>& commands,
                       tree::Listing* listing) {
  std::vector<tree::Warning> said;
  std::size_t more = 0;
  std::set<std::string> seen;  // jobs of a batch have most words in common
  for (const std::vector<std::string>& command : commands) {
    for (std::size_t i = 0; i < command.size(); ++i) {
      const std::string& word = command[i];
      // A program without a slash is looked for on the worker's PATH.
      if (i == 0 && word.find('/') == std::string::npos) continue;
      if (!seen.insert(word).second) continue;
      std::string lines;
      const std::string file = LeftOutFile(dir, word, *listing, &lines);
      if (file.empty() || (said.size() == kNamed && ++more > 0)) continue;
      if (const std::string venv = VirtualEnvironmentOf(dir, file); !venv.empty()) {
        said.push_back({".", file + " is not shipped: " + venv +
                                 " is a virtual environment, and its paths are this machine's. Use "
                                 "python3, or make one in the job (python3 -m venv)"});
        continue;
      }
      said.push_back({".", file +
                               " is here, but the ignore rules leave it out: it is not shipped. " +
                               "Write " + lines + " into " + JoinPath(dir, ".gpulayerignore") +
                               " to ship it"});
    }
  }
  if (more > 0) {
    said.push_back({".", std::to_string(more) + " more that the command names are left out so"});
  }
  listing->warnings.insert(listing->warnings.begin(), said.begin(), said.end());
}

}  // namespace

std::vector<std::string> OwnFolders(const std::string& config_dir, const std::string& data_dir) {
  std::vector<std::string> out;
  if (const Result<std::string> dir = ConfigDir(config_dir); dir.ok()) out.push_back(*dir);
  if (const Result<std::string> dir = DataDir(data_dir); dir.ok()) out.push_back(*dir);
  return out;
}

Result<tree::Listing> ListSource(const std::string& dir, const SourceRules& rules) {
  const Result<UniqueFd> root = OpenFile(dir, O_RDONLY | O_DIRECTORY);  // none: the scan says it
  const bool own = (root.ok() && IsDataDir(root->get())) ||
                   std::any_of(rules.never.begin(), rules.never.end(), [&](const std::string& one) {
                     std::error_code unknown;
                     return std::filesystem::equivalent(dir, one, unknown);
                   });
  if (own) {
    return FailedPrecondition("ship " + Printable(dir) +
                              ": it holds GPUlayer's own files, keys among them. Ship another "
                              "folder");
  }
  tree::ScanOptions scan;
  scan.limit_bytes = rules.limit_bytes;
  scan.limit_files = rules.limit_files;
  scan.never = rules.never;
  scan.name_ignored = rules.name_ignored;
  GPULAYER_ASSIGN_OR_RETURN(tree::Listing listing, tree::Scan(dir, scan));
  GPULAYER_RETURN_IF_ERROR(tree::CheckLimit(listing, scan));
  WarnOfWhatIsNamed(dir, rules.commands, &listing);
  return listing;
}

}  // namespace gpulayer::client
