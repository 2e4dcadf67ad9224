#include "worker/attempt_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "base/fs.h"
#include "base/log.h"
#include "base/own_file.h"
#include "model/items.h"
#include "model/limits.h"
#include "tree/collect.h"
#include "tree/unpack.h"
#include "wire/tree.h"
#include "worker/handed_over.h"
#include "worker/job_env.h"
#include "worker/session/artifacts.h"
#include "worker/session/assignment_file.h"

namespace gpulayer::worker {
namespace {

constexpr std::int64_t kMaxManifestBytes = std::int64_t{512} << 20;
// One more reading, then twice without what changed again.
constexpr int kCollectTries = 3;
constexpr int kHashThreads = 2;

// In an attempt's folder, with its id: its work folder is to be kept. Do not change.
constexpr const char* kKeepFile = "keep";

std::string StdinPath(const std::string& attempt_dir) { return JoinPath(attempt_dir, "stdin"); }

std::optional<std::string> OwnEnv(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

bool IsFolder(int fd, const std::string& path) {
  struct stat a = {};
  struct stat b = {};
  return fstat(fd, &a) == 0 && lstat(path.c_str(), &b) == 0 && a.st_ino == b.st_ino &&
         a.st_dev == b.st_dev;
}

}  // namespace

Result<std::unique_ptr<AttemptFiles>> AttemptFiles::Open(Options options, ServerLink link) {
  const std::string dir = options.data_dir;
  GPULAYER_ASSIGN_OR_RETURN(AttemptStore store, AttemptStore::Open(dir));
  std::unique_ptr<AttemptFiles> files(
      new AttemptFiles(std::move(options), std::move(link), std::move(store)));
  GPULAYER_ASSIGN_OR_RETURN(files->cache_,
                            BlobCache::Open({JoinPath(dir, "cache"), files->options_.cache_bytes}));
  const std::string& kept = files->options_.kept_dir;
  GPULAYER_ASSIGN_OR_RETURN(
      files->work_dirs_,
      WorkDirs::Open(JoinPath(dir, "work"), kept.empty() ? JoinPath(dir, "kept") : kept));
  files->job_cache_dir_ = JoinPath(dir, "job-cache");
  GPULAYER_RETURN_IF_ERROR(MakeDirs(files->job_cache_dir_));
  files->bin_dir_ = JoinPath(dir, "bin");
  GPULAYER_RETURN_IF_ERROR(MakePythonDir(files->bin_dir_, OwnEnv("PATH").value_or("")));
  return files;
}

BlobCache::Fetch AttemptFiles::Fetcher(Cancel& cancel) const {
  return [this, &cancel](const std::vector<Hash>& missing, BlobCache::Sink& sink) {
    return DownloadBlobs(link_, missing, sink, cancel);
  };
}

Result<std::shared_ptr<const Tree>> AttemptFiles::LoadTree(const Hash& hash, TimePoint deadline,
                                                           Cancel& cancel) {
  for (bool again = false;; again = true) {
    GPULAYER_ASSIGN_OR_RETURN(const BlobCache::Pins pins,
                              cache_->Ensure({hash}, Fetcher(cancel), deadline));
    const Result<std::string> bytes = cache_->ReadBlob(hash, kMaxManifestBytes);
    if (bytes.status().code() == StatusCode::kDataLoss && !again) continue;
    if (!bytes.ok()) return AsInternal(bytes.status());
    GPULAYER_ASSIGN_OR_RETURN(Tree tree, wire::ParseTree(*bytes));
    GPULAYER_RETURN_IF_ERROR(tree::CheckTree(tree));
    return std::make_shared<const Tree>(std::move(tree));
  }
}

Result<std::optional<std::string>> AttemptFiles::ItemOf(const Assignment& assignment,
                                                        TimePoint deadline, Cancel& cancel) {
  const JobSpec& spec = *assignment.spec;
  if (spec.items.empty()) return std::optional<std::string>();
  GPULAYER_ASSIGN_OR_RETURN(const std::shared_ptr<const LineFile> lines,
                            items_.Get(spec.items, [&]() -> Result<UniqueFd> {
                              GPULAYER_ASSIGN_OR_RETURN(
                                  const BlobCache::Pins pins,
                                  cache_->Ensure({spec.items}, Fetcher(cancel), deadline));
                              Result<UniqueFd> file = cache_->OpenBlob(spec.items);
                              if (!file.ok()) return AsInternal(file.status());
                              return file;
                            }));
  GPULAYER_ASSIGN_OR_RETURN(std::string item,
                            lines->Line(spec.tasks.PositionOf(assignment.key.ref.task.task)));
  return std::optional(std::move(item));
}

// Work folder and standard input. `fetched`: all that it needs of the server is here, and what fails
// after that is this machine's.
Status AttemptFiles::LayOut(const Assignment& assignment, TimePoint deadline, Cancel& cancel,
                            bool* fetched) {
  const AttemptId& id = assignment.key.id;
  const JobSpec& spec = *assignment.spec;
  std::shared_ptr<const Tree> tree;
  std::vector<Hash> blobs;
  if (!spec.source_tree.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(tree, LoadTree(spec.source_tree, deadline, cancel));
    blobs = BlobsOf(*tree);
  }
  if (!spec.stdin_blob.empty()) blobs.push_back(spec.stdin_blob);
  std::optional<BlobCache::Pins> pins;
  if (!blobs.empty()) {
    GPULAYER_ASSIGN_OR_RETURN(BlobCache::Pins got,
                              cache_->Ensure(blobs, Fetcher(cancel), deadline));
    pins = std::move(got);
  }
  GPULAYER_ASSIGN_OR_RETURN(const std::optional<std::string> item,
                            ItemOf(assignment, deadline, cancel));
  *fetched = true;
  if (cancel.requested()) return Cancelled("preparation broken off");
  GPULAYER_RETURN_IF_ERROR(work_dirs_->Discard(id));  // of an attempt at it that was broken off
  GPULAYER_ASSIGN_OR_RETURN(const WorkDir dir, work_dirs_->Create(id, tree.get(), *cache_));
  if (!spec.stdin_blob.empty()) {
    // A copy: the program must not be able to change what others read.
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd from, cache_->OpenBlob(spec.stdin_blob));
    GPULAYER_ASSIGN_OR_RETURN(const UniqueFd to,
                              OpenFile(StdinPath(dir.path), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    struct stat st = {};
    if (fstat(from.get(), &st) != 0) return ErrnoStatus("read standard input", errno);
    GPULAYER_RETURN_IF_ERROR(tree::CopyContent(from.get(), to.get(), st.st_size));
  }

  AttemptSpec run;
  run.argv = item ? WithItem(spec.command, *item) : spec.command;
  run.env = BuildJobEnv(assignment, {options_.worker_name, bin_dir_, job_cache_dir_, dir.out,
                                     dir.input, dir.tmp, item, options_.worker_env, OwnEnv});
  run.cwd = dir.work;
  if (!spec.stdin_blob.empty()) run.stdin_path = StdinPath(dir.path);
  run.time_limit = spec.time_limit;
  run.grace = spec.grace;
  run.log_limit = spec.log_limit_bytes;
  run.memory_limit = spec.requirements.memory_bytes;
  run.secrets = std::ssize(spec.secrets);
  const Status written = store_.WriteSpec(id, run);
  if (written.code() == StatusCode::kInvalidArgument) *fetched = false;  // too long, on any machine
  return written;
}

Status AttemptFiles::Prepare(const Assignment& assignment, Cancel& cancel) {
  const AttemptId& id = assignment.key.id;
  const Result<std::string> made = store_.Create(id);
  if (!made.ok() && made.status().code() != StatusCode::kAlreadyExists) {
    return AsInternal(made.status());
  }
  GPULAYER_RETURN_IF_ERROR(AsInternal(WriteAssignment(store_.PathOf(id), assignment)));
  const TimePoint deadline = Clock::System().Now().mono + limits::kPrepareLimit;
  bool fetched = false;
  Status status = LayOut(assignment, deadline, cancel, &fetched);
  // A damaged blob of the cache was dropped: the server has a good one.
  if (status.code() == StatusCode::kDataLoss) {
    fetched = false;
    status = LayOut(assignment, deadline, cancel, &fetched);
  }
  if (cancel.requested()) return Cancelled("preparation broken off");
  // Said of the server's blobs "not found" means that the job cannot run anywhere; of this machine's
  // own files that another machine is to try it.
  return fetched ? AsInternal(status) : status;
}

Result<OutputResult> AttemptFiles::Collect(const Assignment& assignment, Cancel& cancel) {
  const JobSpec& spec = *assignment.spec;
  const Result<WorkDir> adopted = work_dirs_->Adopt(assignment.key.id);
  if (adopted.status().code() == StatusCode::kNotFound) {
    // It was laid out, or the program would not have run.
    OutputResult none;
    none.left_out = {
        {".", 0, "the program removed or replaced the folder of its attempt, outputs and all"}};
    none.left_out_count = 1;
    return none;
  }
  if (!adopted.ok()) return adopted.status();
  const WorkDir& dir = *adopted;
  std::shared_ptr<const Tree> source;
  if (!spec.source_tree.empty()) {
    const TimePoint deadline = Clock::System().Now().mono + limits::kPrepareLimit;
    GPULAYER_ASSIGN_OR_RETURN(source, LoadTree(spec.source_tree, deadline, cancel));
  }
  tree::CollectRequest request;
  request.work_dir = dir.work;
  request.output_dir = dir.out;
  request.source = source.get();
  request.stamp = dir.stamp;
  request.rules = spec.outputs;
  request.threads = kHashThreads;
  // Named by the attempt: nothing of another one is ever taken for its own.
  HandedOver handed(
      JoinPath(store_.PathOf(assignment.key.id), "handed-" + assignment.key.id.value()), dir.path);
  GPULAYER_RETURN_IF_ERROR(handed.Load());
  // What is handed over leaves the folder, which whoever keeps it wants to see whole.
  if (!spec.keep) {
    request.hash_big = [&](int root, const std::string& path) -> Result<tree::HashedFile> {
      GPULAYER_ASSIGN_OR_RETURN(const tree::HashedFile file, HandOver(link_, root, path, cancel));
      const std::string side = IsFolder(root, dir.out) ? dir.out : dir.work;
      if (const Status taken = handed.TakeAway(root, side, path, file); !taken.ok()) {
        LogWarning("attempt " + assignment.key.id.value() + ": " + taken.message());
      }
      return file;
    };
  }
  for (int tries = 0;; ++tries) {
    request.stored = handed.files();
    GPULAYER_ASSIGN_OR_RETURN(tree::Collected found, tree::Collect(request));
    if (cancel.requested()) return Cancelled("collecting outputs broken off");
    if (found.tree.entries.empty()) return found.result;
    const std::string manifest = wire::SerializeTree(found.tree);
    found.result.tree = Hash::Of(manifest);
    const Status sent = UploadTree(link_, found.result.tree, manifest, found.blobs, cancel);
    if (sent.ok()) return found.result;
    // A file that somebody else wrote to between its hash and its bytes must not cost the others: it
    // is read once more, then left out.
    const bool of_a_file =
        sent.code() == StatusCode::kDataLoss || sent.code() == StatusCode::kNotFound ||
        sent.code() == StatusCode::kFailedPrecondition || sent.code() == StatusCode::kInternal;
    bool changed = false;
    const std::map<std::string, TreeEntry> gone = handed.files();
    for (const tree::BlobFile& blob : found.blobs) {
      if (!of_a_file || tries == kCollectTries) break;
      if (gone.contains(blob.path)) continue;
      if (tree::HasContent(blob.path, blob.hash)) continue;
      changed = true;
      if (tries > 0) request.unstable.insert(blob.path);
    }
    if (!changed && !(of_a_file && tries == 0)) return sent;
  }
}

std::string AttemptFiles::Keep(const AttemptId& id) {
  // Before the server is told: whoever ends this attempt, after a restart too, is to know.
  Result<std::string> place = work_dirs_->PlaceToKeep(id);
  if (place.ok()) {
    const Status marked = ReplaceFile(JoinPath(store_.PathOf(id), kKeepFile), id.value());
    if (!marked.ok()) place = marked;
  }
  if (place.ok()) return *std::move(place);
  LogWarning("keep the work folder of attempt " + id.value() + ": " + place.status().message());
  return "";
}

void AttemptFiles::Discard(const AttemptId& id) {
  // One of another attempt says nothing: the folder may have served before.
  const Result<std::string> mark = ReadOwnFile(JoinPath(store_.PathOf(id), kKeepFile));
  const bool keep = mark.ok() && *mark == id.value();
  // First the work folder: as long as the attempt's own folder stands a restart finds it again.
  Status status =
      mark.ok() || mark.status().code() == StatusCode::kNotFound ? OkStatus() : mark.status();
  if (status.ok()) status = keep ? work_dirs_->Keep(id) : work_dirs_->Discard(id);
  if (status.ok()) status = store_.Remove(id);
  if (!status.ok()) LogWarning("clean up attempt " + id.value() + ": " + status.message());
}

Result<std::vector<AttemptFiles::Found>> AttemptFiles::FindAttempts(
    const std::vector<AttemptId>& running) {
  std::vector<Found> found;
  std::set<AttemptId> known(running.begin(), running.end());
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<AttemptId> ids, store_.List());
  for (const AttemptId& id : ids) {
    Result<Assignment> assignment = ReadAssignment(store_.PathOf(id));
    // The folder may have served before, and after a power cut a name may be newer than its file.
    if (assignment.ok() && assignment->key.id != id) assignment = DataLoss("of another attempt");
    if (assignment.ok()) {
      known.insert(id);
      const bool begun = PathExists(JoinPath(store_.PathOf(id), kSpecFile));
      found.push_back({*std::move(assignment), begun});
    } else if (known.contains(id)) {
      LogError("attempt " + id.value() +
               " runs, but what it is cannot be read: " + assignment.status().message());
    } else {
      Discard(id);
    }
  }
  GPULAYER_ASSIGN_OR_RETURN(const std::vector<AttemptId> folders, work_dirs_->List());
  for (const AttemptId& id : folders) {
    if (!known.contains(id)) Discard(id);
  }
  return found;
}

}  // namespace gpulayer::worker
