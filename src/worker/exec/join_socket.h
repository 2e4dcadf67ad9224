// Where worker and gpulayer-exec meet for a command that joins a running attempt: the worker
// listens at `join.<number>` in the attempt's folder before it asks. Whoever cannot do it connects
// and hangs up, so a refusal needs no message and nobody waits for one that got lost with a
// process.
#ifndef GPULAYER_WORKER_EXEC_JOIN_SOCKET_H_
#define GPULAYER_WORKER_EXEC_JOIN_SOCKET_H_

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "worker/exec/attempt_format.h"

namespace gpulayer {

inline std::string JoinSocketName(std::int32_t number) {
  return kJoinPrefix + std::to_string(number);
}

// The folder's path may be longer than an address takes, so it is reached through a descriptor.
inline sockaddr_un JoinSocketAddress(int dir_fd, std::int32_t number) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir_fd,
                JoinSocketName(number).c_str());
  return address;
}

// Non-blocking; -1: nobody listens.
inline int ConnectJoin(int dir_fd, std::int32_t number) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = JoinSocketAddress(dir_fd, number);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

inline void RefuseJoin(int dir_fd, std::int32_t number) {
  const int fd = ConnectJoin(dir_fd, number);
  if (fd >= 0) close(fd);
}

// Whether a process of this account is at the other end.
inline bool IsOwnPeer(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

}  // namespace gpulayer

#endif  // GPULAYER_WORKER_EXEC_JOIN_SOCKET_H_
