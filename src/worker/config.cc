#include "worker/config.h"

#include <toml++/toml.h>

#include "base/fs.h"
#include "base/own_file.h"
#include "base/text.h"
#include "model/names.h"
#include "model/variables.h"

namespace gpulayer::worker {
namespace {

constexpr std::int64_t kMostSlots = 100'000;

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Status Bad(const toml::node& node, const std::string& what) const {
    return InvalidArgument(path_ + ":" + std::to_string(node.source().begin.line) + ": " + what);
  }

  Result<std::string> Text(const std::string& key, const toml::node& node) const {
    if (const auto text = node.value_exact<std::string>()) return *text;
    return Bad(node, key + " must be text in quotes");
  }

  Status Worker(const toml::table& table, WorkerFile& out) const {
    for (const auto& [k, node] : table) {
      const std::string key(k.str());
      if (key == "name" || key == "zone" || key == "region") {
        GPULAYER_ASSIGN_OR_RETURN(std::string text, Text(key, node));
        const Status fit = CheckName(key, text, key == "name" ? 1 : 0);
        if (!fit.ok()) return Bad(node, fit.message());
        (key == "name" ? out.name : key == "zone" ? out.zone : out.region) = std::move(text);
      } else if (key == "slots") {
        const auto n = node.value_exact<std::int64_t>();
        if (!n || *n < 0 || *n > kMostSlots) {
          return Bad(node, "slots must be a number from 0 to " + std::to_string(kMostSlots));
        }
        out.slots = static_cast<std::int32_t>(*n);
      } else if (key == "cache_size") {
        if (const auto n = node.value_exact<std::int64_t>(); n && *n >= 0) {
          out.cache_bytes = *n;
          continue;
        }
        GPULAYER_ASSIGN_OR_RETURN(const std::string text, Text(key, node));
        const Result<std::int64_t> size = ParseSize(text);
        if (!size.ok()) return Bad(node, "cache_size: " + size.status().message());
        out.cache_bytes = *size;
      } else {
        return Bad(node, "unknown key '" + key +
                             "' in [worker]. Known: name, slots, zone, region, cache_size");
      }
    }
    return OkStatus();
  }

  Status File(const toml::table& root, WorkerFile& out) const {
    for (const auto& [k, node] : root) {
      const std::string section(k.str());
      const toml::table* table = node.as_table();
      if (section != "worker" && section != "labels" && section != "env") {
        return Bad(node, "unknown key '" + section + "'. Known: [worker], [labels], [env]");
      }
      if (table == nullptr) return Bad(node, section + " must be a table: [" + section + "]");
      if (section == "worker") {
        GPULAYER_RETURN_IF_ERROR(Worker(*table, out));
        continue;
      }
      for (const auto& [name, value] : *table) {
        std::string key(name.str());
        GPULAYER_ASSIGN_OR_RETURN(std::string text, Text(key, value));
        if (section == "labels") {
          Status fit = CheckName("label", key, 1);
          if (fit.ok()) fit = CheckName("label " + key, text, 0);
          if (!fit.ok()) return Bad(value, fit.message());
          out.labels[std::move(key)] = std::move(text);
        } else if (key.empty() || key.find('=') != std::string::npos) {
          return Bad(value, "'" + key + "' is no name of a variable");
        } else if (IsSetByGpulayer(key)) {
          return Bad(value, key + ": GPUlayer sets it itself");
        } else {
          out.env.push_back({std::move(key), std::move(text)});
        }
      }
    }
    return OkStatus();
  }

 private:
  const std::string& path_;
};

}  // namespace

Result<WorkerFile> ParseWorkerFile(std::string_view text, const std::string& path) {
  try {  // the compiled library of the distribution is the one that throws
    const toml::table parsed = toml::parse(text, path);
    WorkerFile out;
    GPULAYER_RETURN_IF_ERROR(Reader(path).File(parsed, out));
    return out;
  } catch (const toml::parse_error& error) {
    return InvalidArgument(path + ":" + std::to_string(error.source().begin.line) + ": " +
                           std::string(error.description()));
  }
}

Result<WorkerFile> ReadWorkerFile(const std::string& path) {
  GPULAYER_ASSIGN_OR_RETURN(const std::string text, ReadOwnFile(path));
  return ParseWorkerFile(text, path);
}

}  // namespace gpulayer::worker
