// What the worker and gpulayer-exec say to each other: one packet per message on a local
// SOCK_SEQPACKET socket. Both ends are on one machine, so integers are in its byte order; they may
// be of different versions, so the layout and the numbers of version 1 do not change.
//
// The worker says kHello first. Every START, ADOPT is answered by kStarted and kEnded, or kEnded
// alone, or kRefused; these come to every connection that has said hello.
#ifndef GPULAYER_WORKER_EXEC_PROTOCOL_H_
#define GPULAYER_WORKER_EXEC_PROTOCOL_H_

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
  // From gpulayer-exec.
  kWelcome = 16,   // value: kVersion
  kStarted = 17,   // id; payload: EncodeStarted
  kEnded = 18,     // id; payload: EncodeStatus
  kRefused = 19,   // id: not started, value is the errno; without id: the connection is refused
  kListItem = 20,  // seq, id
  kListEnd = 21,   // seq
};

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

}  // namespace gpulayer::exec_wire

#endif  // GPULAYER_WORKER_EXEC_PROTOCOL_H_
