// What Diagnose() makes of what it has seen: no file, clock or network here.
#ifndef GPULAYER_CLIENT_DOCTOR_RULES_H_
#define GPULAYER_CLIENT_DOCTOR_RULES_H_

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/daemons.h"
#include "gpulayer/doctor.h"
#include "gpulayer/job_info.h"

namespace gpulayer::client {

inline constexpr rlim_t kLeastThreads = 64;  // of a server with a few connections

std::string Counted(std::size_t n, const std::string& what);  // "1 login", "2 logins"

// Of a data directory.
struct DaemonsView {
  std::string dir;
  std::optional<DaemonRecord> record;
  bool server_lives = false;
  bool worker_lives = false;
  bool socket_left = false;  // the server's is there
};
api::Finding OfDaemons(const DaemonsView& view);
api::Finding OfDisk(const std::string& dir, std::int64_t free_bytes);

// What a server says of itself.
struct ServerView {
  std::string address;
  api::ServerInfo server;
  std::vector<api::WorkerInfo> workers;
  api::Time asked{};  // by this machine's clock
};
std::vector<api::Finding> OfServer(const std::string& target, const ServerView& view);
// By when an online worker was last heard of, which the server says by its own clock; nullopt: no
// worker is online.
std::optional<api::Finding> OfClock(const ServerView& view);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_DOCTOR_RULES_H_
