// Model <-> proto, both ways, and nothing else. FromProto checks what comes from a peer:
// INVALID_ARGUMENT names the field. Empty bytes stand for "no hash". Texts for people (causes,
// reasons, device models) may hold any bytes: what is no UTF-8 travels as U+FFFD.
#ifndef GPULAYER_WIRE_CONVERT_H_
#define GPULAYER_WIRE_CONVERT_H_

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "gpulayer/v1/common.pb.h"
#include "model/ids.h"
#include "model/job.h"
#include "model/resources.h"

namespace gpulayer::wire {

namespace pb = ::gpulayer::v1;

std::string HashToBytes(const Hash& hash);  // empty for an empty hash
Result<Hash> HashFromBytes(const std::string& bytes, const char* field);

void ToProto(const ServerIdentity& in, pb::ServerIdentity* out);
ServerIdentity FromProto(const pb::ServerIdentity& in);
void ToProto(const AttemptKey& in, pb::AttemptKey* out);
Result<AttemptKey> FromProto(const pb::AttemptKey& in);

void ToProto(const Resources& in, pb::Resources* out);
Result<Resources> FromProto(const pb::Resources& in);
void ToProto(const Allocation& in, pb::Allocation* out);
Allocation FromProto(const pb::Allocation& in);
void ToProto(const Requirements& in, pb::Requirements* out);
Result<Requirements> FromProto(const pb::Requirements& in);

// FromProto checks all limits of model/limits.h and that every part makes sense (argv not empty,
// names of variables without '=' and NUL, sizes not negative, name valid UTF-8): the server's gate
// and the client's.
// Whether JobSpec::only goes along: 70 kB at times, for whoever asks for the job itself.
enum class Only { kWith, kWithout };
void ToProto(const JobSpec& in, pb::JobSpec* out, Only only = Only::kWith);
Result<JobSpec> FromProto(const pb::JobSpec& in);
Status CheckSpec(const JobSpec& spec);

// Unchecked: see CheckSecrets of model/variables.h.
void ToProto(const std::vector<EnvVar>& in, pb::Secrets* out);
std::vector<EnvVar> FromProto(const pb::Secrets& in);

void ToProto(const Cause& in, pb::Cause* out);
Cause FromProto(const pb::Cause& in);
void ToProto(const Outcome& in, pb::Outcome* out);
Outcome FromProto(const pb::Outcome& in);
void ToProto(const OutputResult& in, pb::OutputResult* out);
Result<OutputResult> FromProto(const pb::OutputResult& in);

template <typename Labels>  // repeated pb::Label
void LabelsToProto(const std::map<std::string, std::string>& in, Labels* out) {
  for (const auto& [key, value] : in) {
    auto* label = out->Add();
    label->set_key(key);
    label->set_value(value);
  }
}
template <typename Labels>
std::map<std::string, std::string> LabelsFromProto(const Labels& in) {
  std::map<std::string, std::string> out;
  for (const auto& label : in) out[label.key()] = label.value();
  return out;
}

}  // namespace gpulayer::wire

#endif  // GPULAYER_WIRE_CONVERT_H_
