// What the worker and gpulayer-exec say to each other: one packet per message on a local
// SOCK_SEQPACKET socket. Both ends are on one machine, so integers are in its byte order; they may
// be of different versions, so the layout and the numbers of version 1 do not change.
//
// With kStart may go a descriptor (SCM_RIGHTS): a file in memory with the attempt's secrets, which
// are on no disk (EncodeSecrets). An attempt whose spec says that it has some does not start without.
//
// The worker says kHello first. Every START, ADOPT is answered by kStarted and kEnded, or kEnded
// alone, or kRefused; these come to every connection that has said hello. JOIN is answered at the
// socket that it names.
#ifndef GPULAYER_WORKER_EXEC_PROTOCOL_H_
#define GPULAYER_WORKER_EXEC_PROTOCOL_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "worker/exec/attempt_format.h"

namespace gpulayer::exec_wire {

inline constexpr char kExecFolder[] = "exec/v1";  // under the data directory
inline constexpr char kSocketName[] = "sock";
inline constexpr char kLockName[] = "lock";
inline constexpr char kDaemonLogName[] = "exec.log";

// How the process that starts gpulayer-exec sees what became of it.
inline constexpr int kExitReady = 0;   // it listens, in the background
inline constexpr int kExitFailed = 1;  // it said why on standard error
inline constexpr int kExitUsage = 2;
inline constexpr int kExitAlreadyRunning = 3;  // another one holds the lock

inline constexpr std::uint32_t kMagic = 0x31584C47;  // "GLX1"
inline constexpr std::uint32_t kVersion = 1;

enum class Type : std::uint32_t {
  // From the worker.
  kHello = 1,     // value: kVersion
  kStart = 2,     // id
  kAdopt = 3,     // id
  kStop = 4,      // id; value: grace in ms
  kList = 5,      // seq
  kShutdown = 6,  // value: grace in ms
  kJoin = 7,      // id; value: of the socket (join_socket.h). Only to one that knows it
  // From gpulayer-exec.
  kWelcome = 16,   // value: kVersion; payload: kKnowsJoin, or nothing
  kStarted = 17,   // id; payload: EncodeStarted
  kEnded = 18,     // id; payload: EncodeStatus
  kRefused = 19,   // id: not started, value is the errno; without id: the connection is refused
  kListItem = 20,  // seq, id
  kListEnd = 21,   // seq
};

// An unknown packet breaks the connection, so what is newer than version 1 is asked for first.
inline constexpr std::string_view kKnowsJoin = "join";

struct Header {
  std::uint32_t magic = kMagic;
  Type type = Type::kHello;
  std::uint32_t seq = 0;
  std::uint32_t id_size = 0;
  std::int64_t value = 0;
};
static_assert(sizeof(Header) == 24);

struct Message {
  Type type = Type::kHello;
  std::uint32_t seq = 0;
  std::int64_t value = 0;
  std::string id;
  std::string payload;
};

// Header, id, payload.
inline constexpr std::size_t kMaxPacket = sizeof(Header) + kMaxAttemptIdBytes + kMaxStatusBytes;

inline std::string Pack(const Message& m) {
  Header header;
  header.type = m.type;
  header.seq = m.seq;
  header.id_size = static_cast<std::uint32_t>(m.id.size());
  header.value = m.value;
  std::string packet(reinterpret_cast<const char*>(&header), sizeof(header));
  packet += m.id;
  packet += m.payload;
  return packet;
}

// False: not a message of this protocol.
inline bool Unpack(std::string_view packet, Message& m) {
  Header header;
  if (packet.size() < sizeof(header)) return false;
  std::memcpy(&header, packet.data(), sizeof(header));
  packet.remove_prefix(sizeof(header));
  if (header.magic != kMagic || header.id_size > packet.size()) return false;
  m.type = header.type;
  m.seq = header.seq;
  m.value = header.value;
  m.id = packet.substr(0, header.id_size);
  m.payload = packet.substr(header.id_size);
  return m.id.empty() || IsValidAttemptId(m.id);
}

// As send(), with descriptors beside the packet.
template <std::size_t N>
ssize_t SendWith(int socket, std::string_view packet, const int (&fds)[N]) {
  iovec bytes = {const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(header), fds, sizeof(fds));
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

// `fd`: -1: none.
inline ssize_t Send(int socket, std::string_view packet, int fd) {
  if (fd < 0) return send(socket, packet.data(), packet.size(), MSG_NOSIGNAL);
  return SendWith(socket, packet, {fd});
}

// As recv(); `fds`: what came beside the packet, close-on-exec and the caller's, or -1 each.
template <std::size_t N>
ssize_t ReceiveWith(int socket, char* buffer, std::size_t size, int (&fds)[N]) {
  for (int& fd : fds) fd = -1;
  iovec bytes = {buffer, size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(fds));  // there would be room for one more
  const ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = n < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
  }
  return n;
}

inline ssize_t Receive(int socket, char* buffer, std::size_t size, int& fd) {
  int fds[1];
  const ssize_t n = ReceiveWith(socket, buffer, size, fds);
  fd = fds[0];
  return n;
}

}  // namespace gpulayer::exec_wire

#endif  // GPULAYER_WORKER_EXEC_PROTOCOL_H_
