#include "server/store/codec.h"

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace gpulayer::codec {
namespace {

constexpr char kVersion = 1;
constexpr std::size_t kEnvelope = 9;  // version and check sum

std::uint64_t CheckSum(std::string_view bytes) {
  std::uint64_t sum = 0xCBF29CE484222325ULL;
  for (const char c : bytes) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return sum;
}

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// What each structure consists of, once for both directions.

template <typename A, Is<EnvVar> T>
void Visit(A& field, T& x) {
  field(1, x.name);
  field(2, x.value);
}

template <typename A, Is<std::pair<std::string, std::string>> T>
void Visit(A& field, T& x) {
  field(1, x.first);
  field(2, x.second);
}

template <typename A, Is<Requirements> T>
void Visit(A& field, T& x) {
  field(1, x.slots);
  field(2, x.memory_bytes);
  field(3, x.accelerator);
  field(4, x.devices);
  field(5, x.device_memory_bytes);
  field(6, x.device_model);
  field(7, x.labels);
  field(8, x.zone);
  field(9, x.region);
  field(10, x.workers);
  field(11, x.secrets);
}

template <typename A, Is<OutputRules> T>
void Visit(A& field, T& x) {
  field(1, x.collect);
  field(2, x.globs);
  field(3, x.limit_bytes);
}

template <typename A, Is<JobSpec> T>
void Visit(A& field, T& x) {
  field(1, x.name);
  field(2, x.command);
  field(3, x.env);
  field(4, x.requirements);
  field(5, x.source_tree);
  field(6, x.stdin_blob);
  field(7, x.outputs);
  field(8, x.time_limit);
  field(9, x.grace);
  field(10, x.tasks.count);
  field(11, x.wait_for_worker);
  field(12, x.request_id);
  field(13, x.array);
  field(14, x.tasks.first);
  field(15, x.tasks.step);
  field(16, x.items);
  field(17, x.max_parallel);
  field(18, x.only);
  field(19, x.retry_of);
  field(20, x.log_limit_bytes);
  field(21, x.keep);
  field(30, x.secrets);
  field(31, x.secrets_ref);
}

template <typename A, Is<Allocation> T>
void Visit(A& field, T& x) {
  field(1, x.slots);
  field(2, x.memory_bytes);
  field(3, x.device_ids);
}

template <typename A, Is<LeftOut> T>
void Visit(A& field, T& x) {
  field(1, x.path);
  field(2, x.size_bytes);
  field(3, x.reason);
}

template <typename A, Is<OutputResult> T>
void Visit(A& field, T& x) {
  field(1, x.tree);
  field(2, x.files);
  field(3, x.bytes);
  field(4, x.left_out);
  field(5, x.left_out_count);
}

template <typename A, Is<Device> T>
void Visit(A& field, T& x) {
  field(1, x.id);
  field(2, x.kind);
  field(3, x.model);
  field(4, x.memory_bytes);
}

template <typename A, Is<Resources> T>
void Visit(A& field, T& x) {
  field(1, x.slots);
  field(2, x.memory_bytes);
  field(3, x.devices);
}

template <typename A, Is<WorkerProfile> T>
void Visit(A& field, T& x) {
  field(1, x.id);
  field(2, x.name);
  field(3, x.zone);
  field(4, x.region);
  field(5, x.labels);
  field(6, x.resources);
  field(7, x.version);
  field(8, x.takes_secrets);
}

template <typename T>
concept Number = std::integral<T> || std::is_enum_v<T>;

void PutVarint(std::string& out, std::uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

// False: cut short or too long.
bool TakeVarint(std::string_view& in, std::uint64_t& v) {
  v = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    v |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

class Encoder {
 public:
  std::string Take() { return std::move(out_); }

  template <Number T>
  void operator()(std::uint64_t tag, const T& v) {
    const auto n = static_cast<std::int64_t>(v);
    std::string payload;
    PutVarint(payload, (static_cast<std::uint64_t>(n) << 1) ^ static_cast<std::uint64_t>(n >> 63));
    Put(tag, payload);
  }
  void operator()(std::uint64_t tag, const Duration& v) { (*this)(tag, v.count()); }
  void operator()(std::uint64_t tag, const std::string& v) {
    if (!v.empty()) Put(tag, v);
  }
  void operator()(std::uint64_t tag, const Hash& v) {
    if (!v.empty()) Put(tag, v.bytes());
  }
  void operator()(std::uint64_t tag, const IntervalSet& v) { (*this)(tag, v.ToText()); }
  template <typename Tag, typename T>
  void operator()(std::uint64_t tag, const Strong<Tag, T>& v) {
    (*this)(tag, v.value());
  }
  template <typename T>
  void operator()(std::uint64_t tag, const std::optional<T>& v) {
    if (v) (*this)(tag, *v);
  }
  void operator()(std::uint64_t tag, const std::vector<std::string>& v) {
    for (const std::string& item : v) Put(tag, item);  // an empty one counts, too
  }
  template <typename T>
  void operator()(std::uint64_t tag, const std::vector<T>& v) {
    for (const T& item : v) (*this)(tag, item);
  }
  void operator()(std::uint64_t tag, const std::map<std::string, std::string>& v) {
    for (const auto& [key, value] : v)
      (*this)(tag, std::pair<std::string, std::string>(key, value));
  }
  template <typename T>
    requires std::is_class_v<T>
  void operator()(std::uint64_t tag, const T& v) {
    Encoder nested;
    Visit(nested, v);
    Put(tag, nested.out_);
  }

 private:
  void Put(std::uint64_t tag, std::string_view payload) {
    PutVarint(out_, tag);
    PutVarint(out_, payload.size());
    out_ += payload;
  }
  std::string out_;
};

// Shows one field after the other to Visit(); the member with its tag takes it.
class Decoder {
 public:
  template <typename T>
  static bool Fill(std::string_view in, T& x) {
    Decoder decoder;
    while (!in.empty()) {
      std::uint64_t size = 0;
      if (!TakeVarint(in, decoder.tag_) || !TakeVarint(in, size) || size > in.size()) return false;
      decoder.payload_ = in.substr(0, static_cast<std::size_t>(size));
      in.remove_prefix(decoder.payload_.size());
      Visit(decoder, x);
      if (!decoder.ok_) return false;
    }
    return true;
  }

  template <typename T>
  void operator()(std::uint64_t tag, T& v) {
    if (tag == tag_) ok_ = Parse(payload_, v);
  }

 private:
  template <Number T>
  static bool Parse(std::string_view in, T& v) {
    std::uint64_t raw = 0;
    if (!TakeVarint(in, raw) || !in.empty()) return false;
    const auto n = static_cast<std::int64_t>((raw >> 1) ^ (~(raw & 1) + 1));
    if constexpr (std::is_enum_v<T>) {
      return ParseRange<std::underlying_type_t<T>>(n, v);
    } else {
      return ParseRange<T>(n, v);
    }
  }
  template <typename Raw, typename T>
  static bool ParseRange(std::int64_t n, T& v) {
    if (n < static_cast<std::int64_t>(std::numeric_limits<Raw>::min()) ||
        n > static_cast<std::int64_t>(std::numeric_limits<Raw>::max())) {
      return false;
    }
    v = static_cast<T>(n);
    return true;
  }
  static bool Parse(std::string_view in, Duration& v) {
    Duration::rep n = 0;
    if (!Parse(in, n)) return false;
    v = Duration(n);
    return true;
  }
  static bool Parse(std::string_view in, std::string& v) {
    v = in;
    return true;
  }
  static bool Parse(std::string_view in, Hash& v) {
    Result<Hash> hash = Hash::FromBytes(in);
    if (hash.ok()) v = *hash;
    return hash.ok();
  }
  static bool Parse(std::string_view in, IntervalSet& v) {
    Result<IntervalSet> set = IntervalSet::FromText(in);
    if (set.ok()) v = *std::move(set);
    return set.ok();
  }
  template <typename Tag, typename T>
  static bool Parse(std::string_view in, Strong<Tag, T>& v) {
    T value{};
    if (!Parse(in, value)) return false;
    v = Strong<Tag, T>(std::move(value));
    return true;
  }
  template <typename T>
  static bool Parse(std::string_view in, std::optional<T>& v) {
    return Parse(in, v.emplace());
  }
  template <typename T>
  static bool Parse(std::string_view in, std::vector<T>& v) {
    return Parse(in, v.emplace_back());
  }
  static bool Parse(std::string_view in, std::map<std::string, std::string>& v) {
    std::pair<std::string, std::string> item;
    if (!Fill(in, item)) return false;
    v.insert(std::move(item));
    return true;
  }
  template <typename T>
    requires std::is_class_v<T>
  static bool Parse(std::string_view in, T& v) {
    return Fill(in, v);
  }

  std::uint64_t tag_ = 0;
  std::string_view payload_;
  bool ok_ = true;
};

template <typename T>
std::string Wrap(const T& x) {
  Encoder encoder;
  Visit(encoder, x);
  const std::string body = encoder.Take();
  std::string out(1, kVersion);
  std::uint64_t sum = CheckSum(body);
  for (int i = 0; i < 8; ++i, sum >>= 8) out += static_cast<char>(sum & 0xFF);
  return out += body;
}

}  // namespace

std::string Encode(const JobSpec& spec) { return Wrap(spec); }
std::string Encode(const Allocation& allocation) { return Wrap(allocation); }
std::string Encode(const OutputResult& outputs) { return Wrap(outputs); }
std::string Encode(const WorkerProfile& profile) { return Wrap(profile); }

template <typename T>
Result<T> Decode(std::string_view bytes) {
  if (bytes.size() < kEnvelope) return DataLoss("stored record: cut short");
  if (bytes[0] > kVersion) {
    return FailedPrecondition("stored record: written by a newer version (format " +
                              std::to_string(bytes[0]) + "). Use that version.");
  }
  const std::string_view body = bytes.substr(kEnvelope);
  std::uint64_t sum = CheckSum(body);
  bool same = bytes[0] == kVersion;
  for (std::size_t i = 1; i < kEnvelope; ++i, sum >>= 8) {
    same = same && static_cast<unsigned char>(bytes[i]) == (sum & 0xFF);
  }
  if (!same) return DataLoss("stored record: its check sum is wrong");
  T x{};
  if (!Decoder::Fill(body, x)) return DataLoss("stored record: its fields cannot be read");
  return x;
}

template Result<JobSpec> Decode(std::string_view bytes);
template Result<Allocation> Decode(std::string_view bytes);
template Result<OutputResult> Decode(std::string_view bytes);
template Result<WorkerProfile> Decode(std::string_view bytes);

}  // namespace gpulayer::codec
