// Where things of this user and this installation lie.
#ifndef GPULAYER_CLIENT_PATHS_H_
#define GPULAYER_CLIENT_PATHS_H_

#include <string>

#include "base/status.h"

namespace gpulayer::client {

// `given`, else GPULAYER_CONFIG_DIR, else $XDG_CONFIG_HOME/gpulayer or ~/.config/gpulayer.
Result<std::string> ConfigDir(const std::string& given);

// $XDG_CACHE_HOME/gpulayer or ~/.cache/gpulayer; empty if there is no home: then nothing is cached.
std::string CacheDir();

// The socket of the server of a data directory: D/server.sock, or the path that its endpoint file
// names (a long one is moved). Empty: no server was ever started there; a copy of the directory of
// one that runs counts as such.
std::string ServerSocket(const std::string& data_dir);

// PERMISSION_DENIED: this account may not look into the data directory, or not get to it.
Status CheckMayLookInto(const std::string& data_dir);

// A daemon's program: in GPULAYER_BINDIR, beside the running program, beside the library's folder
// (../libexec/gpulayer, ../bin), on PATH. NOT_FOUND says where it was looked for.
Result<std::string> FindProgram(const std::string& name);

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_PATHS_H_
