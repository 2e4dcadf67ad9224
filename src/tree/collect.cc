#include "tree/collect.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/fs.h"
#include "base/text.h"
#include "model/limits.h"
#include "tree/beneath.h"
#include "tree/hash_one.h"
#include "tree/ignore.h"
#include "tree/unpack.h"
#include "tree/walk.h"

namespace gpulayer::tree {
namespace {

constexpr std::size_t kNamed = 5;  // of what is many and alike

// One side (output folder or work folder) with what of it is to come home.
struct Side {
  UniqueFd root;
  std::string path;
  std::vector<ListedEntry> entries;                    // sorted
  std::unordered_map<std::string, HashedFile> stored;  // of entries, those that are not on disk
};

void AddStored(const std::map<std::string, TreeEntry>& stored, Side* side) {
  const std::string inside = side->path + "/";
  for (const auto& [path, file] : stored) {
    if (!path.starts_with(inside)) continue;
    ListedEntry entry;
    entry.path = path.substr(inside.size());
    entry.mode = file.mode;
    entry.stamp.size = file.size;
    const auto at = std::lower_bound(
        side->entries.begin(), side->entries.end(), entry,
        [](const ListedEntry& a, const ListedEntry& b) { return a.path < b.path; });
    if (at != side->entries.end() && at->path == entry.path) continue;  // there is one again
    side->stored.emplace(entry.path, HashedFile{file.hash, entry.stamp});
    side->entries.insert(at, std::move(entry));
  }
}

// Opens one of the two folders. The program may have done anything to it: a link in its place is
// never followed, for what lies there is not the program's output. Without a root there is nothing
// to bring home, and `why` says why if that is worth a word.
Result<Side> OpenSide(const std::string& dir, std::string* why) {
  Side side;
  side.path = dir;
  struct stat info = {};
  if (lstat(dir.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && (info.st_mode & 0500) != 0500) {
    (void)chmod(dir.c_str(), (info.st_mode & 07777) | 0700);  // the program has shut it
  }
  side.root = UniqueFd(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (side.root.valid()) return side;
  const int error = errno;
  if (lstat(dir.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
    *why = S_ISLNK(info.st_mode) ? "a link took its place" : "something else took its place";
  } else if (error == EACCES) {
    *why = "not readable";
  } else if (error != ENOENT && error != ENOTDIR) {
    return ErrnoStatus("list " + dir, error);
  }
  return side;
}

Status ListOutputs(Side* side, std::vector<Warning>* warnings) {
  WalkPlan plan;
  plan.use_rules = false;
  plan.open_up = true;
  GPULAYER_ASSIGN_OR_RETURN(Listing listing, Walk(side->root.get(), side->path, std::move(plan)));
  side->entries = std::move(listing.entries);
  warnings->insert(warnings->end(), listing.warnings.begin(), listing.warnings.end());
  return OkStatus();
}

// A glob takes whole trees as an ignore pattern does: what is below a matched folder is matched.
bool Matches(const IgnoreList& glob, const std::string& path) {
  for (std::size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    if (glob.Match(std::string_view(path).substr(0, end), true) == Verdict::kIgnored) return true;
  }
  return glob.Match(path, false) == Verdict::kIgnored;
}

// As one line of an ignore file; one that could match nothing matches nothing.
IgnoreList ToList(const std::string& pattern) {
  return IgnoreList(NormalOutputGlob(pattern).value_or(""), Case::kKeep);
}

// The patterns of --output, and which of them took something.
class Globs {
 public:
  explicit Globs(const std::vector<std::string>& patterns) : patterns_(patterns) {
    for (const std::string& pattern : patterns) lists_.push_back(ToList(pattern));
    took_.resize(lists_.size());
  }

  std::vector<std::size_t> MatchedBy(const std::string& path) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < lists_.size(); ++i) {
      if (Matches(lists_[i], path)) out.push_back(i);
    }
    return out;
  }
  // Without patterns everything is wanted.
  bool Wants(const std::vector<std::size_t>& matched) const {
    return lists_.empty() || !matched.empty();
  }
  void Took(const std::vector<std::size_t>& matched) {
    for (const std::size_t i : matched) took_[i] = true;
  }
  bool Take(const std::string& path) {
    const std::vector<std::size_t> matched = MatchedBy(path);
    Took(matched);
    return Wants(matched);
  }

  std::vector<std::string> TookNothing() const {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < lists_.size(); ++i) {
      if (!took_[i]) out.push_back(patterns_[i]);
    }
    return out;
  }

 private:
  const std::vector<std::string>& patterns_;
  std::vector<IgnoreList> lists_;
  std::vector<bool> took_;
};

class WorkSide {
 public:
  WorkSide(const CollectRequest& request, Globs& globs) : request_(request), globs_(globs) {
    if (request.source == nullptr) return;
    for (const TreeEntry& entry : request.source->entries) source_.emplace(entry.path, &entry);
  }

  Status List(Side* side, std::vector<Warning>* warnings, std::int64_t* hashed) {
    WalkPlan plan;
    plan.name_ignored = true;
    if (request_.source != nullptr) {
      plan.ignore = request_.source->ignore;
      plan.tracked = Tracked(plan.ignore.prefix);
    }
    plan.open_up = true;
    GPULAYER_ASSIGN_OR_RETURN(Listing listing, Walk(side->root.get(), side->path, std::move(plan)));
    warnings->insert(warnings->end(), listing.warnings.begin(), listing.warnings.end());
    KeepIgnored(std::move(listing.ignored));
    for (std::string& folder : listing.kept_out) {
      if (globs_.Take(folder.substr(0, folder.size() - 1))) kept_out_.push_back(std::move(folder));
    }
    std::sort(kept_out_.begin(), kept_out_.end());
    std::vector<ListedEntry> folders;
    for (ListedEntry& entry : listing.entries) {
      if (entry.type == EntryType::kFolder) {
        folders.push_back(std::move(entry));
        continue;
      }
      const auto known = source_.find(entry.path);
      const std::vector<std::size_t> matched = globs_.MatchedBy(entry.path);
      if (!globs_.Wants(matched)) {
        // One of the source's is not read to find out whether it has changed.
        if (known == source_.end() && unwanted_.size() < kNamed) {
          unwanted_.push_back(std::move(entry));
        }
        continue;
      }
      if (known != source_.end() && !Changed(side->root.get(), entry, *known->second, hashed)) {
        continue;
      }
      globs_.Took(matched);
      side->entries.push_back(std::move(entry));
    }
    KeepModes(std::move(folders), &side->entries);
    return OkStatus();
  }

  // Of what was wanted:
  const std::vector<std::string>& ignored() const { return ignored_; }
  const std::vector<std::string>& kept_out() const { return kept_out_; }
  // New files that no pattern takes, the first few.
  const std::vector<ListedEntry>& unwanted() const { return unwanted_; }

 private:
  // Of new folders that have something to bring home: they stand here for their modes.
  void KeepModes(std::vector<ListedEntry> folders, std::vector<ListedEntry>* entries) const {
    const auto by_path = [](const ListedEntry& a, const ListedEntry& b) { return a.path < b.path; };
    std::vector<ListedEntry> kept;
    for (ListedEntry& folder : folders) {
      ListedEntry first;
      first.path = folder.path + "/";
      const auto in = std::lower_bound(entries->begin(), entries->end(), first, by_path);
      const bool has_some = in != entries->end() && in->path.starts_with(first.path);
      if (has_some && !IsOfSource(folder.path)) kept.push_back(std::move(folder));
    }
    std::move(kept.begin(), kept.end(), std::back_inserter(*entries));
    std::sort(entries->begin(), entries->end(), by_path);
  }

  bool IsOfSource(const std::string& folder) const {
    if (request_.source == nullptr) return false;
    const std::vector<TreeEntry>& all = request_.source->entries;
    const auto at = std::lower_bound(
        all.begin(), all.end(), folder + "/",
        [](const TreeEntry& entry, const std::string& path) { return entry.path < path; });
    const bool has_some = at != all.end() && at->path.starts_with(folder + "/");
    return has_some || source_.contains(folder);
  }

  // A folder whose own .gitignore hides itself is a tool's cache: nobody misses what is in it.
  void KeepIgnored(std::vector<std::string> paths) {
    constexpr std::string_view kSelfHiding = "/.gitignore";
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> caches;
    for (const std::string& path : paths) {
      if (path.ends_with(kSelfHiding)) caches.push_back(DirName(path) + "/");
    }
    for (std::string& path : paths) {
      const bool cached = std::any_of(caches.begin(), caches.end(), [&](const std::string& cache) {
        return path.starts_with(cache);
      });
      const bool folder = path.ends_with('/');
      if (!cached && globs_.Take(folder ? path.substr(0, path.size() - 1) : path)) {
        ignored_.push_back(std::move(path));
      }
    }
  }

  // What was laid out counts as tracked: it is brought home when changed, whatever rule matches it.
  TrackedSet Tracked(const std::string& prefix) const {
    std::vector<std::string> files;
    files.reserve(request_.source->entries.size());
    for (const TreeEntry& entry : request_.source->entries) {
      if (entry.type == EntryType::kFolder) continue;
      files.push_back(prefix.empty() ? entry.path : prefix + "/" + entry.path);
    }
    return TrackedSet(std::move(files), {});
  }

  bool Changed(int root, const ListedEntry& now, const TreeEntry& then,
               std::int64_t* hashed) const {
    if (now.type != then.type) return true;
    if (now.type == EntryType::kLink) return now.link_target != then.link_target;
    if (now.stamp.size != then.size) return true;
    if (now.stamp.mtime_ns == request_.stamp.mtime_ns &&
        now.stamp.ctime_ns <= request_.stamp.latest_ctime_ns) {
      return false;
    }
    // Touched, or written anew: only the content tells.
    ++*hashed;
    const Result<HashedFile> hash = HashOne(root, now.path);
    return !hash.ok() || hash->hash != then.hash;
  }

  const CollectRequest& request_;
  Globs& globs_;
  std::unordered_map<std::string_view, const TreeEntry*> source_;
  std::vector<std::string> ignored_;
  std::vector<std::string> kept_out_;
  std::vector<ListedEntry> unwanted_;
};

// Puts both sides together into one tree that can be unpacked.
class Merger {
 public:
  explicit Merger(const CollectRequest& request) : request_(request) {}

  void LeaveOut(const std::string& path, std::int64_t size, std::string reason) {
    ++out_.result.left_out_count;
    if (out_.result.left_out.size() < limits::kLeftOutShown) {
      out_.result.left_out.push_back({path, size, std::move(reason)});
    }
  }

  // A model that a rule hides must not vanish without a word; a thousand temporary files may.
  void NameIgnored(const std::vector<std::string>& paths) {
    for (std::size_t i = 0; i < std::min(paths.size(), kNamed); ++i) {
      LeaveOut(
          paths[i], 0,
          "an ignore rule of the source covers it. Write it to $GPULAYER_OUTPUT_DIR to bring it "
          "home");
    }
    if (paths.size() > kNamed) {
      out_.result.left_out_count += static_cast<std::int64_t>(paths.size() - kNamed);
    }
  }

  void NameKeptOut(const std::vector<std::string>& folders) {
    // Many of them must not take the place of what is said after them.
    for (std::size_t i = 0; i < std::min(folders.size(), kNamed); ++i) {
      LeaveOut(folders[i], 0,
               "never comes home. Write to $GPULAYER_OUTPUT_DIR what is wanted of it (an archive, "
               "say)");
    }
    if (folders.size() > kNamed) {
      out_.result.left_out_count += static_cast<std::int64_t>(folders.size() - kNamed);
    }
  }

  // Results that a pattern was to take and did not: a letter too many must not lose them.
  void NameMissed(const std::vector<std::string>& patterns,
                  const std::vector<ListedEntry>& unwanted) {
    if (patterns.empty()) return;
    for (const std::string& pattern : patterns) {
      LeaveOut(pattern, 0, "no new or changed file matches this --output");
    }
    for (const ListedEntry& entry : unwanted) {
      LeaveOut(entry.path, entry.stamp.size, "no --output matches it");
    }
  }

  void Add(Side side) {
    std::vector<const ListedEntry*> chosen;
    std::vector<std::string> paths;
    std::unordered_set<std::string_view> big;
    std::int64_t to_read = 0;
    for (const ListedEntry& entry : side.entries) {
      if (IsReserved(entry)) continue;
      if (Clashes(entry, side)) continue;
      if (request_.unstable.contains(JoinPath(side.path, entry.path))) {
        LeaveOut(entry.path, entry.stamp.size, "it changes while it is read");
        continue;
      }
      if (entry.type == EntryType::kFile) {
        if (entry.stamp.size > request_.rules.limit_bytes - planned_) {
          LeaveOut(entry.path, entry.stamp.size,
                   "over the output limit of " + FormatSize(request_.rules.limit_bytes));
          continue;
        }
        planned_ += entry.stamp.size;
        to_read += entry.stamp.size;
        paths.push_back(entry.path);
        if (entry.stamp.size >= limits::kHandOverBytes) big.insert(entry.path);
      }
      chosen.push_back(&entry);
    }
    const std::vector<Result<HashedFile>> hashes =
        HashMany(side.root.get(), paths, to_read, request_.threads,
                 [&](int root, const std::string& path) -> Result<HashedFile> {
                   if (const auto at = side.stored.find(path); at != side.stored.end()) {
                     return at->second;
                   }
                   if (request_.hash_big && big.contains(path)) {
                     Result<HashedFile> done = request_.hash_big(root, path);
                     if (done.ok() || done.status().code() == StatusCode::kCancelled) return done;
                   }
                   return HashOne(root, path);
                 });
    out_.hashed_files += static_cast<std::int64_t>(paths.size());
    std::size_t next = 0;
    for (const ListedEntry* entry : chosen) {
      TreeEntry to;
      to.path = entry->path;
      to.type = entry->type;
      to.mode = entry->type == EntryType::kLink ? 0 : entry->mode;
      to.link_target = entry->link_target;
      if (entry->type == EntryType::kFile) {
        const Result<HashedFile>& hash = hashes[next++];
        if (!hash.ok()) {
          LeaveOut(entry->path, entry->stamp.size, hash.status().message());
          continue;
        }
        to.hash = hash->hash;
        to.size = hash->stamp.size;
        if (seen_.insert(to.hash).second) {
          out_.blobs.push_back({to.hash, to.size, JoinPath(side.path, entry->path)});
        }
      }
      Insert(std::move(to));
    }
  }

  Collected Finish() {
    DropLinksThatLeave();
    for (auto& [path, entry] : entries_) {
      if (entry.type != EntryType::kFolder) ++out_.result.files;
      out_.result.bytes += entry.size;
      out_.tree.entries.push_back(std::move(entry));
    }
    return std::move(out_);
  }

 private:
  static constexpr std::string_view kReserved = ".gpulayer.json";

  // Of a folder of that name one line tells.
  bool IsReserved(const ListedEntry& entry) {
    const std::string_view path = entry.path;
    if (!path.starts_with(kReserved)) return false;
    const bool below = path.size() > kReserved.size() && path[kReserved.size()] == '/';
    if (!below && path.size() != kReserved.size()) return false;
    const bool folder = below || entry.type == EntryType::kFolder;
    if (folder && std::exchange(reserved_folder_told_, true)) return true;
    LeaveOut(std::string(kReserved) + (folder ? "/" : ""), folder ? 0 : entry.stamp.size,
             "this name is kept for the run folder's own record");
    return true;
  }

  // What came first (the output folder) stays.
  bool Clashes(const ListedEntry& entry, const Side& side) {
    const auto same = entries_.find(entry.path);
    // Two folders are one, with the first one's mode.
    const bool folder = same == entries_.end() ? folders_.contains(entry.path)
                                               : same->second.type == EntryType::kFolder;
    if (folder && entry.type == EntryType::kFolder) return true;
    if (same != entries_.end() && same->second.type != EntryType::kFolder) {
      if (!IsCopy(entry, side, same->second)) {
        LeaveOut(entry.path, entry.stamp.size,
                 "another file of that name is in the output folder, and that one comes home");
      }
      return true;
    }
    if (same != entries_.end() || folders_.contains(entry.path)) {
      LeaveOut(entry.path, entry.stamp.size, "a folder of that name is in the output folder");
      return true;
    }
    for (std::size_t end = entry.path.find('/'); end != std::string::npos;
         end = entry.path.find('/', end + 1)) {
      const auto above = entries_.find(entry.path.substr(0, end));
      if (above == entries_.end() || above->second.type == EntryType::kFolder) continue;
      LeaveOut(
          entry.path, entry.stamp.size,
          "\"" + Printable(above->first) + "\" of the output folder has the place of its folder");
      return true;
    }
    return false;
  }

  static bool IsCopy(const ListedEntry& entry, const Side& side, const TreeEntry& other) {
    if (entry.type != other.type) return false;
    if (entry.type == EntryType::kLink) return entry.link_target == other.link_target;
    if (entry.stamp.size != other.size) return false;
    if (const auto at = side.stored.find(entry.path); at != side.stored.end()) {
      return at->second.hash == other.hash;
    }
    const Result<HashedFile> hash = HashOne(side.root.get(), entry.path);
    return hash.ok() && hash->hash == other.hash;
  }

  void Insert(TreeEntry entry) {
    for (std::size_t end = entry.path.rfind('/'); end != std::string::npos && end > 0;
         end = entry.path.rfind('/', end - 1)) {
      if (!folders_.insert(entry.path.substr(0, end)).second) break;
    }
    std::string path = entry.path;
    entries_.insert_or_assign(std::move(path), std::move(entry));
  }

  // Each link was checked on its own side; beside the other side's links it may lead elsewhere.
  void DropLinksThatLeave() {
    const auto read_link = [this](const std::string& at) {
      const auto it = entries_.find(at);
      return it == entries_.end() ? std::string() : it->second.link_target;
    };
    std::vector<std::string> bad;
    for (const auto& [path, entry] : entries_) {
      if (entry.type == EntryType::kLink && !LinkStaysInside(path, entry.link_target, read_link)) {
        bad.push_back(path);
      }
    }
    for (const std::string& path : bad) {
      entries_.erase(path);
      LeaveOut(path, 0, "a link that leaves the outputs");
    }
  }

  const CollectRequest& request_;
  std::map<std::string, TreeEntry> entries_;
  std::unordered_set<std::string> folders_;  // of entries_
  std::unordered_set<Hash> seen_;
  std::int64_t planned_ = 0;
  bool reserved_folder_told_ = false;
  Collected out_;
};

}  // namespace

Result<std::string> NormalOutputGlob(const std::string& pattern) {
  const auto refused = [&](const std::string& why) {
    return InvalidArgument("\"" + Printable(pattern) + "\": " + why);
  };
  if (pattern.starts_with('!')) {
    return refused(
        "a pattern names what comes home, none leaves out. Write a \\ before a name's !");
  }
  if (pattern.starts_with('#')) return refused("write a \\ before the #");
  std::string out;
  for (const std::string& part : Split(pattern, '/')) {
    if (part == "..") {
      return refused(
          "it leads out of the job's working directory, and nothing there comes home. Let the job "
          "write to $GPULAYER_OUTPUT_DIR");
    }
    if (!part.empty() && part != ".") out += (out.empty() ? "" : "/") + part;
  }
  const bool is_folder_itself = out.empty();  // the working directory
  if (is_folder_itself) out = "*";
  const std::size_t slash = pattern.find('/');
  const bool is_path = slash != std::string::npos && slash + 1 < pattern.size();
  if (is_path && out.find('/') == std::string::npos) out.insert(0, "/");
  if (pattern.ends_with('/') && !is_folder_itself) out += "/";
  if (Wildcard(out, Case::kKeep).malformed()) {
    return refused("it has a [ without its ], or ends in a \\. For the character itself write \\[");
  }
  return out;
}

bool MatchesOutputGlob(const std::string& pattern, const std::string& path) {
  return Matches(ToList(pattern), path);
}

Result<Collected> Collect(const CollectRequest& request) {
  Merger merger(request);
  if (!request.rules.collect) return merger.Finish();
  std::vector<Warning> warnings;
  std::vector<ListedEntry> unwanted;
  Globs globs(request.rules.globs);
  std::int64_t hashed = 0;
  std::string no_outputs, no_work;
  GPULAYER_ASSIGN_OR_RETURN(Side outputs, OpenSide(request.output_dir, &no_outputs));
  if (outputs.root.valid()) {
    GPULAYER_RETURN_IF_ERROR(ListOutputs(&outputs, &warnings));
    AddStored(request.stored, &outputs);
    for (const ListedEntry& entry : outputs.entries) globs.Take(entry.path);
    merger.Add(std::move(outputs));
  }
  GPULAYER_ASSIGN_OR_RETURN(Side work, OpenSide(request.work_dir, &no_work));
  if (work.root.valid()) {
    WorkSide side(request, globs);
    GPULAYER_RETURN_IF_ERROR(side.List(&work, &warnings, &hashed));
    AddStored(request.stored, &work);
    for (const auto& [path, file] : work.stored) globs.Take(path);
    merger.Add(std::move(work));
    merger.NameIgnored(side.ignored());
    merger.NameKeptOut(side.kept_out());
    unwanted = side.unwanted();
  }
  merger.NameMissed(globs.TookNothing(), unwanted);
  if (!no_outputs.empty()) merger.LeaveOut(".", 0, "the output folder: " + no_outputs);
  if (!no_work.empty()) merger.LeaveOut(".", 0, "the work folder: " + no_work);
  for (Warning& warning : warnings) {
    if (warning.path != ".") merger.LeaveOut(warning.path, 0, std::move(warning.reason));
  }
  Collected out = merger.Finish();
  out.hashed_files += hashed;
  return out;
}

}  // namespace gpulayer::tree
