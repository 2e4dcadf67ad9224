#include "tree/git_tree.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/fs.h"

namespace gpulayer::testing {
namespace {

using Random = std::mt19937_64;

std::size_t Below(Random& random, std::size_t n) { return random() % n; }
bool Chance(Random& random, std::size_t percent) { return Below(random, 100) < percent; }
template <typename T>
const T& Pick(Random& random, const std::vector<T>& from) {
  return from[Below(random, from.size())];
}

const std::vector<std::string> kFolderNames = {"a",   "b",    "ab",  "src", "data",        "build",
                                               "foo", "logs", "out", "a b", "[a]",         "a\xff",
                                               "A",   ".hid", "x*y", "a-b", "__pycache__", "foo.d"};
const std::vector<std::string> kFileNames = {
    "a",      "b",     "ab",       "foo",   "foo.txt", "keep.pt", "x.pt", "x.log", "bar", "a b",
    "trail ", "trail", "\xfe\xff", "q?",    "!bang",   "#hash",   "a\\b", "[a]",   "A",   ".hid",
    "foo.d",  "a.txt", "ab.txt",   "b.txt", "build",   "data",    "out",  "-",     "]",   "a\tb"};
const std::vector<std::string> kPatterns = {"*",
                                            "a",
                                            "/a",
                                            "a/",
                                            "/a/",
                                            "!a",
                                            "!/a/",
                                            "*.pt",
                                            "!keep.pt",
                                            "/out",
                                            "data/*",
                                            "!data/foo",
                                            "**/foo",
                                            "foo/**",
                                            "a/**/b",
                                            "**",
                                            "**/",
                                            "/**/a",
                                            "a/*",
                                            "!a/b",
                                            "trail ",
                                            "trail\\ ",
                                            "\\!bang",
                                            "\\#hash",
                                            "#hash",
                                            "a\\\\b",
                                            "[ab]",
                                            "[!a]",
                                            "[^a]*",
                                            "[a-b]*.txt",
                                            "q\\?",
                                            "?",
                                            "??",
                                            "*.[a-lp]*",
                                            "\\[a\\]",
                                            "src/*.pt",
                                            "src/**/*.pt",
                                            "!*/",
                                            "*/",
                                            "/*",
                                            "!/src",
                                            "!/src/",
                                            "!src/**",
                                            "x*y",
                                            "x\\*y",
                                            "foo.*",
                                            ".*",
                                            "!.gitignore",
                                            "a b",
                                            "/a b/",
                                            "[[:alpha:]]",
                                            "[[:upper:]]",
                                            "[]]",
                                            "[]-a]",
                                            "[a",
                                            "a\\",
                                            "*a*b*",
                                            "build",
                                            "!build/",
                                            "/*/*/a",
                                            "*/b",
                                            "**/a/**",
                                            "a**",
                                            "src**/a",
                                            "***",
                                            "a/**",
                                            "!a/**/foo",
                                            "logs/**/x.log",
                                            "\xef\xbb\xbf/foo",
                                            "\xfe*",
                                            "[\xfe]*",
                                            "  ",
                                            "/",
                                            "//",
                                            "!",
                                            "foo//",
                                            "./a",
                                            "a/./b",
                                            "../a",
                                            "*\\",
                                            "[!]a-]",
                                            "[a\\-b]",
                                            "{a,b}",
                                            "a[/]b",
                                            "foo*/",
                                            "!foo*/a",
                                            "-",
                                            "[--0]",
                                            "[[:bad:]]",
                                            "[[.a.]]",
                                            "a\tb"};

std::string RandomPattern(Random& random) {
  if (Chance(random, 65)) return Pick(random, kPatterns);
  static const std::vector<std::string> kPieces = {"a",    "b",    "*",  "**", "/",   "?",
                                                   "[ab]", "[!a]", "\\", " ",  ".",   "foo",
                                                   "txt",  "/**/", "*/", "!",  "src", "[a-"};
  std::string text;
  for (std::size_t n = 1 + Below(random, 5); n > 0; --n) text += Pick(random, kPieces);
  return text;
}

std::string RandomRules(Random& random) {
  std::string text = Chance(random, 10) ? "\xef\xbb\xbf" : "";
  for (std::size_t n = 1 + Below(random, 5); n > 0; --n) {
    text += RandomPattern(random);
    if (Chance(random, 10)) text += Chance(random, 50) ? "  " : "\\  ";
    if (n == 1 && Chance(random, 15)) break;  // no newline at the end
    text += Chance(random, 10) ? "\r\n" : "\n";
    if (Chance(random, 10)) text += "\n# a comment\n";
  }
  return text;
}

bool IsFolder(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

class Maker {
 public:
  Maker(std::uint64_t seed, std::string root, std::string home)
      : random_(seed), root_(std::move(root)), home_(std::move(home)) {}

  std::vector<std::string> Make() {
    UserSettings();
    Git(root_, {"init", "-q"});
    Fill("", 0);
    if (Chance(random_, 40)) Put(root_ + "/.git/info/exclude", RandomRules(random_));
    Nested();
    Track();
    std::vector<std::string> roots = {""};
    for (int i = 0; i < 2 && !folders_.empty(); ++i) roots.push_back(Pick(random_, folders_));
    return roots;
  }

 private:
  void Git(const std::string& dir, std::vector<std::string> args) {
    args.insert(args.begin(), "git");
    RunIn(dir, home_, std::move(args));
  }

  void UserSettings() {
    if (Chance(random_, 20)) Put(home_ + "/.config/git/ignore", RandomRules(random_));
    if (Chance(random_, 20)) {
      Put(home_ + "/.gitconfig", "[core]\n\texcludesfile = ~/my-ignore\n");
      Put(home_ + "/my-ignore", RandomRules(random_));
    }
  }

  void Fill(const std::string& folder, int depth) {
    if (Chance(random_, depth == 0 ? 85 : 35)) Put(At(folder, ".gitignore"), RandomRules(random_));
    for (std::size_t n = 1 + Below(random_, depth == 0 ? 8 : 5); n > 0; --n) {
      const std::string path = Join(folder, Pick(random_, kFileNames));
      if (PathExists(At("", path))) continue;
      if (Chance(random_, 6)) {
        symlink(Chance(random_, 50) ? "a" : "b/foo", At("", path).c_str());
      } else {
        Put(At("", path));
      }
      files_.push_back(path);
    }
    if (depth == 4) return;
    for (std::size_t n = Below(random_, depth == 0 ? 5 : 3) + (depth == 0 ? 1 : 0); n > 0; --n) {
      const std::string path = Join(folder, Pick(random_, kFolderNames));
      if (PathExists(At("", path))) continue;
      IgnoreError(MakeDirs(At("", path), 0755), "seen by what follows");
      folders_.push_back(path);
      if (Chance(random_, 5)) Put(At(path, "pyvenv.cfg"));
      if (!Chance(random_, 10)) Fill(path, depth + 1);
    }
  }

  // Submodules (with a commit, in the index), repositories that are merely there, and broken ones.
  void Nested() {
    for (std::size_t n = Below(random_, 3); n > 0; --n) {
      std::string path = Chance(random_, 50) && !folders_.empty()
                             ? Join(Pick(random_, folders_), "nested")
                             : "nested" + std::to_string(n);
      if (PathExists(At("", path))) continue;
      const std::string at = At("", path);
      Put(at + "/a");
      Put(at + "/foo.txt");
      Put(at + "/sub/x.pt");
      Put(at + "/sub/b");
      if (Chance(random_, 60)) Put(at + "/.gitignore", RandomRules(random_));
      if (Chance(random_, 15)) {  // only looks like one
        IgnoreError(MakeDirs(at + "/.git", 0755), "seen by what follows");
        continue;
      }
      if (Chance(random_, 30)) {
        const std::string elsewhere = home_ + "/git-dir-" + std::to_string(n);
        Git(at, {"init", "-q", "--separate-git-dir", elsewhere});
      } else {
        Git(at, {"init", "-q"});
        if (Chance(random_, 30)) Put(at + "/.git/info/exclude", RandomRules(random_));
      }
      if (Chance(random_, 70)) {
        Git(at, {"add", "-f", "a"});
        Git(at, {"commit", "-q", "-m", "one"});
        if (Chance(random_, 70)) {
          Git(root_, {"add", "-f", path});
          if (Chance(random_, 20)) {  // not checked out
            IgnoreError(RemoveTree(at), "seen by what follows");
            IgnoreError(MakeDirs(at, 0755), "seen by what follows");
            if (Chance(random_, 50)) Put(at + "/stray");
          }
        }
      }
    }
  }

  void Track() {
    std::vector<std::string> args = {"add", "-f", "--"};
    std::vector<std::string> tracked;
    for (const std::string& file : files_) {
      if (Chance(random_, 30)) tracked.push_back(":(literal)" + file);
    }
    if (tracked.empty()) return;
    args.insert(args.end(), tracked.begin(), tracked.end());
    Git(root_, args);
    if (Chance(random_, 50)) Git(root_, {"commit", "-q", "-m", "one"});
    for (const std::string& file : tracked) {
      if (Chance(random_, 15)) unlink(At("", file.substr(10)).c_str());
    }
  }

  std::string Join(const std::string& folder, const std::string& name) const {
    return folder.empty() ? name : folder + "/" + name;
  }
  std::string At(const std::string& folder, const std::string& name) const {
    return root_ + "/" + Join(folder, name);
  }

  Random random_;
  const std::string root_, home_;
  std::vector<std::string> files_, folders_;
};

bool NeverShips(const std::string& root, const std::string& path) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (part == ".git" || part == "__pycache__" || part == "gpulayer_runs") return true;
    if (end < path.size() && PathExists(root + "/" + path.substr(0, end) + "/pyvenv.cfg"))
      return true;
    begin = end + 1;
  }
  return false;
}

bool ThroughLink(const std::string& root, const std::string& path) {
  for (std::size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    struct stat info = {};
    if (lstat((root + "/" + path.substr(0, end)).c_str(), &info) != 0) return true;
    if (!S_ISDIR(info.st_mode)) return true;
  }
  return false;
}

void ListInto(const std::string& root, const std::string& below, const std::string& home,
              std::set<std::string>* out) {
  const std::string at = below.empty() ? root : root + "/" + below;
  const Output list = RunIn(at, home, {"git", "ls-files", "-z", "-co", "--exclude-standard"});
  for (std::size_t begin = 0; begin < list.text.size();) {
    const std::size_t end = list.text.find('\0', begin);
    std::string name = list.text.substr(begin, end - begin);
    begin = end + 1;
    if (name.back() == '/') name.pop_back();
    const std::string path = below.empty() ? name : below + "/" + name;
    if (!PathExists(root + "/" + path) || ThroughLink(root, path)) continue;
    if (IsFolder(root + "/" + path)) {
      if (PathExists(root + "/" + path + "/.git")) ListInto(root, path, home, out);
    } else if (!NeverShips(root, path)) {
      out->insert(path);
    }
  }
}

}  // namespace

Output RunIn(const std::string& dir, const std::string& home, std::vector<std::string> argv) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return {};
  const char* path = getenv("PATH");
  const std::vector<std::string> env = {
      "HOME=" + home,
      std::string("PATH=") + (path != nullptr ? path : "/usr/bin"),
      "GIT_CONFIG_NOSYSTEM=1",
      "GIT_TEMPLATE_DIR=",
      "GIT_CONFIG_COUNT=1",
      "GIT_CONFIG_KEY_0=core.fsync",  // most of the time of a run
      "GIT_CONFIG_VALUE_0=none",
      "GIT_AUTHOR_NAME=t",
      "GIT_AUTHOR_EMAIL=t@example.org",
      "GIT_COMMITTER_NAME=t",
      "GIT_COMMITTER_EMAIL=t@example.org"};
  std::vector<char*> args, envs;
  for (std::string& arg : argv) args.push_back(arg.data());
  for (const std::string& var : env) envs.push_back(const_cast<char*>(var.c_str()));
  args.push_back(nullptr);
  envs.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, dir.c_str());
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), envs.data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  Output out;
  char buffer[65536];
  for (ssize_t n = 0; (n = read(pipe_fds[0], buffer, sizeof(buffer))) > 0;) {
    out.text.append(buffer, static_cast<std::size_t>(n));
  }
  close(pipe_fds[0]);
  int status = 0;
  if (error == 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status)) {
    out.code = WEXITSTATUS(status);
  }
  return out;
}

bool HaveGit() { return RunIn("/", "/nonexistent", {"git", "--version"}).code == 0; }

void Put(const std::string& path, const std::string& content) {
  IgnoreError(MakeDirs(DirName(path), 0755), "the write below fails then");
  Result<UniqueFd> fd = OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd.ok()) IgnoreError(WriteAll(fd->get(), content), "the test sees what is missing");
}

std::vector<std::string> MakeRandomTree(std::uint64_t seed, const std::string& root,
                                        const std::string& home) {
  return Maker(seed, root, home).Make();
}

std::set<std::string> GitList(const std::string& root, const std::string& home) {
  std::set<std::string> out;
  ListInto(root, "", home, &out);
  return out;
}

std::size_t FilesOnDisk(const std::string& root) {
  std::size_t count = 0;
  for (auto it = std::filesystem::recursive_directory_iterator(root); it != end(it); ++it) {
    if (it->path().filename() == ".git") {
      it.disable_recursion_pending();
    } else if (it->is_symlink() || !it->is_directory()) {
      ++count;
    }
  }
  return count;
}

}  // namespace gpulayer::testing
