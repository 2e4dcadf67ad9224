#include "worker/exec/attempt_format.h"

#include <limits>

namespace gpulayer {
namespace {

// Do not change: eight bytes in front of each kind of file.
constexpr std::string_view kSpecMagic = "GLSPEC1\n";
constexpr std::string_view kSecretsMagic = "GLSECR1\n";
constexpr std::string_view kJoinOrderMagic = "GLJOIN1\n";
constexpr std::string_view kJoinReportMagic = "GLJREP1\n";
constexpr std::string_view kStartedMagic = "GLSTRT1\n";
constexpr std::string_view kStatusMagic = "GLSTAT1\n";
constexpr std::string_view kTailMagic = "GLTAIL1\n";

constexpr std::size_t kMaxSweptNames = 16;
constexpr std::size_t kMaxSweptName = 64;

// Little endian integers; strings as u32 length and bytes.
class Writer {
 public:
  explicit Writer(std::string_view magic) : out_(magic) {}
  void U32(std::uint32_t v) { Le(v, 4); }
  void I64(std::int64_t v) { Le(static_cast<std::uint64_t>(v), 8); }
  void Str(std::string_view s) {
    U32(static_cast<std::uint32_t>(s.size()));
    out_ += s;
  }
  void Strs(const std::vector<std::string>& list) {
    U32(static_cast<std::uint32_t>(list.size()));
    for (const std::string& s : list) Str(s);
  }
  void Time(const Instant& t) {
    I64(t.mono.time_since_epoch().count());
    I64(ToMicros(t.wall));
  }
  std::string Take() { return std::move(out_); }

 private:
  void Le(std::uint64_t v, int n) {
    for (int i = 0; i < n; ++i) out_.push_back(static_cast<char>(v >> (8 * i) & 255));
  }
  std::string out_;
};

// Reads nothing past the end: after the first misfit every read gives zero and ok() is false.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view magic) : rest_(bytes) {
    ok_ = rest_.substr(0, magic.size()) == magic;
    if (ok_) rest_.remove_prefix(magic.size());
  }
  std::uint32_t U32() { return static_cast<std::uint32_t>(Le(4)); }
  std::int32_t I32() { return static_cast<std::int32_t>(U32()); }
  std::int64_t I64() { return static_cast<std::int64_t>(Le(8)); }
  std::string Str() {
    const std::size_t size = U32();
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    std::string s(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return s;
  }
  std::vector<std::string> Strs() {
    const std::size_t count = U32();
    std::vector<std::string> list;
    // Each string takes four bytes at least, so a false count cannot make us reserve much.
    if (!ok_ || count > rest_.size() / 4) {
      ok_ = false;
      return list;
    }
    list.reserve(count);
    for (std::size_t i = 0; i < count && ok_; ++i) list.push_back(Str());
    return list;
  }
  Instant Time() {
    Instant t;
    t.mono = TimePoint(Duration(I64()));
    t.wall = FromMicros(I64());
    return t;
  }
  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && rest_.empty(); }

 private:
  std::uint64_t Le(std::size_t n) {
    if (!ok_ || rest_.size() < n) {
      ok_ = false;
      return 0;
    }
    std::uint64_t v = 0;
    for (std::size_t i = n; i-- > 0;) v = v << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(n);
    return v;
  }
  std::string_view rest_;
  bool ok_ = false;
};

// -1: none.
void WriteOptional(Writer& w, const std::optional<std::int32_t>& v) { w.I64(v ? *v : -1); }
std::optional<std::int32_t> ReadOptional(Reader& r) {
  const std::int64_t v = r.I64();
  if (v < 0 || v > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return static_cast<std::int32_t>(v);
}

bool SameInstant(const Instant& a, const Instant& b) {
  return a.mono == b.mono && a.wall == b.wall;
}

}  // namespace

bool IsValidAttemptId(std::string_view id) {
  if (id.empty() || id.size() > kMaxAttemptIdBytes || id.front() == '.') return false;
  for (const char c : id) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (!good) return false;
  }
  return true;
}

bool operator==(const AttemptStatus& a, const AttemptStatus& b) {
  if (a.main_ended.has_value() != b.main_ended.has_value()) return false;
  if (a.main_ended && !SameInstant(*a.main_ended, *b.main_ended)) return false;
  return a.failed_step == b.failed_step && a.error == b.error && a.exit_code == b.exit_code &&
         a.signal == b.signal && a.order == b.order && a.killed == b.killed &&
         a.started == b.started && SameInstant(a.ended, b.ended) && a.log_bytes == b.log_bytes &&
         a.log_dropped_bytes == b.log_dropped_bytes && a.swept == b.swept &&
         a.swept_names == b.swept_names && a.unreachable == b.unreachable &&
         a.attempt == b.attempt && a.memory_limit == b.memory_limit && a.oom_kills == b.oom_kills;
}

std::string EncodeSpec(const AttemptSpec& spec) {
  Writer w(kSpecMagic);
  w.I64(spec.time_limit ? spec.time_limit->count() : -1);
  w.I64(spec.grace.count());
  w.Str(spec.cwd);
  w.Str(spec.stdin_path);
  w.Strs(spec.argv);
  w.Strs(spec.env);
  // What an older gpulayer-exec does not know is not written unless it matters.
  const bool memory = spec.memory_limit != 0 || spec.secrets != 0;
  if (spec.log_limit != AttemptSpec().log_limit || memory) w.I64(spec.log_limit);
  if (memory) w.I64(spec.memory_limit);
  if (spec.secrets != 0) w.I64(spec.secrets);
  return w.Take();
}

Result<AttemptSpec> DecodeSpec(std::string_view bytes) {
  Reader r(bytes, kSpecMagic);
  AttemptSpec spec;
  const std::int64_t limit = r.I64();
  if (limit >= 0) spec.time_limit = Duration(limit);
  spec.grace = Duration(r.I64());
  spec.cwd = r.Str();
  spec.stdin_path = r.Str();
  spec.argv = r.Strs();
  spec.env = r.Strs();
  if (r.ok() && !r.AtEnd()) spec.log_limit = r.I64();
  if (r.ok() && !r.AtEnd()) spec.memory_limit = r.I64();
  if (r.ok() && !r.AtEnd()) spec.secrets = r.I64();
  if (!r.AtEnd() || spec.argv.empty() || spec.grace < Duration::zero() ||
      spec.log_limit < limits::kMinLogLimitBytes || spec.memory_limit < 0 || spec.secrets < 0) {
    return DataLoss("attempt spec: damaged");
  }
  return spec;
}

std::string EncodeSecrets(const std::vector<std::string>& secrets) {
  Writer w(kSecretsMagic);
  w.Strs(secrets);
  return w.Take();
}

Result<std::vector<std::string>> DecodeSecrets(std::string_view bytes) {
  Reader r(bytes, kSecretsMagic);
  std::vector<std::string> secrets = r.Strs();
  if (!r.AtEnd()) return DataLoss("attempt secrets: damaged");
  return secrets;
}

std::string EncodeJoinOrder(const JoinOrder& order) {
  Writer w(kJoinOrderMagic);
  w.Strs(order.argv);
  w.U32(order.terminal ? 1 : 0);
  w.Str(order.term);
  return w.Take();
}

Result<JoinOrder> DecodeJoinOrder(std::string_view bytes) {
  Reader r(bytes, kJoinOrderMagic);
  JoinOrder order;
  order.argv = r.Strs();
  order.terminal = r.U32() != 0;
  order.term = r.Str();
  if (!r.AtEnd() || order.argv.empty()) return DataLoss("command that joins: damaged");
  return order;
}

std::string EncodeJoinReport(const JoinReport& report) {
  Writer w(kJoinReportMagic);
  w.U32(static_cast<std::uint32_t>(report.kind));
  w.U32(static_cast<std::uint32_t>(report.failed_step));
  w.U32(static_cast<std::uint32_t>(report.error));
  WriteOptional(w, report.exit_code);
  WriteOptional(w, report.signal);
  return w.Take();
}

Result<JoinReport> DecodeJoinReport(std::string_view bytes) {
  Reader r(bytes, kJoinReportMagic);
  JoinReport report;
  report.kind = static_cast<JoinReport::Kind>(r.I32());
  report.failed_step = static_cast<StartStep>(r.I32());
  report.error = r.I32();
  report.exit_code = ReadOptional(r);
  report.signal = ReadOptional(r);
  const bool known =
      report.kind >= JoinReport::Kind::kStarted && report.kind <= JoinReport::Kind::kEnded;
  const bool ended = report.exit_code.has_value() != report.signal.has_value();
  if (!r.AtEnd() || !known || (report.kind == JoinReport::Kind::kEnded && !ended)) {
    return DataLoss("report of a command that joined: damaged");
  }
  return report;
}

std::string EncodeStarted(const AttemptStarted& started) {
  Writer w(kStartedMagic);
  w.I64(started.pid);
  w.Time(started.at);
  return w.Take();
}

Result<AttemptStarted> DecodeStarted(std::string_view bytes) {
  Reader r(bytes, kStartedMagic);
  AttemptStarted started;
  started.pid = r.I64();
  started.at = r.Time();
  if (!r.AtEnd() || started.pid <= 0) return DataLoss("attempt start: damaged");
  return started;
}

std::string EncodeTailHeader(const TailHeader& header) {
  Writer w(kTailMagic);
  w.I64(header.number);
  w.I64(header.log_limit);
  w.I64(header.head_bytes);
  w.I64(header.head_output);
  w.I64(header.output_before);
  w.U32((header.out_at_line ? 1U : 0U) | (header.err_at_line ? 2U : 0U));
  return w.Take();
}

Result<TailHeader> DecodeTailHeader(std::string_view bytes) {
  Reader r(bytes, kTailMagic);
  TailHeader header;
  header.number = r.I64();
  header.log_limit = r.I64();
  header.head_bytes = r.I64();
  header.head_output = r.I64();
  header.output_before = r.I64();
  const std::uint32_t at_line = r.U32();
  header.out_at_line = (at_line & 1) != 0;
  header.err_at_line = (at_line & 2) != 0;
  if (!r.AtEnd() || header.number < 1 || header.head_bytes < 0 || header.head_output < 0 ||
      header.output_before < header.head_output) {
    return DataLoss("log's tail: damaged");
  }
  return header;
}

std::string EncodeStatus(const AttemptStatus& status) {
  Writer w(kStatusMagic);
  w.U32(static_cast<std::uint32_t>(status.failed_step));
  w.U32(static_cast<std::uint32_t>(status.error));
  WriteOptional(w, status.exit_code);
  WriteOptional(w, status.signal);
  w.U32(static_cast<std::uint32_t>(status.order));
  w.U32(status.killed ? 1 : 0);
  w.I64(status.started ? status.started->pid : 0);
  w.Time(status.started ? status.started->at : Instant{});
  w.U32(status.main_ended ? 1 : 0);
  w.Time(status.main_ended.value_or(Instant{}));
  w.Time(status.ended);
  w.I64(status.log_bytes);
  w.I64(status.log_dropped_bytes);
  w.I64(status.swept);
  w.I64(status.unreachable);
  std::vector<std::string> names = status.swept_names;
  if (names.size() > kMaxSweptNames) names.resize(kMaxSweptNames);
  for (std::string& name : names) {
    if (name.size() > kMaxSweptName) name.resize(kMaxSweptName);
  }
  w.Strs(names);
  w.Str(status.attempt);
  // As in a spec.
  if (status.memory_limit != 0) {
    w.I64(status.memory_limit);
    w.I64(status.oom_kills);
  }
  return w.Take();
}

Result<AttemptStatus> DecodeStatus(std::string_view bytes, std::string_view attempt) {
  Reader r(bytes, kStatusMagic);
  AttemptStatus s;
  s.failed_step = static_cast<StartStep>(r.I32());
  s.error = r.I32();
  s.exit_code = ReadOptional(r);
  s.signal = ReadOptional(r);
  s.order = static_cast<StopOrder>(r.I32());
  s.killed = r.U32() != 0;
  const std::int64_t pid = r.I64();
  const Instant at = r.Time();
  if (pid > 0) s.started = AttemptStarted{pid, at};
  const bool main_ended = r.U32() != 0;
  const Instant main_at = r.Time();
  if (main_ended) s.main_ended = main_at;
  s.ended = r.Time();
  s.log_bytes = r.I64();
  s.log_dropped_bytes = r.I64();
  s.swept = r.I64();
  s.unreachable = r.I64();
  s.swept_names = r.Strs();
  // A gpulayer-exec from before the field may run on under a newer worker.
  s.attempt = r.AtEnd() ? std::string(attempt) : r.Str();
  if (r.ok() && !r.AtEnd()) {
    s.memory_limit = r.I64();
    s.oom_kills = r.I64();
  }
  const bool known = s.failed_step >= StartStep::kNone && s.failed_step <= StartStep::kNever &&
                     s.order >= StopOrder::kNone && s.order <= StopOrder::kShutdown;
  const bool ended =
      s.failed_step != StartStep::kNone || s.exit_code.has_value() != s.signal.has_value();
  if (!r.AtEnd() || !known || !ended || s.log_bytes < 0) {
    return DataLoss("attempt status: damaged");
  }
  if (s.attempt != attempt) return DataLoss("attempt status: of another attempt");
  return s;
}

}  // namespace gpulayer
