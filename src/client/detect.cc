// DetectWorker: asks the worker's own program, which has the probes.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/fs.h"
#include "base/host.h"
#include "base/text.h"
#include "client/paths.h"
#include "client/spawn.h"
#include "gpulayer/host.h"

namespace gpulayer {
namespace {

using nlohmann::json;

std::int64_t Number(const json& j, const char* key) {
  return j.contains(key) && j[key].is_number_integer() ? j[key].get<std::int64_t>() : 0;
}
std::string Text(const json& j, const char* key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "";
}

api::Accelerator KindOf(const std::string& name) {
  for (const api::Accelerator kind :
       {api::Accelerator::kCuda, api::Accelerator::kRocm, api::Accelerator::kMetal}) {
    if (name == api::ToString(kind)) return kind;
  }
  return api::Accelerator::kNone;
}

}  // namespace

Result<api::MachineResources> api::DetectResources() {
  GPULAYER_ASSIGN_OR_RETURN(WorkerInfo worker, DetectWorker());
  return std::move(worker.resources);
}

Result<api::WorkerInfo> api::DetectWorker() {
  client::SpawnOptions spawn;
  GPULAYER_ASSIGN_OR_RETURN(std::string program, client::FindProgram("gpulayer-worker"));
  spawn.argv = {std::move(program), "--print-resources"};
  GPULAYER_ASSIGN_OR_RETURN(client::Pipe pipe, client::MakePipe());
  spawn.stdout_fd = pipe.write_end.get();
  const UniqueFd words(::memfd_create("gpulayer-detect", MFD_CLOEXEC));  // why it could not
  if (!words.valid()) return ErrnoStatus("detect resources", errno);
  spawn.stderr_fd = words.get();
  GPULAYER_ASSIGN_OR_RETURN(const pid_t pid, client::Spawn(spawn));
  pipe.write_end.Reset();
  std::string text;
  char buffer[4096];
  for (;;) {
    GPULAYER_ASSIGN_OR_RETURN(const std::size_t n,
                              ReadSome(pipe.read_end.get(), buffer, sizeof buffer));
    if (n == 0) break;
    text.append(buffer, n);
  }
  ::waitpid(pid, nullptr, 0);
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object()) {
    const std::string own = "gpulayer-worker: ";
    std::string said(4096, '\0');
    said.resize(static_cast<std::size_t>(
        std::max<ssize_t>(0, ::pread(words.get(), said.data(), said.size(), 0))));
    const std::string why = TrimmedEnd(said.starts_with(own) ? said.substr(own.size()) : said);
    return Unavailable("detect resources: " +
                       (why.empty() ? "gpulayer-worker ended without a word." : Printable(why)));
  }
  WorkerInfo worker;
  worker.name = Text(j, "name");
  if (worker.name.empty()) {  // as the worker itself would
    const std::string host = HostName();
    worker.name = host.substr(0, host.find('.'));
  }
  worker.zone = Text(j, "zone");
  worker.region = Text(j, "region");
  if (j.contains("labels") && j["labels"].is_object()) {
    for (const auto& [key, value] : j["labels"].items()) {
      if (value.is_string()) worker.labels[key] = value.get<std::string>();
    }
  }
  MachineResources& out = worker.resources;
  out.slots = static_cast<std::int32_t>(Number(j, "slots"));
  out.memory_bytes = Number(j, "memory_bytes");
  out.no_memory_limit = Text(j, "no_memory_limit");
  if (j.contains("devices") && j["devices"].is_array()) {
    for (const json& d : j["devices"]) {
      if (!d.is_object()) continue;
      out.devices.push_back(
          {Text(d, "id"), KindOf(Text(d, "kind")), Text(d, "model"), Number(d, "memory_bytes")});
    }
  }
  return worker;
}

}  // namespace gpulayer
