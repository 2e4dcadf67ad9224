// This machine's part: start and stop server and worker here, join another's server, keep logins.
//
// Threads:   functions from any thread; two at once on one data directory exclude each other.
// Blocking:  Up and Join return when the daemons answer, Down when they are gone: at most 30 s, over
//            a link that is slow a minute;
//            Login 15 s, over a link that is slow 45 s.
// Errors:    messages say what is in the way: a port in use, a directory not writable, a token that
//            is wrong, expired, revoked or of another server, a port without TLS, an address that
//            does not answer. Nothing throws. Tokens go into files (0600) and metadata, never into
//            the arguments of a process.
#ifndef GPULAYER_HOST_H_
#define GPULAYER_HOST_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulayer/export.h"
#include "gpulayer/interrupt.h"
#include "gpulayer/job_info.h"
#include "gpulayer/status.h"

namespace gpulayer {
GPULAYER_API_BEGIN

struct UpOptions {
  std::string data_dir;               // empty: GPULAYER_DATA_DIR, else the user's own
  std::optional<std::string> listen;  // default "0.0.0.0:7461"; port 0: a free one
  std::optional<std::int32_t> slots;  // of the worker here; default: the machine's CPUs
  std::optional<bool> worker;  // this machine runs jobs too; default: as the last time, else true
  bool only_start = false;     // ALREADY_EXISTS if any of it runs already
};

struct UpReport {
  bool was_up = false;                 // it ran before the call
  std::vector<std::string> restarted;  // of it, what had died and runs again: "server", "worker"
  std::string data_dir;
  bool worker = true;                  // this machine runs jobs too
  std::vector<std::string> addresses;  // where other machines reach it
  bool only_here = false;              // no other machine does: it listens on loopback alone
  // Empty if only_here: nobody could use them.
  std::string join_token;   // for workers, lives 24 h
  std::string login_token;  // for this user elsewhere, lives 24 h
};

// Starts server and worker. They go on after this process.
// ALREADY_EXISTS: it is up already, with other options, which are named. Nothing is left half-started
// after an error.
GPULAYER_EXPORT Result<UpReport> Up(const UpOptions& options);

struct DownOptions {
  std::string data_dir;  // as UpOptions
};

struct DownReport {
  std::vector<std::string> stopped;  // "server", "worker"; empty: nothing ran
  // The server that this machine had joined, if its worker had ended by itself, as one does whose
  // credential is revoked. Else empty.
  std::string ended_worker_of;
  // That ran: by what the server here said last, 0 also if it did not answer; of a joined machine its
  // own. Those of this machine begin again at the next Up, or elsewhere.
  std::int64_t interrupted_tasks = 0;
  std::int64_t interrupted_here = 0;  // of them, on this machine
  std::string data_dir;
};

// Stops what Up or Join started here, within 10 s. Queued and interrupted work is there at the
// next Up.
GPULAYER_EXPORT Result<DownReport> Down(const DownOptions& options);

// Waits until a daemon that Up or Join started here has ended by itself (UNAVAILABLE, names it), was
// stopped by Down (CANCELLED), or the interrupt (OK).
GPULAYER_EXPORT Status WatchDaemons(const std::string& data_dir, const Interrupt& interrupt);

struct JoinOptions {
  // Both empty, or the address alone: the worker that this machine was before starts again, with the
  // credential that it has; another address has to be one of the same server.
  std::string address;  // "host:port"
  std::string token;    // of role worker or admin
  std::string data_dir;
  // A machine that was a worker before keeps what is not given here.
  std::string name;  // default: of worker.toml, else the host's name up to its first dot
  std::optional<std::int32_t> slots;
  std::string zone;
  std::string region;
  std::map<std::string, std::string> labels;
  bool only_start = false;  // ALREADY_EXISTS if its worker runs already
};

struct JoinReport {
  std::string name;     // what the server lists it by
  std::string address;  // of the server
  std::string worker_id;
  bool was_joined = false;   // its worker ran before the call
  bool name_shared = false;  // another worker that is online has the same name
};

// Makes this machine a worker of the server at the address: checks the server by the token,
// exchanges the token for a credential, starts the worker, waits until the server sees it. One that
// runs already is left alone. ALREADY_EXISTS: it does, with other options.
GPULAYER_EXPORT Result<JoinReport> Join(const JoinOptions& options);

struct LoginOptions {
  std::string address;
  std::string token;       // of role client or admin
  std::string name;        // default: the address's host
  std::string config_dir;  // empty: GPULAYER_CONFIG_DIR, else $XDG_CONFIG_HOME/gpulayer
};

struct TargetInfo {
  std::string name;
  std::string address;
  std::string user;
  std::string role;
  std::string server_uuid;
  bool in_use = false;
  std::string damage;  // why it cannot be used, of ListTargets(); then there is only the name
};

// Keeps a credential for that server, with the token's role, and makes it the login in use.
GPULAYER_EXPORT Result<TargetInfo> Login(const LoginOptions& options);
// Forgets a login; `name` empty: the one in use. NOT_FOUND. The server is asked to revoke the
// credential if it can be reached.
GPULAYER_EXPORT Result<std::string> Logout(const std::string& name,
                                           const std::string& config_dir = "");
GPULAYER_EXPORT Result<std::vector<TargetInfo>> ListTargets(const std::string& config_dir = "");
GPULAYER_EXPORT Status UseTarget(const std::string& name, const std::string& config_dir = "");

// What a person typed, looked at before anybody is asked. INVALID_ARGUMENT says what is right.
GPULAYER_EXPORT Status CheckAddress(const std::string& address);  // of a server: HOST[:PORT]
GPULAYER_EXPORT Status CheckListen(const std::string& address);   // as UpOptions::listen
// Its address, if there is one, and what the machine is to be called.
GPULAYER_EXPORT Status CheckJoin(const JoinOptions& options);
GPULAYER_EXPORT Status CheckLogin(const LoginOptions& options);   // its address and its name
GPULAYER_EXPORT Status CheckTargetName(const std::string& name);  // of a login

// What a worker on this machine would offer.
GPULAYER_EXPORT Result<MachineResources> DetectResources();
// The same with what worker.toml says of it: name (the host's without one), zone, region, labels.
GPULAYER_EXPORT Result<WorkerInfo> DetectWorker();

// A token as people give it: itself, "-" (a line of standard input), "@FILE", or empty for
// GPULAYER_TOKEN. INVALID_ARGUMENT: none given, or not of the form gl1.…
GPULAYER_EXPORT Result<std::string> ReadToken(const std::string& given);

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_HOST_H_
