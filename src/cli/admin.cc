// worker, status, resources, token, version: what there is.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cli/json.h"
#include "cli/verb.h"
#include "gpulayer/text.h"
#include "gpulayer/version.h"

namespace gpulayer::cli {
namespace {

std::string Used(std::int64_t used, std::int64_t total) {
  return std::to_string(used) + "/" + std::to_string(total);
}

std::string LabelText(const std::map<std::string, std::string>& labels) {
  std::string out;
  for (const auto& [key, value] : labels) out += (out.empty() ? "" : ",") + key + "=" + value;
  return out;
}

std::string DeviceText(const std::vector<DeviceInfo>& devices) {
  std::string out;
  for (const DeviceInfo& d : devices) {
    out += (out.empty() ? "" : "; ") + std::string(ToString(d.kind)) + " " + d.model + " " +
           FormatSize(d.memory_bytes);
  }
  return out;
}

}  // namespace

int RunWorkerList(const WorkerArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const std::vector<WorkerInfo> workers, client.Workers());
    if (args.common.json) return PrintOut(WorkerListJson(workers)), 0;
    Table table({"NAME", "STATE", "SLOTS", "MEMORY", "DEVICES", "ZONE", "RUNNING"});
    const std::vector<std::string> names = WorkerNames(workers);
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const WorkerInfo& w = workers[i];
      table.Add({names[i], w.held.empty() ? ToString(w.state) : "given no work",
                 Used(w.slots_used, w.resources.slots),
                 FormatSize(w.memory_used_bytes) + "/" + FormatSize(w.resources.memory_bytes),
                 std::to_string(w.resources.devices.size()), w.zone, std::to_string(w.running)});
    }
    PrintOut(table.ToText());
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (!workers[i].held.empty()) PrintNote(names[i] + " is given no work: " + workers[i].held);
    }
    return 0;
  });
}

int RunWorkerShow(const WorkerArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const std::vector<WorkerInfo> workers, client.Workers());
    const WorkerInfo* found = nullptr;
    for (const WorkerInfo& w : workers) {
      if (w.id != args.worker && w.name != args.worker) continue;
      if (found != nullptr) {
        return Status(
            StatusCode::kFailedPrecondition,
            "worker \"" + Printable(args.worker) +
                "\": several have this name. Give the id, as `gpulayer worker list` shows.");
      }
      found = &w;
    }
    if (found == nullptr) {
      return Status(StatusCode::kNotFound, "worker \"" + Printable(args.worker) +
                                               "\": not known. See `gpulayer worker list`.");
    }
    if (args.common.json) return PrintOut(WorkerJson(*found)), 0;
    PrintOut(Fields({{"worker", found->name},
                     {"id", found->id},
                     {"state", ToString(found->state)},
                     {"given no work", found->held},
                     {"zone", found->zone},
                     {"region", found->region},
                     {"labels", LabelText(found->labels)},
                     {"slots", Used(found->slots_used, found->resources.slots) + " in use"},
                     {"memory", FormatSize(found->memory_used_bytes) + " of " +
                                    FormatSize(found->resources.memory_bytes) + " reserved"},
                     {"devices", DeviceText(found->resources.devices)},
                     {"running", std::to_string(found->running)},
                     {"version", found->version},
                     {"first seen", TimeText(found->first_seen)},
                     {"last seen", TimeText(found->last_seen)}}));
    return 0;
  });
}

int RunStatus(const Common& args) {
  return WithClient(args, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const ServerInfo s, client.ServerStatus());
    if (args.json) return PrintOut(StatusJson(s, client.target())), 0;
    std::string tasks;
    for (const auto& [state, count] : s.task_counts) {
      if (count > 0) tasks += (tasks.empty() ? "" : ", ") + std::to_string(count) + " " + state;
    }
    std::string addresses;
    for (const std::string& a : s.addresses) addresses += (addresses.empty() ? "" : ", ") + a;
    PrintOut(Fields({{"target", client.target()},
                     {"server", client.address()},
                     {"version", s.version},
                     {"you are", s.user + " (" + s.role + ")"},
                     {"up since", TimeText(s.started)},
                     {"workers", Used(s.workers_online, s.workers_known) + " online"},
                     {"slots", Used(s.slots_used, s.slots_total) + " in use"},
                     {"tasks", tasks.empty() ? "none" : tasks},
                     {"addresses", addresses},
                     {"data", s.data_dir}}));
    return 0;
  });
}

int RunDoctor(const DoctorArgs& args) {
  const std::vector<Finding> findings = Diagnose(args.options);
  const bool well = std::all_of(findings.begin(), findings.end(),
                                [](const Finding& finding) { return finding.ok; });
  if (args.json) return PrintOut(DoctorJson(findings)), well ? 0 : kFailed;
  Table table({"CHECK", "RESULT", "FOUND"});
  for (const Finding& finding : findings) {
    table.Add({finding.check, finding.ok ? "ok" : "FAILED", finding.text});
  }
  PrintOut(table.ToText());
  return well ? 0 : kFailed;
}

int RunDetect(const Common& args) {
  const Result<WorkerInfo> found = DetectWorker();
  if (!found.ok()) return PrintError(found.status()), kFailed;
  if (args.json) return PrintOut(ResourcesJson(*found)), 0;
  const MachineResources& has = found->resources;
  PrintOut(Fields({{"name", found->name},
                   {"zone", found->zone},
                   {"region", found->region},
                   {"labels", LabelText(found->labels)},
                   {"slots", std::to_string(has.slots)},
                   {"memory", FormatSize(has.memory_bytes)},
                   {"--memory", has.no_memory_limit.empty()
                                    ? "a limit, by a cgroup"
                                    : "a reservation and no limit: " + has.no_memory_limit},
                   {"devices", has.devices.empty() ? "none" : DeviceText(has.devices)}}));
  return 0;
}

int RunVersion(const Common& args) {
  PrintOut(args.json ? VersionJson(Version()) : std::string("gpulayer ") + Version() + "\n");
  return 0;
}

int RunTokenCreate(const TokenArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const NewToken token, client.CreateToken(args.role, args.user, args.life));
    PrintOut(args.common.json ? NewTokenJson(token) : token.token + "\n");
    if (!args.life) {
      PrintNote("it is good until it is revoked: `gpulayer token revoke " + token.id + "`");
    }
    return 0;
  });
}

int RunTokenList(const TokenArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    GPULAYER_TRY(const std::vector<TokenInfo> tokens, client.ListTokens());
    if (args.common.json) return PrintOut(TokenListJson(tokens)), 0;
    const Time now =
        std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
    GPULAYER_TRY(const std::vector<WorkerInfo> workers, client.Workers());
    std::map<std::string, std::string> names;  // a worker's credential is for an id
    for (const WorkerInfo& worker : workers) names[worker.id] = "worker " + worker.name;
    Table table({"ID", "KIND", "ROLE", "USER", "FOR", "CREATED", "STATE"});
    for (const TokenInfo& t : tokens) {
      const auto name = names.find(t.subject);
      table.Add({t.id, t.credential ? "credential" : "token", t.role, t.user,
                 name == names.end() ? t.subject : name->second, TimeText(t.created),
                 TokenState(t, now)});
    }
    PrintOut(table.ToText());
    return 0;
  });
}

int RunTokenRevoke(const TokenArgs& args) {
  return WithClient(args.common, kFailed, [&](Client& client) -> Result<int> {
    if (const Status s = client.RevokeToken(args.id); !s.ok()) return s;
    PrintOut(args.common.json ? RevokedJson(args.id)
                              : "revoked " + Printable(args.id) +
                                    ": it is not let in any more, nor what was exchanged for it\n");
    return 0;
  });
}

}  // namespace gpulayer::cli
