// The protocol's version and who may speak with whom.
#ifndef GPULAYER_WIRE_VERSION_H_
#define GPULAYER_WIRE_VERSION_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gpulayer/v1/common.pb.h"

namespace gpulayer::wire {

inline constexpr unsigned kProtocolMajor = 1;
inline constexpr unsigned kProtocolMinor = 0;
extern const char kProgramVersion[];  // "0.1.0"

// Features: what a peer of the same version may not know yet, and must not be asked for then.
inline constexpr char kSecretsFeature[] = "secrets";
inline constexpr char kExecFeature[] = "exec";  // commands inside attempts
bool HasFeature(const v1::Version& peer, std::string_view feature);

v1::Version OwnVersion();
// A server of minor N serves peers of N and N-1 of the same major; a newer peer must speak the
// older form, so it is served too. FAILED_PRECONDITION names both versions and says which side to
// upgrade.
Status CheckPeerVersion(const v1::Version& peer, const std::string& who);

}  // namespace gpulayer::wire

#endif  // GPULAYER_WIRE_VERSION_H_
