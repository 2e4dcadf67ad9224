#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tree/beneath.h"
#include "tree/unpack.h"

namespace gpulayer::tree {
namespace {

constexpr std::size_t kMaxNameBytes = 255;
constexpr int kMaxLinkHops = 40;  // Linux gives up there too, so a longer chain leads nowhere
constexpr int kMaxLinkParts = 1000;

Status Bad(const TreeEntry& entry, const std::string& why) {
  return InvalidArgument("tree entry \"" + Printable(entry.path.substr(0, 300)) + "\": " + why +
                         ". Nothing was written");
}

// Why a path cannot stand in a tree; "" if it can.
std::string PathProblem(std::string_view path) {
  if (path.empty()) return "an empty name";
  if (path[0] == '/') return "an absolute name";
  if (path.size() > kMaxPathBytes) return "longer than 4000 bytes";
  if (path.find('\0') != std::string_view::npos) return "a NUL byte in the name";
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty()) return "an empty part";
    if (part == ".." || part == ".") return "a part \"" + std::string(part) + "\"";
    if (part.size() > kMaxNameBytes) return "a part longer than 255 bytes";
    begin = end + 1;
  }
  return "";
}

}  // namespace

bool LinkStaysInside(const std::string& path, const std::string& target,
                     const std::function<std::string(const std::string&)>& read_link) {
  if (target.empty() || target[0] == '/') return false;
  // The real folder in which the walk stands; links met on the way are walked before the rest.
  std::string at = path.substr(0, path.find('/') == std::string::npos ? 0 : path.rfind('/'));
  struct Rest {
    std::string text;
    std::size_t next = 0;
  };
  std::vector<Rest> todo = {{target, 0}};
  int hops = 0, parts = 0;
  while (!todo.empty()) {
    Rest& rest = todo.back();
    if (rest.next >= rest.text.size()) {
      todo.pop_back();
      continue;
    }
    const std::size_t end = std::min(rest.text.find('/', rest.next), rest.text.size());
    const std::string_view part = std::string_view(rest.text).substr(rest.next, end - rest.next);
    rest.next = end + 1;
    if (part.empty() || part == ".") continue;
    // Bounds the work that a crafted tree can cause.
    if (++parts > kMaxLinkParts || at.size() > kMaxPathBytes) return false;
    const std::size_t length = at.size();
    if (part == "..") {
      if (at.empty()) return false;
      const std::size_t cut = at.rfind('/');
      at.resize(cut == std::string::npos ? 0 : cut);
      continue;
    }
    if (!at.empty()) at += '/';
    at += part;
    std::string through = read_link(at);
    if (through.empty()) continue;
    if (through[0] == '/') return false;
    if (++hops > kMaxLinkHops) return true;  // a loop: harmless, nothing can be reached through it
    at.resize(length);
    todo.push_back({std::move(through), 0});
  }
  return true;
}

Status CheckTree(const Tree& tree) {
  std::unordered_map<std::string_view, std::string_view> links;
  std::unordered_map<std::string_view, const TreeEntry*>
      by_path;  // all that can have nothing below
  const TreeEntry* previous = nullptr;
  std::int64_t total = 0;
  for (const TreeEntry& entry : tree.entries) {
    if (const std::string problem = PathProblem(entry.path); !problem.empty()) {
      return Bad(entry, problem);
    }
    if (previous != nullptr && previous->path >= entry.path) {
      return Bad(entry, previous->path == entry.path ? "it stands there twice"
                                                     : "it is not in the order of names");
    }
    previous = &entry;
    switch (entry.type) {
      case EntryType::kFile:
        if (entry.hash.empty()) return Bad(entry, "a file without a hash");
        if (entry.size < 0 || entry.size > INT64_MAX - total) return Bad(entry, "a bad size");
        total += entry.size;
        by_path.emplace(entry.path, &entry);
        break;
      case EntryType::kLink:
        if (entry.link_target.empty() || entry.link_target.size() > kMaxPathBytes ||
            entry.link_target.find('\0') != std::string::npos) {
          return Bad(entry, "a bad link target");
        }
        links.emplace(entry.path, entry.link_target);
        by_path.emplace(entry.path, &entry);
        break;
      case EntryType::kFolder: break;
      default: return Bad(entry, "an unknown type");
    }
    if (entry.mode > 0777) return Bad(entry, "a mode beyond 0777");
  }
  std::string_view checked;  // the folder of the last entry: its parents are known to be good
  for (const TreeEntry& entry : tree.entries) {
    const std::string_view path = entry.path;
    const std::size_t last = path.rfind('/');
    const std::string_view folder = path.substr(0, last == std::string_view::npos ? 0 : last);
    if (folder != checked) {
      for (std::size_t end = path.find('/'); end != std::string_view::npos;
           end = path.find('/', end + 1)) {
        const auto above = by_path.find(path.substr(0, end));
        if (above == by_path.end()) continue;
        return Bad(entry, "it lies below \"" + Printable(above->second->path) + "\", which is " +
                              (above->second->type == EntryType::kLink ? "a link" : "a file"));
      }
      checked = folder;
    }
  }
  const auto read_link = [&links](const std::string& at) {
    const auto it = links.find(at);
    return it == links.end() ? std::string() : std::string(it->second);
  };
  for (const TreeEntry& entry : tree.entries) {
    if (entry.type == EntryType::kLink &&
        !LinkStaysInside(entry.path, entry.link_target, read_link)) {
      return Bad(entry, "a link that leaves the folder (to " + Printable(entry.link_target) + ")");
    }
  }
  return OkStatus();
}

}  // namespace gpulayer::tree
