#include "wire/version.h"

#include <algorithm>

namespace gpulayer::wire {
namespace {

std::string Text(unsigned major, unsigned minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

const char kProgramVersion[] = GPULAYER_VERSION;

v1::Version OwnVersion() {
  v1::Version version;
  version.set_major(kProtocolMajor);
  version.set_minor(kProtocolMinor);
  version.set_program(kProgramVersion);
  version.add_features(kSecretsFeature);
  version.add_features(kExecFeature);
  return version;
}

bool HasFeature(const v1::Version& peer, std::string_view feature) {
  return std::find(peer.features().begin(), peer.features().end(), feature) !=
         peer.features().end();
}

Status CheckPeerVersion(const v1::Version& peer, const std::string& who) {
  const std::string theirs = Text(peer.major(), peer.minor());
  const std::string ours = Text(kProtocolMajor, kProtocolMinor);
  const std::string both = who + " speaks protocol " + theirs + ", this side " + ours;
  if (peer.major() > kProtocolMajor) {
    return FailedPrecondition(both + ". Upgrade this side.");
  }
  if (peer.major() < kProtocolMajor || peer.minor() + 1 < kProtocolMinor) {
    return FailedPrecondition(both + ". Upgrade the other side.");
  }
  return OkStatus();
}

}  // namespace gpulayer::wire
